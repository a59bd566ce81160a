//! Examples of every command, for its help. Names are those of an app that `etude new` makes.

use super::help::heading;

/// A command by its words after `etude`, and its examples: a comment and a command line each.
type Examples = (&'static str, &'static [(&'static str, &'static str)]);

/// The examples of a command as its help prints them.
pub(super) fn text(path: &str) -> Option<String> {
    let (_, examples) = EXAMPLES.iter().find(|(of, _)| *of == path)?;
    let lines = examples.iter().map(|(comment, line)| format!("  # {comment}\n  {line}"));
    Some(format!("{}\n{}", heading("Examples"), lines.collect::<Vec<_>>().join("\n")))
}

/// Two to four for each command.
pub(super) const EXAMPLES: &[Examples] = &[
    (
        "",
        &[
            ("Create an app to start from", "etude new demo"),
            ("Run a pipeline by name", "etude run -C demo --pipeline hello -i name=Ada"),
            ("Route a request to a pipeline", "etude run -C demo \"say hello to Ada\""),
            ("Show what the last run did", "etude runs show latest"),
        ],
    ),
    (
        "run",
        &[
            ("Route a request in words and run the pipeline that matches", "etude run \"say hello to Ada\""),
            ("Run a pipeline with one parameter", "etude run --pipeline hello -i name=Ada"),
            ("Write a string output to a file, without quotes", "etude run -p hello -i name=Ada --raw > hello.txt"),
            ("Print the plan and run nothing", "etude run -p explain -i text='The tide rises.' --dry-run"),
        ],
    ),
    (
        "route",
        &[
            ("Print the pipeline, its score and the other candidates", "etude route \"say hello to Ada\""),
            ("Never ask a model", "etude route \"say hello to Ada\" --mode embedded"),
            ("Measure the router on labelled requests", "etude route --test requests.jsonl --mode embedded"),
        ],
    ),
    (
        "machine",
        &[
            ("Run a stage machine", "etude machine run triage -i ticket='Charged twice'"),
            ("Show its stages and transitions", "etude machine show triage"),
        ],
    ),
    (
        "machine run",
        &[
            ("Run a stage machine with one parameter", "etude machine run triage -i ticket='Charged twice'"),
            (
                "Allow every tool call, stop after 5 minutes",
                "etude machine run triage --input @ticket.json --yolo --timeout 5m",
            ),
        ],
    ),
    (
        "machine show",
        &[
            ("Show stages, tools, limits and transitions", "etude machine show triage"),
            ("Print the machine as JSON", "etude machine show triage --format json"),
        ],
    ),
    (
        "runs",
        &[
            ("List the runs of this app", "etude runs list"),
            ("Show the newest run", "etude runs show latest"),
            ("Continue a run", "etude runs resume 8dmwnz5e"),
        ],
    ),
    (
        "runs list",
        &[
            ("List the newest runs of this app", "etude runs list"),
            ("List interrupted runs of every app", "etude runs list --all --status interrupted"),
            (
                "List the failed runs of a pipeline in the last week",
                "etude runs list -p hello --status failed --since 7d",
            ),
            ("Print the last 5 runs as JSON", "etude runs list -n 5 --format json"),
        ],
    ),
    (
        "runs show",
        &[
            ("Show the newest run of this app", "etude runs show latest"),
            ("Show the attempts of a step", "etude runs show 8dmwnz5e report"),
            ("Show attempt 2 of element 7 of a fan-out", "etude runs show 8dmwnz5e extract 7 2"),
            ("Print it as JSON, with the location of every stream", "etude runs show 8dmwnz5e --format json"),
        ],
    ),
    (
        "runs resume",
        &[
            ("Continue a run where it stopped", "etude runs resume 8dmwnz5e"),
            ("Continue after an edit of the pipeline", "etude runs resume 8dmwnz5e --accept-changes"),
            ("Continue with a larger budget", "etude runs resume 8dmwnz5e --max-cost 2"),
        ],
    ),
    (
        "runs retry",
        &[
            ("Start again from a step, also after success", "etude runs retry 8dmwnz5e --from report"),
            ("The same after an edit of the pipeline", "etude runs retry 8dmwnz5e --from report --accept-changes"),
        ],
    ),
    (
        "runs cancel",
        &[
            ("Cancel a run; its destructor still runs", "etude runs cancel 8dmwnz5e"),
            ("Do the same and print a JSON document", "etude runs cancel 8dmwnz5e --format json"),
        ],
    ),
    (
        "runs export",
        &[
            ("Print everything about a run as JSON lines", "etude runs export 8dmwnz5e"),
            ("Print it as one JSON document", "etude runs export 8dmwnz5e --format json"),
        ],
    ),
    (
        "runs watch",
        &[
            ("Follow the newest run of this app", "etude runs watch latest"),
            ("Print its events as JSON lines, the result last", "etude runs watch latest --format jsonl"),
        ],
    ),
    (
        "runs diff",
        &[
            ("Compare a run with the newest one", "etude runs diff 8dmwnz5e latest"),
            ("Print the differences as JSON pointers", "etude runs diff 8dmwnz5e latest --format json"),
        ],
    ),
    (
        "runs stats",
        &[
            ("Count the runs of the last 7 days by pipeline", "etude runs stats"),
            ("Count those of 30 days by pipeline and model", "etude runs stats --since 30d --by pipeline,model"),
        ],
    ),
    (
        "runs backup",
        &[
            ("Copy the journal to a file", "etude runs backup journal.tar"),
            ("Do the same and print a JSON document", "etude runs backup copy.tar --format json"),
        ],
    ),
    (
        "runs prune",
        &[
            ("List what would be removed, and its size", "etude runs prune --dry-run"),
            ("Remove finished runs of this app that are older than 30 days", "etude runs prune"),
            ("Remove finished runs of every app that are older than a week", "etude runs prune --all --older-than 7d"),
        ],
    ),
    (
        "cache",
        &[
            ("List the cached outputs of this app", "etude cache list"),
            ("Remove those of one pipeline", "etude cache clear --pipeline invoices"),
        ],
    ),
    (
        "cache list",
        &[
            ("List the cached outputs of this app", "etude cache list"),
            ("List those of one pipeline as JSON", "etude cache list --pipeline invoices --format json"),
        ],
    ),
    (
        "cache clear",
        &[
            ("Remove the cached outputs of one pipeline", "etude cache clear --pipeline invoices"),
            ("Remove old outputs of every app", "etude cache clear --all --older-than 30d"),
        ],
    ),
    (
        "approve",
        &[
            ("Approve the only approval that a run waits for", "etude approve 8dmwnz5e"),
            ("Approve one of several, with an answer", "etude approve 8dmwnz5e:deploy/ask --answer '{\"amount\": 20}'"),
            ("Approve, then continue the run in the same command", "etude approve 8dmwnz5e --resume"),
            ("Approve in another name", "etude approve 8dmwnz5e --by ada"),
        ],
    ),
    (
        "deny",
        &[
            ("Deny the only approval that a run waits for", "etude deny 8dmwnz5e"),
            ("Give the reason, and let the run end", "etude deny 8dmwnz5e --reason 'the amount is wrong' --resume"),
        ],
    ),
    (
        "new",
        &[
            ("Create an app in a new directory", "etude new demo"),
            ("Add a pipeline to the app around the current directory", "etude new pipeline summaries"),
            ("Add a stage machine", "etude new machine triage"),
            ("Add a skill", "etude new skill word-count"),
        ],
    ),
    (
        "check",
        &[
            ("Check every definition of the app", "etude check"),
            ("Check one pipeline", "etude check hello"),
            ("List the extensions of the protocol that the app uses", "etude check --portable"),
        ],
    ),
    (
        "list",
        &[
            ("List what the app has", "etude list"),
            ("Print it as JSON, with every parameter", "etude list --format json"),
        ],
    ),
    (
        "graph",
        &[
            ("Draw a pipeline as Mermaid", "etude graph hello"),
            ("Write an SVG file", "etude graph hello --to svg > hello.svg"),
            ("Draw with Graphviz", "etude graph hello --to dot"),
        ],
    ),
    (
        "test",
        &[
            ("Run every test of the app", "etude test"),
            ("Run the tests of one pipeline", "etude test hello"),
            ("Record the model responses that are missing", "etude test explain --record"),
        ],
    ),
    (
        "schema",
        &[
            ("Print the JSON Schema of pipeline.yaml", "etude schema pipeline"),
            ("Write the schema of etude.yaml to a file", "etude schema config > etude.schema.json"),
        ],
    ),
    (
        "apps",
        &[
            ("List the packages that etude finds", "etude apps list"),
            ("Run a command of a package", "etude apps run notes add -- --title Milk"),
        ],
    ),
    (
        "apps list",
        &[
            ("List the packages of this project and of your home directory", "etude apps list"),
            ("Add a directory of packages", "etude apps list --apps-path ../packages"),
        ],
    ),
    (
        "apps show",
        &[
            ("Show a package's contract and its skills", "etude apps show notes"),
            ("Show one of its skills", "etude apps show notes --skill notes-usage"),
        ],
    ),
    (
        "apps check",
        &[
            ("Check every package that etude finds", "etude apps check"),
            ("Check one directory", "etude apps check apps/notes"),
        ],
    ),
    (
        "apps run",
        &[
            ("Run a declared command", "etude apps run notes list"),
            ("Pass options to it after `--`", "etude apps run notes add -- --title Milk"),
            ("Pass a file to its stdin", "etude apps run notes import --stdin notes.json"),
        ],
    ),
    (
        "skill",
        &[
            ("List the skills that etude finds", "etude skill list"),
            ("Show a skill as agents see it", "etude skill show word-count"),
        ],
    ),
    (
        "skill list",
        &[
            ("List the skills of this project and of your home directory", "etude skill list"),
            ("Print them as JSON", "etude skill list --format json"),
        ],
    ),
    (
        "skill show",
        &[
            ("Show a skill as agents see it", "etude skill show word-count"),
            ("Fill its placeholders", "etude skill show word-count --compat claude-code --args 'notes.txt'"),
        ],
    ),
    (
        "skill check",
        &[
            ("Check a skill", "etude skill check .agents/skills/word-count"),
            ("Refuse everything beyond the specification", "etude skill check .agents/skills/word-count --strict"),
        ],
    ),
    (
        "skill catalog",
        &[
            ("Print the catalog that agents receive", "etude skill catalog"),
            ("Print it as JSON", "etude skill catalog --format json"),
        ],
    ),
    (
        "skill explain",
        &[
            ("Show the merged metadata and the chain", "etude skill explain word-count"),
            ("Show the effect of an override", "etude skill explain word-count --local retry=2"),
        ],
    ),
    (
        "skill graph",
        &[
            ("Draw the levels and the chain as Mermaid", "etude skill graph word-count"),
            ("Draw with Graphviz", "etude skill graph word-count --to dot"),
        ],
    ),
    (
        "skill run",
        &[
            ("Call a skill with one argument", "etude skill run word-count --arg text='one two three'"),
            ("Pass the arguments as JSON", "etude skill run word-count --arg-json '{\"text\": \"one two three\"}'"),
            ("List what `--log` can print", "etude skill run --log"),
        ],
    ),
    (
        "trust",
        &[
            ("Allow agents to read a package and run its commands", "etude trust apps/notes --execution"),
            ("Allow agents to read a skill, and nothing more", "etude trust .agents/skills/word-count --activation"),
            ("List what is trusted", "etude trust --list"),
        ],
    ),
    (
        "untrust",
        &[
            ("Revoke trust", "etude untrust apps/notes"),
            ("Hide a skill from agents", "etude untrust .agents/skills/word-count --block"),
        ],
    ),
    (
        "host",
        &[
            ("Call another skill from a script", "etude host invoke word-count --args '{\"text\": \"one two\"}'"),
            ("Read an argument of the target", "etude host get args.text"),
        ],
    ),
    (
        "host invoke",
        &[
            ("Call a skill without arguments", "etude host invoke today"),
            ("Call a skill with arguments", "etude host invoke word-count --args '{\"text\": \"one two\"}'"),
        ],
    ),
    (
        "host next",
        &[("Run the rest of the chain", "etude host next"), ("Keep the result", "result=$(etude host next)")],
    ),
    (
        "host get",
        &[
            ("Read an argument of the target", "etude host get args.text"),
            ("Read its metadata", "etude host get run.tool.metadata"),
        ],
    ),
    (
        "host set",
        &[
            ("Set a value for the rest of the chain", "etude host set locals.attempts 2"),
            ("Set a text; it must be JSON too", "etude host set globals.language '\"en\"'"),
        ],
    ),
    (
        "host add",
        &[
            ("Count a call", "etude host add globals.calls"),
            ("Take one of four places", "etude host add globals.places 1 --max 4"),
        ],
    ),
    (
        "host emit",
        &[
            ("Emit an event without a payload", "etude host emit cache.hit"),
            ("Emit an event with a payload", "etude host emit cache.hit '{\"key\": \"a\"}'"),
        ],
    ),
    (
        "host ask",
        &[
            ("Ask the user a question", "etude host ask '\"Which branch?\"'"),
            ("Offer options", "etude host ask '{\"question\": \"Overwrite?\", \"options\": [\"yes\", \"no\"]}'"),
        ],
    ),
    (
        "host log",
        &[
            ("Write a line to the log", "etude host log info 'the cache is empty'"),
            ("Write a warning", "etude host log warn 'the file is old'"),
        ],
    ),
    (
        "model",
        &[
            ("Show which model each tier uses, and why", "etude model list"),
            ("Download the local model", "etude model pull"),
            ("Test whether each tier responds", "etude model test"),
        ],
    ),
    (
        "model list",
        &[
            ("Show which model each tier uses, and why", "etude model list"),
            ("Print it as JSON", "etude model list --format json"),
        ],
    ),
    (
        "model pull",
        &[
            ("Download the default local model", "etude model pull"),
            ("Download another one by name", "etude model pull all-minilm-l6-v2"),
        ],
    ),
    ("model test", &[("Test every tier", "etude model test"), ("Test one tier", "etude model test lite")]),
    (
        "doctor",
        &[
            ("Check the app, the configuration, the models and the journal", "etude doctor"),
            ("Call each model once too", "etude doctor --call"),
            ("Print the findings as JSON", "etude doctor --format json"),
        ],
    ),
    (
        "explain",
        &[
            ("Explain a code", "etude explain P0201"),
            ("Explain a kind of failure", "etude explain step_failed"),
            ("List the codes of one family, or about a word", "etude explain P02"),
            ("List every code", "etude explain --list"),
        ],
    ),
    (
        "completions",
        &[
            ("Print the script for bash", "etude completions bash"),
            ("Install it for fish", "etude completions fish > ~/.config/fish/completions/etude.fish"),
        ],
    ),
    (
        "man",
        &[
            ("Read the manual page", "etude man | man -l -"),
            ("Install it", "etude man > ~/.local/share/man/man1/etude.1"),
        ],
    ),
    (
        "help",
        &[("Show every command", "etude help"), ("Show the options and examples of one", "etude help runs resume")],
    ),
];

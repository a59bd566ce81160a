//! Imported parts mean the same as before; everything else is listed with a reason.

use etude_convert::import::{ImportKind, Imported, Source, import};

use super::shown;

/// Imports one file, all of which must be sound.
fn one(kind: ImportKind, text: &str) -> Imported {
    let path = match kind {
        ImportKind::ClaudeCode => "p/commands/x.md",
        ImportKind::Lobster => "p/x.lobster",
        ImportKind::Actions | ImportKind::Dagu => "p/x.yaml",
    };
    let sources = [Source { path: path.to_owned(), text: Some(text.to_owned()) }];
    let imported = import(kind, &sources);
    shown(&imported, &sources);
    imported
}

fn steps(imported: &Imported) -> usize {
    imported.pipelines.iter().map(|pipeline| pipeline.steps).sum()
}

/// Text of the file with this end of its path.
fn file<'i>(imported: &'i Imported, end: &str) -> &'i str {
    let file = imported.files.iter().find(|file| file.path.ends_with(end));
    file.map_or_else(|| panic!("no `{end}` in {imported:#?}"), |file| file.text.as_str())
}

/// Asserts that nothing of these texts is imported, with the reason.
fn refuses(kind: ImportKind, rows: &[(&str, &str)]) {
    for (text, reason) in rows {
        let imported = one(kind, text);
        assert_eq!(steps(&imported), 0, "{text}\n{imported:#?}");
        let is_listed = imported.not_imported.iter().any(|finding| finding.reason.contains(reason));
        assert!(is_listed, "{text}\n{reason}\n{:#?}", imported.not_imported);
    }
}

fn job(step: &str) -> String {
    format!(
        "env:\n  COMMIT: ${{{{ github.sha }}}}\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - {step}\n"
    )
}

/// Job without a variable that has no value.
fn plain_job(step: &str) -> String {
    job(step).replace("COMMIT: ${{ github.sha }}", "LEVEL: one")
}

#[test]
fn steps_of_actions_without_the_same_meaning_are_refused() {
    let rows = [
        ("run: echo $GITHUB_SHA", "`GITHUB_SHA`, a variable that only GitHub Actions sets"),
        ("run: echo a=b >> \"$GITHUB_OUTPUT\"", "`GITHUB_OUTPUT`"),
        ("run: echo a=b >> $GITHUB_ENV", "`GITHUB_ENV`"),
        ("run: ls ${RUNNER_TEMP}", "`RUNNER_TEMP`"),
        ("run: \"cat <<'X'\\n${{ secrets.A }}\\nX\"", "`secrets.A` is in a here-document without expansion"),
        ("run: test \"$CI\" = true", "`CI`"),
        ("run: echo $COMMIT", "`COMMIT`, whose value has no equivalent"),
        ("run: echo ${COMMIT:0:7}", "`COMMIT`"),
        ("run: ./publish", "the variable `COMMIT`, which its programs may read"),
        ("{run: ./a, env: {REF: \"${{ github.ref }}\"}}", "its variable `REF`"),
        ("{run: ./a, working-directory: \"${{ inputs.dir }}\"}", "its directory"),
        ("{run: ./a, working-directory: ~/x}", "its directory"),
        ("{run: ./a, working-directory: $HOME/x}", "its directory"),
        ("{run: ./a, timeout-minutes: \"${{ inputs.minutes }}\"}", "its time limit"),
        ("{run: ./a, shell: python}", "the shell `python`"),
        ("run: echo ${{ secrets.A || 'b' }}", "the expression"),
    ];
    let rows: Vec<(String, &str)> = rows.iter().map(|(step, reason)| (job(step), *reason)).collect();
    refuses(ImportKind::Actions, &rows.iter().map(|(text, reason)| (text.as_str(), *reason)).collect::<Vec<_>>());
    let whole = "defaults: {run: {working-directory: x}}\njobs: {a: {steps: [{run: make}]}}\n";
    let windows = "jobs: {a: {runs-on: windows-latest, steps: [{run: make}]}}\n";
    refuses(ImportKind::Actions, &[(whole, "must not run without it"), (windows, "PowerShell")]);
}

/// docs/import.md: the order of steps may be the only guard of a step, so nothing runs after one that was lost.
#[test]
fn nothing_of_a_job_runs_after_a_lost_step() {
    for lost in
        ["uses: acme/verify@v1", "{if: github.ref != 'refs/heads/main', run: exit 1}", "{run: a, shell: python}"]
    {
        let imported =
            one(ImportKind::Actions, &job(&format!("{lost}\n      - {{id: d, run: ./deploy}}\n      - run: ./tell")));
        assert_eq!(steps(&imported), 0, "{imported:#?}");
        let follow = imported.not_imported.iter().filter(|one| one.reason.starts_with("it follows step `"));
        assert_eq!(follow.count(), 2, "{imported:#?}");
    }
    for harmless in [
        "actions/checkout@v4",
        "actions/setup-node@v4",
        "docker/setup-buildx-action@v3",
        "actions/cache@v4",
        "actions/cache/restore@v4",
        "actions/upload-artifact@v4",
        "actions/download-artifact@v4",
    ] {
        let imported = one(ImportKind::Actions, &job(&format!("uses: {harmless}\n      - run: echo a")));
        assert_eq!(steps(&imported), 1, "{harmless}: {imported:#?}");
    }
    for other in ["acme/checkout@v4", "actions/checkout-policy@v1", "./setup-x", "acme/cache@v1"] {
        let imported = one(ImportKind::Actions, &job(&format!("uses: {other}\n      - run: echo a")));
        assert_eq!(steps(&imported), 0, "{other}: {imported:#?}");
    }
    let jobs = "jobs: {a: {steps: [{run: make}, {uses: acme/verify@v1}]}, b: {needs: a, steps: [{run: ./deploy}]}}\n";
    let imported = one(ImportKind::Actions, jobs);
    assert_eq!(steps(&imported), 1, "{imported:#?}");
    let last = imported.not_imported.last().expect("a finding");
    assert_eq!(last.reason, "it needs `a`, which was imported only in part");
}

/// docs/import.md: values are never part of shell text, and never evaluated again.
#[test]
fn steps_that_evaluate_a_value_again_are_refused() {
    let input = "${{ inputs.who }}";
    for run in
        ["bash -c \"echo IN\"", "sh -c 'echo IN'", "eval \"echo IN\"", "echo $(( 1 + IN ))", "bash -c \"echo $WHO\""]
    {
        let run = run.replace("IN", input);
        let text = format!(
            "on: {{workflow_dispatch: {{inputs: {{who: {{}}}}}}}}\nenv: {{WHO: \"{input}\"}}\njobs:\n  a:\n    steps:\n      - run: |\n          {run}\n"
        );
        refuses(ImportKind::Actions, &[(&text, "as code or arithmetic")]);
    }
    let dag = "params: N=1\nsteps: [{command: \"echo $(( $N + 1 ))\"}]\n";
    refuses(ImportKind::Dagu, &[(dag, "the value of `N` as code or arithmetic")]);
    let flow = "args: {tag: {default: a}}\nsteps: [{id: a, command: \"sh -c \\\"echo ${tag}\\\"\"}]\n";
    refuses(ImportKind::Lobster, &[(flow, "the value of `LOBSTER_ARG_TAG` as code or arithmetic")]);
}

/// docs/import.md: defaults are values of the type of their input, with or without quotes.
#[test]
fn defaults_of_inputs_have_their_types() {
    for (event, input, expected) in [
        ("workflow_dispatch", "{type: boolean, default: 'true'}", "type: boolean default: true"),
        ("workflow_dispatch", "{type: boolean, default: false}", "type: boolean default: false"),
        ("workflow_dispatch", "{type: boolean}", "type: boolean default: false"),
        ("workflow_dispatch", "{type: boolean, required: true}", "type: boolean"),
        ("workflow_dispatch", "{type: number, default: \"3\"}", "type: number default: 3"),
        ("workflow_dispatch", "{type: number}", "type: number"),
        ("workflow_call", "{type: number}", "type: number default: 0"),
        ("workflow_call", "{type: number, required: true}", "type: number"),
        ("workflow_dispatch", "{type: choice, options: [1, 2], default: 2}", "- \"1\" - \"2\" default: \"2\""),
        ("workflow_dispatch", "{type: choice, options: [a, b]}", "enum: - a - b"),
        ("workflow_dispatch", "{type: environment}", "type: string default: \"\""),
        ("workflow_call", "{type: string, default: 7}", "type: string default: \"7\""),
        ("workflow_call", "{type: string, default: null}", "type: string default: \"\""),
        ("workflow_call", "", "type: string default: \"\""),
    ] {
        let text = format!("on: {{{event}: {{inputs: {{a: {input}}}}}}}\njobs: {{a: {{steps: [{{run: make}}]}}}}\n");
        let imported = one(ImportKind::Actions, &text);
        let words = file(&imported, "pipeline.yaml").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("{expected} steps:")), "{input}: {words}");
        assert_eq!(imported.not_imported, [], "{input}");
    }
    for (input, reason) in [
        ("{type: boolean, default: 'yes'}", "`yes` is not a boolean"),
        ("{type: number, default: many}", "`many` is not a number"),
        ("{type: choice, options: [a], default: b}", "`b` is not one of its options"),
        ("{default: \"${{ github.ref }}\"}", "it is computed"),
    ] {
        let text =
            format!("on: {{workflow_call: {{inputs: {{a: {input}}}}}}}\njobs: {{a: {{steps: [{{run: make}}]}}}}\n");
        let imported = one(ImportKind::Actions, &text);
        assert_eq!((steps(&imported), imported.not_imported[0].reason.as_str()), (1, reason));
        assert!(!file(&imported, "pipeline.yaml").contains("default"), "{input}");
    }
}

/// docs/import.md: a step of a chain waits for all before it.
#[test]
fn nothing_of_a_chain_runs_after_a_lost_step() {
    let lost = "{name: backup, command: ./backup, preconditions: [{condition: test -f ok}]}";
    let dag =
        |kind: &str, lost: &str| format!("type: {kind}\nsteps:\n  - {lost}\n  - {{name: d, command: ./delete}}\n");
    refuses(ImportKind::Dagu, &[(&dag("chain", lost), "it follows step `backup`, which was not imported")]);
    refuses(ImportKind::Dagu, &[(&dag("chain", "[{command: a}]"), "it follows step `step_1`, which was not imported")]);
    assert_eq!(steps(&one(ImportKind::Dagu, &dag("graph", lost))), 1);
    // A file without a type is a chain, unless its steps name others.
    let untyped = "steps:\n  - {id: ask, type: noop, approval: {prompt: Go?}}\n  - {id: d, command: ./delete}\n";
    refuses(ImportKind::Dagu, &[(untyped, "it follows step `ask`, which was not imported")]);
    let mixed =
        format!("{untyped}  - {{id: e, command: make, depends: []}}\n  - {{id: f, command: make, depends: e}}\n");
    assert_eq!(steps(&one(ImportKind::Dagu, &mixed)), 2);
    let start = "handler_on: {init: {command: ./verify}}\nsteps: [{command: ./delete}]\n";
    refuses(ImportKind::Dagu, &[(start, "must not run without it")]);
}

/// docs/import.md: in single quotes, versions of Dagu differ: some replace the variables of the DAG there.
#[test]
fn variables_of_dagu_in_single_quotes_are_refused() {
    let dag = |head: &str, text: &str| format!("{head}\nsteps:\n  - id: a\n    command: |\n      {text}\n");
    let rows = [
        ("params: DAY=1", "curl -d '{\"day\": \"${DAY}\"}' localhost"),
        ("env: [DAY: 1]", "echo 'on $DAY'"),
        ("env: [DAY: \"$HOME/1\"]", "echo 'in $DAY'"),
        ("params: 1", "awk '{print $1}' a"),
        ("params: DAY=1", "cat <<'X'\n      $DAY\n      X"),
    ]
    .map(|(head, text)| dag(head, text));
    refuses(ImportKind::Dagu, &rows.each_ref().map(|text| (text.as_str(), "is in single quotes")));
    for text in ["awk '{print $1, $NF}' a", "echo \"$DAY 'a' it's\"", "echo 'a'\"$DAY\"'b'", "echo '$DAYS'"] {
        assert_eq!(steps(&one(ImportKind::Dagu, &dag("params: DAY=1", text))), 1, "{text}");
    }
}

#[test]
fn variables_with_a_value_are_kept() {
    let secret = "{run: gh issue list --token $GITHUB_TOKEN, env: {GITHUB_TOKEN: \"${{ secrets.GITHUB_TOKEN }}\"}}";
    for text in
        [plain_job(secret), job("{run: ./tool $COMMIT, env: {COMMIT: abc}}"), job("run: echo a | grep --COMMIT x")]
    {
        assert_eq!(steps(&one(ImportKind::Actions, &text)), 1, "{text}");
    }
}

#[test]
fn the_shell_of_a_step_is_that_of_the_workflow() {
    for (step, command) in [
        ("{id: s, run: a; b}", "bash -e steps/s.sh"),
        ("{id: s, run: a | b, shell: bash}", "bash -eo pipefail steps/s.sh"),
        ("{id: s, run: a; b, shell: sh}", "sh -e steps/s.sh"),
    ] {
        let imported = one(ImportKind::Actions, &plain_job(step));
        assert!(file(&imported, "pipeline.yaml").contains(&format!("command: \"{command}\"")), "{imported:#?}");
    }
}

#[test]
fn the_time_limit_of_a_job_is_listed() {
    let imported = one(ImportKind::Actions, "jobs: {a: {timeout-minutes: 5, steps: [{run: make}]}}\n");
    assert_eq!(imported.not_imported[0].what, "`timeout-minutes` of job `a`");
}

#[test]
fn steps_of_dagu_without_the_same_meaning_are_refused() {
    let dag = |step: &str| format!("env:\n  - TODAY: \"`date`\"\nparams: P=\"`id`\" Q=1\nsteps:\n  - {step}\n");
    let rows = [
        ("{command: python3, script: print(1)}", "its command runs its script"),
        ("{script: \"#!/usr/bin/env python3\\nprint(1)\"}", "its program"),
        ("{script: \"#!/bin/bash --rcfile=x\\nls\"}", "its program"),
        ("{run: child}", "may start another DAG"),
        ("{run: jobs/child.yaml}", "may start another DAG"),
        ("{run: ./child.yml}", "may start another DAG"),
        ("{call: child}", "`call` has no equivalent"),
        ("{command: echo $TODAY}", "`TODAY`, whose value has no equivalent"),
        ("{command: \"echo ${P}\"}", "`P`, whose value has no equivalent"),
        ("{command: echo $DAG_RUN_ID}", "`DAG_RUN_ID`"),
        ("{command: \"echo ${a.stdout}\"}", "its expressions"),
        ("{command: ./a, env: [\"A=$OTHER\"]}", "`A` is computed"),
        ("{command: ./a, env: [{A: \"`date`\"}]}", "`A` is computed"),
        ("{command: python3 a.py}", "the variable `P`, which its programs may read"),
        ("{command: ./a}", "the variable `P`"),
        ("{command: ./a, args: [$Q]}", "its argument"),
        ("{command: ./a, dir: $HOME}", "its directory"),
        ("{command: ./a, dir: ~/x}", "its directory"),
        ("{command: ./a, output: {name: A}}", "its `output`"),
        ("{command: ./a, timeoutSec: $Q}", "its time limit"),
        ("{command: ./a, timeoutSec: 5, retryPolicy: {limit: 1, intervalSec: 1}}", "one attempt"),
        ("{command: ./a, retryPolicy: {intervalSec: 1}}", "`limit`"),
        ("{command: ./a, retryPolicy: {limit: $Q, intervalSec: 1}}", "`limit`"),
        ("{command: ./a, retryPolicy: {limit: 1, exitCode: [0]}}", "`exit_code`"),
        ("{command: ./a, retryPolicy: {limit: 1, backoff: 0.5}}", "`backoff`"),
        ("{command: ./a, retryPolicy: {limit: 500, intervalSec: 9, backoff: 9}}", "`backoff`"),
        ("{command: ./a, retryPolicy: {limit: 1, jitter: 1}}", "`jitter`"),
    ];
    let rows: Vec<(String, &str)> = rows.iter().map(|(step, reason)| (dag(step), *reason)).collect();
    refuses(ImportKind::Dagu, &rows.iter().map(|(text, reason)| (text.as_str(), *reason)).collect::<Vec<_>>());
}

/// docs/import.md: a text is a step, and each command of a list has its own shell.
#[test]
fn texts_and_lists_of_commands_are_steps_of_dagu() {
    let imported =
        one(ImportKind::Dagu, "type: chain\nsteps:\n  - echo one\n  - {id: b, run: [\"cd /\", \"\", make]}\n");
    assert_eq!((steps(&imported), imported.not_imported.len()), (2, 0), "{imported:#?}");
    assert!(file(&imported, "steps/step_1.sh").ends_with("\necho one\n"), "{imported:#?}");
    assert!(file(&imported, "steps/b.sh").ends_with("\n(\ncd /\n)\n(\nmake\n)\n"), "{imported:#?}");
    let rows = ["{run: [{a: b}]}", "{run: []}", "{run: [\"\"]}", "{command: []}", "{command: [{a: b}]}"];
    let rows = rows.map(|step| format!("steps: [{step}]\n"));
    refuses(ImportKind::Dagu, &rows.each_ref().map(|text| (text.as_str(), "it has no shell command")));
}

/// docs/import.md: versions of Dagu read a list in `command` as one command with its arguments, or as several commands. It is
/// imported if only one reading is possible.
#[test]
fn a_list_in_command_of_dagu_is_imported_if_it_is_plain() {
    let imported = one(ImportKind::Dagu, "steps: [{id: a, command: [echo one, echo two]}, {id: b, command: [make]}]\n");
    assert_eq!((steps(&imported), imported.not_imported.len()), (2, 0), "{imported:#?}");
    assert!(file(&imported, "steps/a.sh").ends_with("\n(\necho one\n)\n(\necho two\n)\n"), "{imported:#?}");
    let rows = ["{command: [echo, a b]}", "{command: [python3 -c, \"print(1)\"]}", "{command: [make, make test]}"];
    let rows = rows.map(|step| format!("steps: [{step}]\n"));
    refuses(
        ImportKind::Dagu,
        &rows.each_ref().map(|text| (text.as_str(), "is ambiguous: one command with arguments, or several commands")),
    );
}

/// docs/import.md: parameters with types are parameters with the same types.
#[test]
fn parameters_of_dagu_have_their_types() {
    let dag = |params: &str| format!("params:\n  - {params}\nsteps: [{{id: a, command: ./a $DAY}}]\n");
    for (params, declared) in [
        (
            "{name: DAY, type: integer, default: \"3\", minimum: 1, maximum: 9}",
            "type: integer minimum: 1 maximum: 9 default: 3",
        ),
        ("{name: DAY, type: boolean, default: true}", "type: boolean default: true"),
        ("{name: DAY, type: number, required: true}", "type: number steps:"),
        ("{name: DAY, type: integer}", "type: integer steps:"),
        ("{name: DAY, description: Which}", "type: string description: Which default: \"\""),
        ("{name: DAY, enum: [1, 2]}", "type: string enum: - \"1\" - \"2\" steps:"),
        ("{name: DAY, pattern: \"^a\", default: ab, max_length: 3}", "pattern: ^a maxLength: 3 default: ab"),
    ] {
        let imported = one(ImportKind::Dagu, &dag(params));
        assert_eq!(imported.not_imported, [], "{params}");
        let words =
            file(&imported, "pipeline.yaml").split_whitespace().collect::<Vec<_>>().join(" ").replace("\"^a\"", "^a");
        assert!(words.contains(&format!("input: day: {declared}")) || words.contains(declared), "{params}: {words}");
        assert!(words.contains("DAY: \"{{input.day}}\""), "{words}");
    }
    let rows = [
        ("{name: DAY, type: object}", "the type of the parameter `DAY`"),
        ("{name: DAY, type: integer, default: x}", "the default of the parameter `DAY` is not valid"),
        ("{name: DAY, enum: [a], default: b}", "the default of the parameter `DAY` is not valid"),
        ("{name: DAY, pattern: \"(\"}", "`pattern` of the parameter `DAY`"),
        ("{name: DAY, format: date}", "`format` of the parameter `DAY`"),
        ("{a: 1, b: 2}", "a parameter with settings must have a `name`"),
    ];
    let rows: Vec<(String, &str)> = rows.iter().map(|(params, reason)| (dag(params), *reason)).collect();
    refuses(ImportKind::Dagu, &rows.iter().map(|(text, reason)| (text.as_str(), *reason)).collect::<Vec<_>>());
    let rows = [
        "{schema: params.json}",
        "{schema: params.json, values: {a: 1}}",
        "{type: object, properties: {a: {type: string}}}",
    ];
    let rows = rows.map(|params| format!("params: {params}\nsteps: [{{command: make}}]\n"));
    refuses(ImportKind::Dagu, &rows.each_ref().map(|text| (text.as_str(), "a schema or other settings")));
}

/// docs/import.md: variables that are composed of known ones have the same values here.
#[test]
fn variables_of_dagu_that_are_made_of_others_have_values() {
    let text = "params: DAY=1\nenv: [OUT: /tmp, \"FULL=${OUT}/$DAY\", DIR: \"${HOME}/data\", SUB: \"$DIR/$DAY\"]\n\
        steps: [{id: a, command: python3 show.py, env: [\"FILE=${FULL}.csv\"]}]\n";
    let imported = one(ImportKind::Dagu, text);
    assert_eq!(imported.not_imported, []);
    let words = file(&imported, "pipeline.yaml").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("FULL: \"/tmp/{{input.day}}\" FILE: \"/tmp/{{input.day}}.csv\""), "{words}");
    let script = file(&imported, "steps/a.sh");
    assert!(
        script.ends_with("export DIR=\"${HOME}\"'/data'\nexport SUB=\"${DIR}\"'/'\"${DAY}\"\npython3 show.py\n"),
        "{script}"
    );
    // A program that reads no variable without naming it runs without one.
    let imported = one(ImportKind::Dagu, "env: [NOW: \"`date`\"]\nsteps: [{id: a, command: echo a | tr a b}]\n");
    assert_eq!(steps(&imported), 1, "{imported:#?}");
}

/// A DAG that another one starts is a pipeline of its own, and is imported before it.
#[test]
fn dags_that_start_each_other_are_pipelines_in_pipelines() {
    let of = |files: &[(&str, &str)]| {
        let source = |(path, text): &(&str, &str)| Source { path: (*path).to_owned(), text: Some((*text).to_owned()) };
        let sources: Vec<Source> = files.iter().map(source).collect();
        let imported = import(ImportKind::Dagu, &sources);
        shown(&imported, &sources);
        imported
    };
    let child = ("d/child.yaml", "params: TARGET=staging DAY=1\nsteps: [{command: \"./deploy $TARGET $DAY\"}]\n");
    let parent = "steps:\n  - {name: build, command: make, output: TAG}\n  - {name: go, run: child.yaml, depends: build, \
        params: \"TARGET=prod DAY=${TAG}\", timeout_sec: 60}\n  - {name: after, command: ./tell, depends: go}\n";
    for called in ["run: child.yaml", "run: ./child.yaml", "run: child", "call: child"] {
        let imported = of(&[("d/a.yaml", &parent.replace("run: child.yaml", called)), child]);
        assert_eq!(imported.not_imported, [], "{called}");
        let names: Vec<&str> = imported.pipelines.iter().map(|pipeline| pipeline.name.as_str()).collect();
        assert_eq!((names, steps(&imported)), (vec!["child", "a"], 4));
        let text = file(&imported, "a/pipeline.yaml");
        for part in ["pipeline: child", "target: prod", "day: \"{{build.output}}\"", "timeout: \"60s\""] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
    let partly = ("d/child.yaml", "steps: [{command: make}, {command: make, preconditions: [{condition: a}]}]\n");
    let typed = ("d/child.yaml", "params: [{name: N, type: integer}]\nsteps: [{command: \"./deploy $N\"}]\n");
    let itself = ("d/child.yaml", "steps: [{command: make}, {name: s, run: a}]\n");
    let go = |step: &str| format!("steps: [{{name: go, {step}}}, {{name: after, command: ./tell, depends: go}}]\n");
    for (step, other, reason) in [
        ("run: child.yaml", partly, "`d/child.yaml`, which was not imported completely"),
        ("run: child.yaml", itself, "`d/child.yaml`, which was not imported completely"),
        ("run: child.yaml", ("e/child.yaml", child.1), "no DAG with this name is in the same directory"),
        ("call: child, params: C=1", child, "`d/child.yaml` has no parameter `c`"),
        ("run: child, params: DAY=$NOW", child, "parameter `day` is computed"),
        ("run: child, params: N=1", typed, "the parameter `n` of `d/child.yaml` is not a text"),
        ("run: child, output: OUT", child, "`output` of a step that starts a DAG"),
        ("run: child, retry_policy: {limit: 1, interval_sec: 1}", child, "`retry_policy` of a step that starts a DAG"),
    ] {
        let imported = of(&[("d/a.yaml", &go(step)), other]);
        let [first, second, ..] = &imported.not_imported[..] else { panic!("{imported:#?}") };
        assert!(first.reason.contains(reason) && first.file == "d/a.yaml", "{step}: {first:?}");
        assert_eq!(second.reason, "it depends on `go`, which was not imported");
    }
}

#[test]
fn dags_that_must_not_run_without_a_field_are_refused() {
    let steps = "steps: [{command: make}]\n";
    for head in ["preconditions: [{condition: a}]", "precondition: a", "container: {image: x}", "dotenv: a", "ssh: {}"]
    {
        refuses(ImportKind::Dagu, &[(&format!("{head}\n{steps}"), "must not run without it")]);
    }
    refuses(ImportKind::Dagu, &[(&format!("type: agent\n{steps}"), "no equivalent")]);
    let imported = one(ImportKind::Dagu, &format!("schedule: 0 2 * * *\nmailOn: {{failure: true}}\n{steps}"));
    let reasons: Vec<&str> = imported.not_imported.iter().map(|finding| finding.reason.as_str()).collect();
    assert_eq!(reasons, ["declare it in `etude.yaml` under `schedules`", "etude has no equivalent"]);
}

#[test]
fn retry_policies_have_exact_equivalents() {
    for (policy, expected) in [
        ("{limit: 3, intervalSec: 10}", "max: 3 backoff: \"10s\" factor: 1 jitter: false"),
        ("{limit: 1, interval_sec: 90}", "max: 1 backoff: \"90s\" factor: 1 jitter: false max_backoff: \"90s\""),
        ("{limit: 2, intervalSec: 5, exitCode: [1, 75]}", "jitter: false \"on\": - 1 - 75"),
        ("{limit: 2, intervalSec: 2, backoff: true}", "backoff: \"2s\" factor: 2.0 jitter: false"),
        ("{limit: 5, intervalSec: 9, backoff: 2}", "factor: 2.0 jitter: false max_backoff: \"144s\""),
        ("{limit: 5, intervalSec: 9, backoff: 2, maxIntervalSec: 20}", "jitter: false max_backoff: \"20s\""),
        ("{limit: 5, intervalSec: 9, maxIntervalSec: 5}", "backoff: \"9s\" factor: 1 jitter: false"),
    ] {
        let imported = one(ImportKind::Dagu, &format!("steps: [{{command: make, retryPolicy: {policy}}}]\n"));
        let words: Vec<&str> = file(&imported, "pipeline.yaml").split_whitespace().collect();
        assert!(words.join(" ").ends_with(expected), "{policy}: {}", words.join(" "));
    }
}

#[test]
fn constants_and_parameters_reach_every_step_of_a_dag() {
    let text = "params: DAY=\"last week\" five\nenv: [A=1, {B: 2}]\nworking_dir: /srv/app\nsteps:\n  - command: ./report.py\n    dir: jobs\n    env: [C=3, {D: 4}]\n  - script: |\n      #!/bin/bash -u\n      echo $2\n    dir: /tmp\n";
    let imported = one(ImportKind::Dagu, text);
    let words = file(&imported, "pipeline.yaml").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("default: \"last week\""), "{words}");
    assert!(words.contains("env: DAY: \"{{input.day}}\" A: \"1\" B: \"2\" C: \"3\" D: \"4\""), "{words}");
    assert!(words.contains("command: \"bash -u steps/step_2.sh\""), "{words}");
    assert!(words.ends_with("argument_2: \"{{input.argument_2}}\" A: \"1\" B: \"2\""), "{words}");
    assert!(file(&imported, "step_1.sh").starts_with("cd '/srv/app/jobs' || exit 1\n"), "{imported:#?}");
    assert!(file(&imported, "step_2.sh").starts_with("cd '/tmp' || exit 1\n"), "{imported:#?}");
}

#[test]
fn steps_of_lobster_without_the_same_meaning_are_refused() {
    let flow = |step: &str| format!("args: {{tag: {{default: a}}}}\nsteps:\n  - {step}\n");
    let rows = [
        ("{id: a, approval: {prompt: Go?, required_approver: bob}}", "`required_approver` of its approval"),
        ("{id: a, approval: {prompt: Go?, require_different_approver: true}}", "`require_different_approver`"),
        ("{id: a, command: ls, approval: {initiated_by: bob}}", "`initiated_by`"),
        ("{id: a, command: ls, for_each: $b.json}", "`for_each`"),
        ("{id: a, command: ls, on_error: continue}", "`on_error`"),
        ("{id: a, command: ls, retry: {max: 2}}", "`retry`"),
        ("{id: a, command: ls, timeout_ms: 5}", "`timeout_ms`"),
        ("{id: a, command: echo $LOBSTER_ARGS_JSON}", "`LOBSTER_ARGS_JSON`"),
        ("{id: a, command: echo $a.approved}", "`$a.approved` has no equivalent"),
        ("{id: a, command: ls, env: {A: \"x-${tag}\"}}", "its variable `A`"),
        ("{id: a, command: ls, cwd: \"${tag}\"}", "its directory"),
        ("{id: a, command: cat, stdin: \"x $tag\"}", "its stdin"),
        ("{id: a, command: cat, stdin: {a: 1}}", "its `stdin`"),
        ("{id: a, command: \"cat <<'X'\\n${tag}\\nX\"}", "`${tag}` is in a here-document without expansion"),
    ];
    let rows: Vec<(String, &str)> = rows.iter().map(|(step, reason)| (flow(step), *reason)).collect();
    refuses(ImportKind::Lobster, &rows.iter().map(|(text, reason)| (text.as_str(), *reason)).collect::<Vec<_>>());
    refuses(
        ImportKind::Lobster,
        &[("cost_limit: {max_usd: 1}\nsteps: [{id: a, command: ls}]\n", "must not run without it")],
    );
}

/// A denial ends a workflow of Lobster, so nothing after an approval may run without it.
#[test]
fn approvals_guard_the_steps_after_them() {
    let imported = one(ImportKind::Lobster, "steps: [{id: a, approval: Go?}, {id: b, command: ls}]\n");
    assert_eq!(steps(&imported), 2);
    assert!(!file(&imported, "pipeline.yaml").contains("on_deny"), "{imported:#?}");
    let lost = "steps: [{id: a, approval: {initiated_by: bob}}, {id: b, command: ls}]\n";
    refuses(ImportKind::Lobster, &[(lost, "it follows the approval `a`")]);
}

/// docs/import.md: a lost step of Lobster may guard the others, as a lost approval does. A program may read a variable that
/// has no value.
#[test]
fn nothing_of_lobster_runs_after_a_lost_step() {
    for lost in [
        "{id: a, command: ./verify, on_error: continue}",
        "{id: a, pipeline: verify}",
        "verify",
        "{id: a, command: ls, when: $x.ok}",
    ] {
        let text = format!(
            "steps:\n  - {{id: first, command: ls}}\n  - {lost}\n  - {{id: b, command: ./deploy}}\n  - {{id: c, command: ls}}\n"
        );
        let imported = one(ImportKind::Lobster, &text);
        assert_eq!(steps(&imported), 1, "{imported:#?}");
        let follow = imported.not_imported.iter().filter(|one| one.reason.starts_with("it follows "));
        assert_eq!(follow.count(), 2, "{imported:#?}");
    }
    let imported =
        one(ImportKind::Lobster, "env: {NOW: $x}\nsteps: [{id: a, command: echo a}, {id: b, command: ./deploy}]\n");
    assert_eq!(steps(&imported), 1, "{imported:#?}");
    let last = imported.not_imported.last().expect("a finding");
    assert!(last.reason.starts_with("the variable `NOW`, which its programs may read"), "{last:?}");
}

/// docs/import.md: a value outside of quotes is divided, as the shell does with the text that GitHub inserts.
#[test]
fn values_of_actions_are_divided_as_text_is() {
    let text = "on: {workflow_dispatch: {inputs: {args: {}}}}\njobs: {a: {steps: [{run: \"t ${{ inputs.args }} \\\"${{ inputs.args }}\\\" '${{ inputs.args }}'\"}]}}\n";
    let imported = one(ImportKind::Actions, text);
    let script = imported.files.iter().find(|file| file.path.ends_with(".sh")).expect("a script");
    assert!(script.text.ends_with("t ${INPUT_ARGS} \"${INPUT_ARGS}\" ''\"$INPUT_ARGS\"''\n"), "{script:?}");
}

/// docs/import.md: a variable stands for an expression only if a shell reads the same text.
#[test]
fn expressions_of_actions_have_the_value_that_the_shell_would_read() {
    let flow = |env: &str, step: &str| {
        format!(
            "on: {{workflow_dispatch: {{inputs: {{a: {{}}}}}}}}\nenv: {env}\njobs:\n  a:\n    steps:\n      - {step}\n"
        )
    };
    let other = "have different values";
    let shell = "has a value with characters that the shell interprets";
    for (env, step, reason) in [
        ("{F: \"-D'a b'\"}", "run: make ${{ env.F }}", shell),
        ("{F: ~/bin}", "run: ls ${{ env.F }}", shell),
        ("{F: $HOME/bin}", "run: ls \"${{ env.F }}\"", shell),
        ("{F: a}", "run: F=b; echo ${{ env.F }}", other),
        ("{F: a}", "run: for F in 1 2; do echo ${{ env.F }}; done", other),
        ("{T: fixed}", "run: echo ${{ secrets.T }} $T", other),
        ("{INPUT_A: fixed}", "run: echo ${{ inputs.a }} $INPUT_A", other),
        ("{F: a}", "{run: make, env: \"${{ fromJSON(inputs.a) }}\"}", "its variable `env`: it is not a mapping"),
        ("{F: a}", "\"run\": \"echo ${{ a &&\\n b }}\"", "has no equivalent"),
    ] {
        refuses(ImportKind::Actions, &[(&flow(env, step), reason)]);
    }
    for (env, step) in [
        ("{F: \"-a --b=c\"}", "run: make ${{ env.F }}"),
        ("{F: \"a 'b' (c)\"}", "run: echo \"${{ env.F }}\" $F"),
        ("{INPUT_A: \"${{ inputs.a }}\"}", "run: echo ${{ inputs.a }}"),
        ("{T: \"${{ secrets.T }}\"}", "run: T=${{ secrets.T }} make"),
    ] {
        assert_eq!(steps(&one(ImportKind::Actions, &flow(env, step))), 1, "{env} {step}");
    }
    refuses(
        ImportKind::Actions,
        &[(&flow("\"${{ a }}\"", "run: make"), "the variable `env`, which its programs may read")],
    );
}

/// docs/import.md: parts of a file in an unknown form are listed.
#[test]
fn what_is_not_where_it_belongs_is_listed() {
    for (kind, text, line, what) in [
        (ImportKind::Actions, "on: push\njobs: [x]\n", 2, "`jobs`"),
        (ImportKind::Actions, "on: workflow_dispatch\njobs: {}\n", 2, "`jobs`"),
        (ImportKind::Actions, "on: workflow_dispatch\n", 1, "the workflow"),
        (ImportKind::Dagu, "name: a\nsteps: {a: {command: ls}}\n", 2, "`steps`"),
    ] {
        let found = one(kind, text).not_imported;
        assert!(found.iter().any(|found| (found.line, found.what.as_str()) == (line, what)), "{text}\n{found:?}");
    }
}

/// docs/import.md: commands and skills with unreadable text are listed, and so are folders of skills without `SKILL.md`.
#[test]
fn unreadable_commands_and_lost_skills_are_listed() {
    let source =
        |(path, is_text): (&str, bool)| Source { path: path.to_owned(), text: is_text.then(|| "x\n".to_owned()) };
    let paths = [
        ("p/.claude/commands/a.md", false),
        ("p/.claude/skills/b/SKILL.md", false),
        ("p/.claude/skills/b/c.png", false),
        ("p/.claude/skills/d/e.md", true),
        ("p/.claude/skills/d/f.py", true),
        ("p/.claude/skills/README.md", true),
    ];
    let found = import(ImportKind::ClaudeCode, &paths.map(source)).not_imported;
    let found: Vec<(&str, &str)> = found.iter().map(|found| (found.file.as_str(), found.what.as_str())).collect();
    let expected = [
        ("p/.claude/commands/a.md", "the file"),
        ("p/.claude/skills/b/SKILL.md", "the file"),
        ("p/.claude/skills/d", "the folder"),
        ("p/.claude/skills/README.md", "the file"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn arguments_of_lobster_keep_their_quotes() {
    let text = "args: {my-tag: a}\nenv: {TAG: \"${my-tag}\"}\nsteps: [{id: a, command: \"echo '${my-tag}' ${my-tag}; ls x.$HOME.txt\"}]\n";
    let imported = one(ImportKind::Lobster, text);
    let script = file(&imported, "steps/a.sh");
    assert!(script.ends_with("echo ''\"$LOBSTER_ARG_MY_TAG\"'' ${LOBSTER_ARG_MY_TAG}; ls x.$HOME.txt\n"), "{script}");
    let definition = file(&imported, "pipeline.yaml");
    assert!(definition.contains("LOBSTER_ARG_MY_TAG: \"{{input.my_tag}}\""), "{definition}");
    assert!(definition.contains("TAG: \"{{input.my_tag}}\""), "{definition}");
    assert!(definition.contains("command: \"sh steps/a.sh\""), "{definition}");
}

#[test]
fn commands_of_claude_code_that_read_arguments_are_refused() {
    let lines = [
        "gh view $ARGUMENTS",
        "gh view \"${ARGUMENTS}\"",
        "gh view ${ARGUMENTS:-1}",
        "gh view $1",
        "echo \"${2}\"",
        "gh view $ARGUMENTS[0]",
        "awk '{print $9}'",
        "ls ${CLAUDE_PROJECT_DIR}",
        "gh view $issue",
    ];
    for line in lines {
        let imported = one(ImportKind::ClaudeCode, &format!("---\narguments: [issue]\n---\nLook: !`{line}`\n"));
        assert_eq!(steps(&imported), 1, "{line}\n{imported:#?}");
        let what = format!("command `{line}`");
        assert!(imported.not_imported.iter().any(|finding| finding.what == what && finding.line == 4), "{imported:#?}");
        assert!(file(&imported, "SKILL.md").contains("Look: (not available: the output of"), "{imported:#?}");
    }
    let imported = one(ImportKind::ClaudeCode, "Look: !`a; b {{x}}` and x!`c`\n");
    assert_eq!(steps(&imported), 2);
    assert!(file(&imported, "steps/context.sh").ends_with("\na; b {{x}}\n"), "{imported:#?}");
    assert!(file(&imported, "SKILL.md").contains("and x!`c`"), "{imported:#?}");
}

#[test]
fn arguments_that_overlap_are_refused() {
    for text in ["Do $ARGUMENTS, first $1.\n", "From $1 to $ARGUMENTS[1].\n", "$ARGUMENTS[0] of ${ARGUMENTS}\n"] {
        refuses(ImportKind::ClaudeCode, &[(text, "overlap")]);
    }
    let many: String = (0..30).map(|n| format!("$ARGUMENTS[{n}] ")).collect();
    refuses(ImportKind::ClaudeCode, &[(&many, "more than 20 arguments")]);
    for text in ["Fix $ARGUMENTS[0] and $ARGUMENTS[0].\n", "Fix $ARGUMENTS and ${ARGUMENTS}.\n"] {
        let imported = one(ImportKind::ClaudeCode, text);
        let skill = file(&imported, "SKILL.md");
        assert!(skill.contains("Fix (the arguments in the request) and (the arguments in the request)."), "{skill}");
    }
}

/// docs/import.md: several arguments are parameters, which have the names of the hint.
#[test]
fn several_arguments_are_parameters() {
    let hint = "---\nargument-hint: [pr-number] [priority]\n---\n";
    let list = "---\nargument-hint: [PR number, priority]\n---\n";
    let other = "---\nargument-hint: add [id] | remove [id]\n---\n";
    for (text, first, second) in [
        (format!("{hint}Review $1 as $2, $2.\n"), "pr_number", "priority"),
        (format!("{list}Review $ARGUMENTS[0] as $ARGUMENTS[1].\n"), "pr_number", "priority"),
        (format!("{hint}Review $0 as $1.\n"), "pr_number", "priority"),
        ("---\nargument-hint: <to> <by>\n---\nReview $1 as $2.\n".to_owned(), "to", "by"),
        (format!("{hint}Review $1 as $3.\n"), "argument_1", "argument_3"),
        (format!("{other}Review $1 as $2.\n"), "argument_1", "argument_2"),
        ("Review $1 as $2.\n".to_owned(), "argument_1", "argument_2"),
    ] {
        let imported = one(ImportKind::ClaudeCode, &text);
        let (skill, pipeline) = (file(&imported, "SKILL.md"), file(&imported, "pipeline.yaml"));
        let said =
            format!("Review (the argument `{first}` in the request) as (the argument `{second}` in the request)");
        assert!(skill.contains(&said), "{text}\n{skill}");
        assert!(pipeline.contains(&format!("  {second}:\n    type: string\n    default: \"\"")), "{text}\n{pipeline}");
        let request = format!("- {first}: {{{{input.{first}}}}}\n      - {second}: {{{{input.{second}}}}}\n");
        assert!(pipeline.contains(&request), "{text}\n{pipeline}");
    }
}

/// docs/import.md: frontmatter in the usual form of commands need not be YAML.
#[test]
fn frontmatter_that_is_not_yaml_is_read_by_lines() {
    for (text, shown) in [
        ("argument-hint: [pr-number] [priority]\ndescription: Do it", "Do it"),
        ("description: Review: security first", "Review: security first"),
        ("allowed-tools: *\ndescription: All", "All"),
    ] {
        let imported = one(ImportKind::ClaudeCode, &format!("---\n{text}\nhooks: x\n---\nGo.\n"));
        assert_eq!(steps(&imported), 1, "{text}\n{imported:#?}");
        assert!(file(&imported, "pipeline.yaml").contains(shown), "{text}\n{imported:#?}");
        let [first, second] = &imported.not_imported[..] else { panic!("{imported:#?}") };
        assert!(first.reason.starts_with("each line was parsed as `name: text`"), "{first:?}");
        assert_eq!((second.what.as_str(), second.line), ("`hooks`", 2 + u32::from(text.contains('\n')) + 1));
    }
}

/// docs/import.md: a price is not an argument, and stays as it is.
#[test]
fn prices_are_no_arguments() {
    let imported = one(ImportKind::ClaudeCode, "Fix $1 for $10, $1,000 or $2.50.\n");
    assert!(file(&imported, "SKILL.md").contains("Fix (the arguments in the request) for $10, $1,000 or $2.50."));
    let imported = one(ImportKind::ClaudeCode, "It costs $50.\n");
    assert!(!file(&imported, "pipeline.yaml").contains("arguments"), "{imported:#?}");
}

/// docs/import.md: a file that Claude Code would put into the prompt is listed with its line; text that only looks like one
/// is not.
#[test]
fn files_that_a_command_mentions_are_listed() {
    let text = "Review @src/main.rs @README.md and (@docs/a.b/).\nSee @src/main.rs, me@x.org, @media, `@a/b`.\n\
                ```py\n@app/x\n```\n@app.route(\"/\")\nThen @notes/todo.\n";
    let found: Vec<(u32, String)> =
        one(ImportKind::ClaudeCode, text).not_imported.into_iter().map(|found| (found.line, found.what)).collect();
    let expected = [(1, "`@src/main.rs`"), (1, "`@README.md`"), (1, "`@docs/a.b/`"), (7, "`@notes/todo`")];
    assert_eq!(found, expected.map(|(line, what)| (line, what.to_owned())));
}

/// docs/import.md: files of the project around commands are counted, those of Claude Code are listed one by one.
#[test]
fn unrelated_files_are_one_finding() {
    let source = |path: &str| Source { path: path.to_owned(), text: Some("x\n".to_owned()) };
    let paths = ["./LICENSE", "./agents/a.md", "./commands/fix.md", "./docs/a.md", "./CLAUDE.md", "./package.json"];
    let found = import(ImportKind::ClaudeCode, &paths.map(source)).not_imported;
    let found: Vec<(&str, &str)> = found.iter().map(|found| (found.file.as_str(), found.what.as_str())).collect();
    let expected =
        [("./agents/a.md", "the file"), ("./CLAUDE.md", "the file"), ("./LICENSE", "this file and 2 others")];
    assert_eq!(found, expected);
}

#[test]
fn skills_with_arguments_and_commands_are_listed() {
    let text = "---\nname: a\ndescription: Does a.\n---\n\nFix $ARGUMENTS.\n\nNow: !`git status`\n\n```!\nls\n```\nSee ${CLAUDE_SESSION_ID}.\n";
    let sources = [Source { path: "skills/a/SKILL.md".to_owned(), text: Some(text.to_owned()) }];
    let imported = import(ImportKind::ClaudeCode, &sources);
    shown(&imported, &sources);
    let found: Vec<_> = imported.not_imported.iter().map(|found| (found.line, found.what.as_str())).collect();
    let expected =
        [(6, "`$ARGUMENTS`"), (8, "command `git status`"), (10, "a block of commands"), (13, "`${CLAUDE_SESSION_ID}`")];
    assert_eq!(found, expected);
}

#[test]
fn texts_are_commands_only_below_their_folders() {
    assert_eq!(ImportKind::detect("dags/README.md", "# DAGs\n"), None);
    assert_eq!(ImportKind::detect("README.md", "# DAGs\n"), None);
    assert_eq!(ImportKind::detect("x/commands/git/fix.md", "Fix it.\n"), Some(ImportKind::ClaudeCode));
    assert_eq!(ImportKind::detect("skills/a/SKILL.md", "Do it.\n"), Some(ImportKind::ClaudeCode));
}

/// Runs the scripts of imported steps: the first error ends them, and all of a text runs in its directory.
#[test]
fn scripts_run_as_they_did() {
    let root = std::env::temp_dir().join(format!("etude-import-{}", std::process::id()));
    std::fs::create_dir_all(root.join("caller/sub")).expect("folders");
    std::fs::create_dir_all(root.join("app/steps")).expect("folders");
    // Runs the last step; `output` is the output of the steps before it.
    let run_after = |output: &str, kind: ImportKind, text: &str| {
        let imported = one(kind, text);
        let definition = file(&imported, "pipeline.yaml");
        let mut lines = definition.lines().filter_map(|line| line.trim().strip_prefix("command: "));
        let command: String = serde_json::from_str(lines.next_back().expect("a command")).expect("a text in quotes");
        let script = imported.files.iter().rfind(|file| file.path.ends_with(".sh")).expect("a script");
        let name = script.path.rsplit('/').next().expect("a name");
        std::fs::write(root.join("app/steps").join(name), &script.text).expect("a script");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &command]).current_dir(root.join("app")).env("ETUDE_CALLER_DIR", root.join("caller"));
        let output = shell.env("STDIN_TEXT", "text").env("OUTPUT_A", output).output().expect("a shell");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
    };
    let run = |kind: ImportKind, text: &str| run_after("", kind, text);
    let sub = std::fs::canonicalize(root.join("caller/sub")).expect("a path").display().to_string();
    let job = |step: &str| format!("jobs: {{a: {{steps: [{step}]}}}}\n");
    assert_eq!(run(ImportKind::Actions, &job("{run: false; echo b}")), (false, String::new()));
    assert_eq!(
        run(ImportKind::Actions, &job("{run: \"[[ a == a ]] && cat; false | true; echo b\"}")),
        (true, "b".to_owned())
    );
    assert!(!run(ImportKind::Actions, &job("{run: false | true; echo b, shell: bash}")).0);
    assert_eq!(run(ImportKind::Actions, &job("{run: true; pwd -P, working-directory: sub}")), (true, sub));
    assert_eq!(run(ImportKind::Actions, &job("{run: true; pwd, working-directory: /}")), (true, "/".to_owned()));
    assert!(!run(ImportKind::Actions, &job("{run: pwd, working-directory: missing}")).0);
    assert_eq!(run(ImportKind::Dagu, "steps: [{command: false; echo b}]\n"), (false, String::new()));
    // The value of a variable has no blanks and line breaks around it.
    let output = |text: &str| run(ImportKind::Dagu, &format!("steps:\n  - output: V\n    command: {text}\n"));
    assert_eq!(output("printf '\\n 1  2 \\n\\n'"), (true, "1  2".to_owned()));
    assert_eq!(output("printf ' \\n'"), (true, String::new()));
    assert_eq!(output("echo a; false; echo b"), (false, String::new()));
    assert_eq!(run(ImportKind::Lobster, "steps: [{id: a, command: false; echo b}]\n"), (true, "b".to_owned()));
    assert_eq!(run(ImportKind::Lobster, "steps: [{id: a, command: cat, stdin: text}]\n"), (true, "text".to_owned()));
    // The output is without its last line break, which the next step gets.
    let chain = |stdin: &str| {
        format!(
            "steps: [{{id: a, command: ls}}, {{id: b, command: while read -r l; do printf '(%s)' \"$l\"; done, stdin: {stdin}}}]\n"
        )
    };
    for (output, lines) in [("one\ntwo %s", "(one)(two %s)"), ("a\n", "(a)()"), ("", "")] {
        assert_eq!(run_after(output, ImportKind::Lobster, &chain("$a.stdout")), (true, lines.to_owned()));
    }
    assert_eq!(run_after("[1]", ImportKind::Lobster, &chain("$a.json")), (true, String::new()));
    // Lobster puts an output into the text, so that the shell divides it outside of quotes.
    let command = |text: &str| format!("steps: [{{id: a, command: ls}}, {{id: b, command: {text:?}}}]\n");
    let words = command("printf '(%s)' $a.stdout \"$a.stdout\" '$a.stdout'");
    assert_eq!(run_after("x y", ImportKind::Lobster, &words), (true, "(x)(y)(x y)(x y)".to_owned()));
    assert_eq!(run(ImportKind::ClaudeCode, "!`false; echo b`\n"), (true, "b".to_owned()));
    std::fs::remove_dir_all(&root).expect("removal");
}

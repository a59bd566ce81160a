//! Commands for authors: check, explain, schema, list, graph, new, completions, man, help.

use serde_json::{Value, json};

use crate::test::Test;

/// The complete top level of help.
#[test]
fn the_top_level_of_help() {
    Test::new().run(&["--help"]).exit(0).stderr("").stdout(
        r#"
Durable pipelines for agents: script the steps you know, delegate the rest to a model

Usage: etude [OPTIONS] <COMMAND>

Run commands:
  run          Run a pipeline, or route a request to one and run it
  route        Print which pipeline a request matches, and run nothing
  machine      Run and show stage machines
  runs         List, inspect, resume, cancel and prune runs
  learn        Learn from runs in skill mode
  cache        List and remove cached outputs
  approve      Approve a waiting approval
  deny         Deny a waiting approval

Server commands:
  serve        Serve runs over HTTP
  token        Create, list and revoke access tokens of the server
  mcp          Offer pipelines and machines as tools over MCP, on stdin and stdout
  engine       Check and prepare the database that machines share
  push         Keep the app in the database that machines share
  bundles      List and show the apps in the database that machines share
  worker       Drive runs that other machines have submitted to the database
  workers      List the workers and queues of the database that machines share

Authoring commands:
  new          Create an app or add to it
  convert      Convert a skill to an app with pipelines and tests
  import       Import commands, skills and workflows of other programs
  check        Report every error in the app's definitions
  list         List pipelines, machines, skills and applications
  graph        Draw a pipeline or machine as Mermaid, DOT or SVG
  test         Run the app's tests with recorded model responses
  schema       Print a JSON Schema for editors

Agent commands:
  apps         List, show, check and run Agent Applications
  skill        List, show, check and run skills
  trust        Allow agents to read or run a package, a skill or a folder
  untrust      Revoke what `etude trust` allowed
  host         Call the host of a running code tool, from a skill's script
  model        List, download and test models

Other commands:
  doctor       Check the environment and print a fix for each problem
  explain      Explain an error code
  help         Print help for a command
  completions  Print the completion script of a shell
  man          Print the manual page

Options:
  -C, --app <DIR>        The app's directory [default: the nearest app at or above the current
                         directory]
      --server <URL>     Deal with the runs of a server: a URL, or `local` for your own [default:
                         `ETUDE_SERVER`]
      --engine <URL>     Where runs are kept: `embedded`, or the URL of a PostgreSQL database
                         [default: `ETUDE_ENGINE`]
      --config <FILE>    Read this configuration instead of `etude.yaml` and the user's file
      --format <FORMAT>  The output format of stdout: `human`, `json` or `jsonl` [default: human]
  -q, --quiet            Print nothing on stderr but errors
  -v, --verbose...       Print more on stderr: configuration files, models, every step, tool call
                         and invocation
      --no-color         Disable colors; `NO_COLOR` in the environment does the same
  -h, --help             Print help
  -V, --version          Print version

Examples:
  # Create an app to start from
  etude new demo
  # Run a pipeline by name
  etude run -C demo --pipeline hello -i name=Ada
  # Route a request to a pipeline
  etude run -C demo 'say hello to "Ada"'
  # Show what the last run did
  etude runs show latest

Exit status:
  0    success
  1    the run failed
  2    usage error
  3    the definition is invalid
  4    the environment is at fault: missing key, unreachable provider, trust not granted
  5    waiting for an approval
  70   internal error
  130  interrupted"#,
    );
}

/// Every command, flag and argument has a description.
#[test]
fn every_command_says_what_it_is_for() {
    let test = Test::new();
    let commands = |args: &[&str]| -> Vec<String> {
        let help = test.run(args).exit(0).stderr("").out().to_owned();
        let list = help.lines().skip_while(|line| !line.ends_with("ommands:")).take_while(|line| *line != "Options:");
        list.filter(|line| line.starts_with("  "))
            .map(|line| {
                let (name, about) =
                    line.trim().split_once(' ').unwrap_or_else(|| panic!("`{line}` has no description"));
                assert!(about.trim().len() > 8, "`{line}` says too little");
                name.to_owned()
            })
            .collect()
    };
    let top = commands(&["--help"]);
    assert!(top.len() >= 22, "{top:?}");
    for name in &top {
        for inner in commands(&[name, "--help"]) {
            test.run(&[name, &inner, "--help"]).exit(0).stderr("");
        }
    }
}

/// cli: `--version` is the name and a version.
#[test]
fn the_version_is_a_line() {
    Test::new().run(&["--version"]).exit(0).stdout(concat!("etude ", env!("CARGO_PKG_VERSION"))).stderr("");
}

/// A-2.2: `check --format json` has every diagnostic with code, severity, message, file, line, column and hint.
#[test]
fn diagnostics_are_documents() {
    let ran = Test::new()
        .yaml(
            "p",
            "name: p\ndescription: x\nstep: []\nsteps:\n  - {name: a, type: code, command: \"true\", timout: 3}\n",
        )
        .run(&["check", "--format", "json"])
        .exit(3);
    let found = |message: &str, line: u32, column: u32, end: u32, hint: &str| {
        json!({
            "code": "P0201", "severity": "error", "message": message, "file": "pipelines/p/pipeline.yaml", "line": line,
            "column": column, "end_line": line, "end_column": end, "hint": hint,
        })
    };
    ran.stdout_json(json!({"diagnostics": [
        found("unknown field `step` in pipeline `p`", 3, 1, 5, "did you mean `steps`?"),
        found("unknown field `timout` in code step `a`", 5, 44, 50, "did you mean `timeout`?"),
    ]}));
}

/// X-1, X-2, X-3, L-38: `check --portable` names each use of an extension, and does not fail.
#[test]
fn extensions_are_named_and_are_no_errors() {
    let test = Test::new().pipeline("p", |p| {
        p.sh_with("a", "echo '{\"output\":1}'", "timeout: 5s\nenv: {A: b}\nrequire: true")
            .step("name: ok\ntype: approval\nmessage: go?")
    });
    let ran = test.run(&["check", "--portable", "--format", "json"]).exit(0);
    let doc = ran.doc();
    let word = |d: &Value, name: &str| d[name].as_str().unwrap_or("-").to_owned();
    let lines: Vec<String> = doc["diagnostics"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|d| format!("{} {}:{} {}", word(d, "severity"), d["line"], d["column"], word(d, "message")))
        .collect();
    let expected = [
        "note 7:5 code step `a` uses `timeout`, an extension beyond the protocol (X-1)",
        "note 8:5 code step `a` uses `env`, an extension beyond the protocol (X-2)",
        "note 9:5 code step `a` uses `require`, an extension beyond the protocol (L-46)",
        "note 11:11 approval step `ok` uses `type: approval`, an extension beyond the protocol (X-3)",
    ];
    assert_eq!(lines, expected);
    test.run(&["check"]).exit(0).stdout("").stderr("1 pipeline is fine");
}

/// A-2.2: `check` reads the tests of the app, and names files that are ignored because of their extension; so do the commands
/// that would have used them.
#[test]
fn tests_are_checked_and_other_endings_are_named() {
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .file("etude.yml", "router: {mode: llm}\n")
        .file("tests/a.yaml", "pipline: p\n")
        .file("tests/b.yaml", "pipeline: q\n")
        .file("tests/c.yml", "pipeline: p\n");
    let ran = test.run(&["check", "--format", "json"]).exit(3);
    let found: Vec<String> = (0..4)
        .map(|at| {
            let word =
                |name: &str| ran.at(&format!("/diagnostics/{at}/{name}")).as_str().unwrap_or_default().to_owned();
            [word("code"), word("severity"), word("file"), word("hint")].join(" ")
        })
        .collect();
    let expected = [
        "P0502 warning etude.yml rename `etude.yml` to `etude.yaml`",
        "P0201 error tests/a.yaml did you mean `pipeline`?",
        "P0311 error tests/b.yaml ",
        "P0502 warning tests/c.yml rename `tests/c.yml` to `tests/c.yaml`",
    ];
    assert_eq!(found, expected);
    test.run(&["check"]).exit(3).stderr_has("2 errors in `tests/a.yaml`, `tests/b.yaml`; 1 other pipeline is fine");
    test.run(&["check", "p"]).exit(0);
    let warning =
        "warning: `etude.yml` is not read, because its name ends in `.yml`; rename `etude.yml` to `etude.yaml`";
    test.run(&["run", "-p", "p"]).exit(0).stderr_has(warning);
    test.run(&["run", "-p", "p", "--quiet"]).exit(0).stderr("");
    assert!(test.run(&["doctor"]).out().contains("! configuration"));
    test.run(&["test"]).exit(3).stderr_has("rename `tests/c.yml` to `tests/c.yaml`");
}

/// cli: a pipeline of the app can be named by its path; the path of another app's pipeline is refused.
#[test]
fn pipelines_are_named_by_their_paths() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    test.put("elsewhere/pipelines/p/pipeline.yaml", &test.read("app/pipelines/p/pipeline.yaml"));
    for path in ["pipelines/p", "pipelines/p/", "./pipelines/p/pipeline.yaml"] {
        test.run(&["check", path]).exit(0).stderr("1 pipeline is fine");
        test.run(&["run", "-p", path, "--format", "json"]).exit(0).has("/pipeline", "p");
        assert!(test.run(&["graph", path]).exit(0).out().starts_with("flowchart"));
    }
    for args in [&["check", "../elsewhere/pipelines/p"][..], &["run", "-p", "../elsewhere/pipelines/p/pipeline.yaml"]] {
        test.run(args).exit(2).stderr_has("is not in the app");
    }
}

/// cli: listings fit the width of the line; `--verbose` shows full descriptions.
#[test]
fn listings_fit_the_line() {
    let long = "words ".repeat(80);
    let head = format!("description: {long}");
    let test = Test::new().pipeline("p", |p| p.with(&head).note("a", "1"));
    test.put("app/.agents/skills/s/SKILL.md", &format!("---\nname: s\ndescription: {long}\n---\nx\n"));
    for command in [&["list"][..], &["skill", "list"]] {
        let short = test.run(command).exit(0).out().to_owned();
        assert!(short.contains("words wor") && short.lines().all(|line| line.chars().count() <= 100), "{short}");
        let whole = test.run(&[command, &["--verbose"]].concat()).exit(0).out().to_owned();
        assert!(whole.lines().any(|line| line.contains(long.trim())), "{whole}");
    }
}

/// cli: every code that a failure can have is explained; an unknown one is wrong usage with a similar code as a hint.
#[test]
fn codes_are_explained() {
    let test = Test::new();
    let ran = test.run(&["explain", "--format", "json"]).exit(0);
    let doc = ran.doc();
    let codes: Vec<&str> = doc["codes"].as_array().into_iter().flatten().filter_map(|c| c["code"].as_str()).collect();
    for code in ["R0101", "R0203", "R0401", "E0101", "P0000", "B0001"] {
        assert!(codes.contains(&code), "{codes:?}");
    }
    for code in codes {
        let page = test.run(&["explain", code]).exit(0);
        assert!(page.out().lines().count() > 5 && page.out().contains(code), "{}", page.out());
    }
    test.run(&["explain", "validation_exhausted"]).exit(0);
    test.run(&["explain", "R0999"]).exit(2).stdout("").stderr_has("no error code, kind or title matches `R0999`");
    let ran = test.run(&["explain", "R010"]).exit(0).stderr_has("hint: explain one of them: etude explain R0101");
    assert_eq!(ran.out().lines().count(), 6, "{}", ran.out());
    let all = test.run(&["explain", "--list"]).exit(0).stderr("").out().lines().count();
    assert_eq!(test.run(&["explain"]).exit(0).out().lines().count(), all);
    assert!(test.run(&["explain", "--list", "P0201"]).exit(0).out().starts_with("P0201  "));
}

/// cli: schemas for editors are JSON Schemas that know the fields.
#[test]
fn schemas_for_editors_know_the_fields() {
    let test = Test::new();
    for (what, field) in [("pipeline", "steps"), ("config", "model_mapping")] {
        let ran = test.run(&["schema", what]).exit(0).stderr("");
        let schema: Value = serde_json::from_slice(&ran.raw).expect("it is JSON");
        assert!(schema["properties"][field].is_object(), "{what}: {schema:#}");
        assert!(schema["$schema"].is_string());
    }
    test.run(&["schema", "nonsense"]).exit(2);
}

/// cli: a pipeline is drawn as Mermaid, DOT and SVG, and reported as a document.
#[test]
fn a_pipeline_is_drawn_in_every_language() {
    let test = Test::new()
        .pipeline("p", |p| p.note("one", "1").llm("two", "x {{one.output}}", ""))
        .pipeline("_destructor", |p| p.note("end", "1"));
    test.run(&["graph", "p"]).exit(0).stderr("").stdout(
        r#"
flowchart TD
  n0["one<br/>code<br/>sh steps/one.sh"]
  n1(["two<br/>llm, output of the pipeline<br/>tier standard<br/>2 retries"])
  subgraph n2["_destructor"]
    direction TB
    n3["end<br/>code<br/>sh steps/end.sh"]
  end
  n0 --> n1
  n0 -.-> n1
  n1 --> n2
  style n2 stroke-dasharray: 5 5"#,
    );
    assert!(test.run(&["graph", "p", "--to", "dot"]).exit(0).out().starts_with("digraph"));
    assert!(test.run(&["graph", "p", "--to", "svg"]).exit(0).out().starts_with("<svg"));
    assert!(test.run(&["graph", "p", "--format", "json"]).exit(0).doc().is_object());
    test.run(&["graph", "q"]).exit(2).stdout("");
}

/// cli: a new app is valid, and no existing file is overwritten.
#[test]
fn a_new_app_is_sound_and_nothing_is_written_over() {
    let test = Test::new().cwd("elsewhere");
    test.run(&["new", "fresh"]).exit(0);
    let test = test.cwd("elsewhere/fresh");
    test.run(&["check"]).exit(0);
    test.run(&["test"]).exit(0).stderr_has("1 passed, 0 failed");
    let listed = test.run(&["list", "--format", "json"]).exit(0);
    let name = listed.at("/pipelines/0/name");
    assert!(name.is_string(), "{:#}", listed.doc());
    test.run(&["new", "another"]).exit(0);
    test.run(&["check"]).exit(0).stderr_has("pipelines are fine");
    let before = test.read("elsewhere/fresh/pipelines/another/pipeline.yaml");
    assert_eq!(test.run(&["new", "another"]).code(), 2);
    assert_eq!(test.read("elsewhere/fresh/pipelines/another/pipeline.yaml"), before);
}

/// cli: the next steps of an app in the current directory do not name it.
#[test]
fn an_app_in_the_current_directory_needs_no_option() {
    let test = Test::new().cwd("elsewhere");
    test.run(&["new", "."]).exit(0).stderr_has("\n  etude run --pipeline hello -i name=Ada ");
    test.run(&["run", "--pipeline", "hello", "-i", "name=Ada"]).exit(0);
}

/// cli: each kind can be created in a new app, passes its check, and runs if it needs no model.
#[test]
fn every_kind_can_be_created_and_checked() {
    let test = Test::new().cwd("elsewhere");
    test.run(&["new", "machine", "triage"]).exit(2).stderr_has("a machine belongs to an app");
    test.run(&["new", "machine"]).exit(2).stderr_has("`etude new machine` needs a name");
    test.run(&["new", "app", "fresh"]).exit(0);
    let test = test.cwd("elsewhere/fresh");
    test.run(&["new", "pipelin", "x"]).exit(2).stderr_has("did you mean `pipeline`?");
    for (kind, name) in [("pipeline", "summaries"), ("machine", "triage"), ("skill", "word-count"), ("app", "notes")] {
        test.run(&["new", kind, name]).exit(0).stderr_has("next:");
        test.run(&["new", kind, name]).exit(2).stderr_has("is already there");
    }
    test.run(&["new", "app", "other"]).exit(0).stderr_has("note: this is an Agent Application in the app `");
    test.run(&["check"]).exit(0);
    test.run(&["run", "-p", "summaries", "-i", "text=one two", "--raw"]).exit(0).stdout("2 words: one two");
    test.run(&["machine", "show", "triage"]).exit(0);
    test.run(&["skill", "check", ".agents/skills/word-count", "--strict"]).exit(0);
    test.run(&["apps", "check", "apps/notes"]).exit(0);
    test.run(&["trust", "apps/notes", "--execution"]).exit(0);
    test.run(&["apps", "run", "notes", "count", "--", "one", "two"]).exit(0);
}

/// cli: the manual page is a manual page.
#[test]
fn the_manual_page_is_one() {
    let ran = Test::new().run(&["man"]).exit(0).stderr("");
    assert!(ran.out().contains(".TH etude 1") && ran.out().contains(".SH EXIT STATUS"), "{}", ran.out());
}

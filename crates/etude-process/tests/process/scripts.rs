//! the program of a call, its directory and its environment.

use crate::fixture::{Fixture, call, direct, not_started, script, shell, value, with_stdin};
use etude_core::effect::Command;

const PRINT_ARGS: &str = "import json,sys; print(json.dumps({'output': sys.argv[1:]}))";

/// every script has the documented working directory and variables.
#[test]
fn scripts_run_in_their_pipeline_with_the_documented_environment() {
    let (grace, redactor) = (std::time::Duration::from_secs(60), &["CARGO_MANIFEST_DIR"][..]);
    for fixture in [Fixture::with(grace, redactor), Fixture::warm(grace, redactor)] {
        has_documented_environment(&fixture);
    }
}

fn has_documented_environment(fixture: &Fixture) {
    let code = "import json,os,sys\n\
        e = dict(os.environ); e['cwd'] = os.getcwd()\n\
        print(json.dumps({'output': [e.get(k) for k in sys.argv[1:]]}))";
    let mut call = direct(&[
        "python3", "-c", code, "cwd", "PWD", "ETUDE_RUN_ID", "ETUDE_EFFECT_ID", "ETUDE_ATTEMPT", "ETUDE_APP_DIR",
        "ETUDE_TOOLS_DIR", "ETUDE_PIPELINE_DIR", "CARGO_MANIFEST_DIR", "HOME", "EXTRA",
    ]);
    call.key = "p/step[3]".to_owned();
    call.attempt = 2;
    call.env = vec![("EXTRA".into(), "a b\u{e9}".into()), ("ETUDE_RUN_ID".into(), "forged".into())];
    let pipeline = fixture.path("").display().to_string();
    let pipeline = pipeline.trim_end_matches('/');
    let app = pipeline.trim_end_matches("/pipelines/p");
    let run = &fixture.run_id;
    let home = std::env::var("HOME").map_or("null".to_owned(), |home| format!("\"{home}\""));
    let expected = format!(
        "[\"{pipeline}\", \"{pipeline}\", \"{run}\", \"{run}/p/step[3]\", \"2\", \"{app}\", \"{app}/tools\", \
         \"{pipeline}\", null, {home}, \"a b\\u00e9\"]"
    );
    assert_eq!(value(&fixture.run(&call)), expected);
}

/// words reach the program as they are, without a shell; a shell line is expanded.
#[test]
fn direct_commands_are_not_expanded_and_shell_lines_are() {
    for fixture in Fixture::both() {
        let end = fixture.run(&direct(&["python3", "-c", PRINT_ARGS, "$HOME", "*", "", "a b", "'"]));
        assert_eq!(value(&end), "[\"$HOME\", \"*\", \"\", \"a b\", \"'\"]");
    }
    let fixture = Fixture::new();
    assert_eq!(fixture.output("X=1; echo \"{\\\"output\\\":$((X + 1))}\" | cat"), "2");
}

/// relative programs are found from the pipeline's directory, not from that of this process.
#[test]
fn relative_programs_are_resolved_in_the_pipeline() {
    let fixture = Fixture::new();
    fixture.write("steps/x.sh", "#!/bin/sh\necho \"{\\\"output\\\":\\\"$1\\\"}\"\n", 0o755);
    assert_eq!(value(&fixture.run(&direct(&["./steps/x.sh", "a"]))), "\"a\"");
    assert_eq!(value(&fixture.run(&direct(&["sh", "steps/x.sh", "b"]))), "\"b\"");
}

/// the variables of a call decide where its programs are searched.
#[test]
fn path_of_the_call_is_searched() {
    let fixture = Fixture::new();
    fixture.write("bin/my-tool", "#!/bin/sh\necho '{\"output\":\"mine\"}'\n", 0o755);
    let mut call = direct(&["my-tool"]);
    call.env = vec![("PATH".into(), "bin:/usr/bin:/bin".into())];
    assert_eq!(value(&fixture.run(&call)), "\"mine\"");
}

/// the execute bit and the `#!` line come first, then the extension.
#[test]
fn scripts_choose_their_interpreter() {
    for fixture in Fixture::both() {
        interpreters_are_chosen(&fixture);
    }
}

fn interpreters_are_chosen(fixture: &Fixture) {
    let python = "import sys, json; print(json.dumps({'output': json.load(sys.stdin)}))\n";
    fixture.write("v.py", python, 0o644);
    fixture.write("-v.py", python, 0o644);
    fixture.write("no-line.py", python, 0o755);
    fixture.write("v.sh", "cat >/dev/null; echo '{\"output\":\"sh\"}'\n", 0o644);
    fixture.write("run.py", "#!/bin/sh\ncat >/dev/null; echo '{\"output\":\"not python\"}'\n", 0o755);
    for (name, expected) in
        [("v.py", "[1]"), ("-v.py", "[1]"), ("no-line.py", "[1]"), ("v.sh", "\"sh\""), ("run.py", "\"not python\"")]
    {
        assert_eq!(value(&fixture.run(&with_stdin(script(name), "[1]"))), expected, "{name}");
    }
}

/// JavaScript runs with node, where there is one.
#[test]
fn javascript_and_perl_run_with_their_interpreters_or_say_what_is_missing() {
    let fixture = Fixture::new();
    fixture.write("a.mjs", "console.log(JSON.stringify({output: 'mjs'}))\n", 0o644);
    fixture.write("a.js", "console.log(JSON.stringify({output: 'js'}))\n", 0o644);
    fixture.write("a.pl", "print '{\"output\":\"pl\"}'\n", 0o644);
    fixture.write("a.rb", "print '{\"output\":\"rb\"}'\n", 0o644);
    for (name, program, output) in [
        ("a.mjs", "node", "\"mjs\""),
        ("a.js", "node", "\"js\""),
        ("a.pl", "perl", "\"pl\""),
        ("a.rb", "ruby", "\"rb\""),
    ] {
        let end = fixture.run(&script(name));
        if fixture.run(&shell(&format!("command -v {program}"))).exit.is_success() {
            assert_eq!(value(&end), output);
        } else {
            let expected = format!("program `{program}` was not found on PATH; it is needed for the script `{name}`");
            assert_eq!(not_started(&end), expected);
        }
    }
}

/// a process that cannot be started reports the reason and the remedy.
#[test]
fn what_cannot_be_started_says_why() {
    let fixture = Fixture::new();
    fixture.write("plain.sh", "echo\n", 0o644);
    fixture.write("no-line.sh", "echo\n", 0o755);
    fixture.write("no-line", "echo\n", 0o755);
    fixture.write("lost", "#!/no/such/interpreter -x\n", 0o755);
    fixture.write("dos", "#!/bin/sh\r\n", 0o755);
    fixture.write("data.xyz", "1\n", 0o644);
    let dir = fixture.path("").display().to_string();
    let dir = dir.trim_end_matches('/');
    let table: Vec<(Command, String)> = [
        (vec!["no-such-program-x"], "program `no-such-program-x` was not found on PATH".to_owned()),
        (vec!["plain.sh"], format!("program `plain.sh` was not found on PATH; `{dir}` contains a file with this name: write `./plain.sh`")),
        (vec!["./nothing"], format!("program `./nothing` was not found in `{dir}`")),
        (vec!["./plain.sh"], "program `./plain.sh` has no execute permission; `chmod +x` it, or name an interpreter: `bash ./plain.sh`".into()),
        (vec!["./no-line"], "`./no-line` is neither a program of this machine nor a script with a `#!` line".into()),
        (vec!["./no-line.sh"], "`./no-line.sh` is neither a program of this machine nor a script with a `#!` line; name an interpreter: `bash ./no-line.sh`".into()),
        (vec!["./lost"], "`./lost` asks for the interpreter `/no/such/interpreter`, which does not exist".into()),
        (vec!["./dos"], "the `#!` line of `./dos` ends in a carriage return; save the file with Unix line ends".into()),
        (vec!["/"], "`/` is a directory, not a program".into()),
        (vec![], "the command is empty".into()),
        (vec!["true", "a\0b"], "an argument or a variable of `true` has a NUL character, which programs cannot receive".into()),
    ]
    .into_iter()
    .map(|(words, why)| (Command::Direct(words.into_iter().map(str::to_owned).collect()), why))
    .chain([
        (Command::Script("gone.py".into()), format!("the script `gone.py` was not found in `{dir}`")),
        (Command::Script("data.xyz".into()), "the script `data.xyz` is not executable and has no extension that names its interpreter (.py .sh .js .mjs .ts .rb .pl); give it a `#!` line and `chmod +x` it".into()),
    ])
    .collect();
    for (command, why) in table {
        assert_eq!(not_started(&fixture.run(&call(command.clone()))), why, "{command:?}");
    }
    let mut nowhere = shell("true");
    nowhere.dir = "pipelines/q".to_owned();
    let missing = dir.trim_end_matches('p').to_owned() + "q";
    assert_eq!(not_started(&fixture.run(&nowhere)), format!("the working directory `{missing}` does not exist"));
}

#[test]
fn arguments_beyond_the_limit_of_the_system_are_explained() {
    let fixture = Fixture::new();
    let long = "x".repeat(8 << 20);
    let end = fixture.run(&direct(&["true", &long]));
    assert_eq!(
        not_started(&end),
        "the arguments and the environment of `true` are too long; pass large values on stdin"
    );
}

/// X-2 `from_env`: a value comes from the environment of this process where the process starts. A variable that is
/// not set keeps the process from starting.
#[test]
fn variables_come_from_the_environment_of_this_process() {
    for fixture in Fixture::both() {
        let mut call = direct(&["python3", "-c", "import json,os; print(json.dumps({'output': os.environ['CRATE']}))"]);
        call.setting.env_from = vec![("CRATE".to_owned(), "CARGO_MANIFEST_DIR".to_owned())];
        assert_eq!(value(&fixture.run(&call)), format!("\"{}\"", env!("CARGO_MANIFEST_DIR")));
        assert_eq!(fixture.host.unset_variable(), None);
        call.setting.env_from = vec![("CRATE".to_owned(), "NO_SUCH_VARIABLE_0815".to_owned())];
        assert!(not_started(&fixture.run(&call)).contains("`NO_SUCH_VARIABLE_0815` is not set"));
        assert_eq!(fixture.host.unset_variable(), Some("NO_SUCH_VARIABLE_0815"));
    }
}

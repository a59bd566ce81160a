//! Hostile text on a terminal: nothing controls the terminal, and nothing hides.

use serde_json::{Value, json};

use crate::echo_box;
use crate::server::{Reply, Server};
use crate::terminal::OnTerminal;
use crate::test::Test;

/// A window title, a query to the terminal, a link, hidden text, a cleared screen, C1, bells, and text that runs backwards.
const STEERING: &str = "\u{1b}]0;PWNED\u{7}\u{1b}[c\u{1b}]8;;http://x\u{1b}\\\u{1b}[8m\u{1b}[2J\u{1b}[10A\u{9b}2J\u{9d}0;x\u{9c}\u{7}\u{8}\u{202e}\u{200b}end";

/// Checks that the terminal output has no control characters but etude's own colours, the spinners' and line breaks.
#[track_caller]
fn steers_nothing(screen: &str) {
    for forbidden in [
        "\u{1b}]", "\u{1b}[c", "\u{1b}[8m", "\u{1b}[2J", "\u{1b}[10A", "\u{9b}", "\u{9d}", "\u{9c}", "\u{7}", "\u{8}",
        "\u{202e}", "\u{200b}", "\u{1b}P",
    ] {
        assert!(!screen.contains(forbidden), "{forbidden:?} in {screen:?}");
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A script that prints `text` as its output and on stderr, byte for byte.
fn says(text: &str, exit: u8) -> String {
    let octal: String = text.bytes().map(|byte| format!("\\{byte:03o}")).collect();
    let output = quoted(text).bytes().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    format!("cat >/dev/null\nprintf '{octal}\\n' >&2\nprintf '{{\"output\":{output}}}\\n'\nexit {exit}")
}

/// A-3.6, A-5.4: stderr of steps is harmless, live and in the report of a failure.
#[test]
fn stderr_of_steps_steers_nothing() {
    for exit in [0, 1] {
        let test = Test::new().pipeline("p", |p| p.sh("a", &says(STEERING, exit)));
        let screen = OnTerminal::start(&test, &["run", "--pipeline", "p"], true).over();
        assert!(screen.contains("end"), "it is shown: {screen:?}");
        steers_nothing(&screen);
        let screen = OnTerminal::start(&test, &["run", "--pipeline", "p", "--format", "json"], true).over();
        steers_nothing(&screen);
        let screen = OnTerminal::start(&test, &["run", "--pipeline", "p", "--format", "jsonl"], true).over();
        steers_nothing(&screen);
        let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
        for command in [&["runs", "list"][..], &["runs", "show", &id]] {
            steers_nothing(&OnTerminal::start(&test, command, true).over());
        }
    }
}

/// A-4.1: text of models is harmless, as a response, as a rejected response, and as an error of their provider.
#[test]
fn answers_of_models_steer_nothing() {
    let replies = [
        Reply::says(STEERING),
        Reply::says(STEERING),
        Reply::Status { status: 400, headers: Vec::new(), message: STEERING.to_owned() },
    ];
    let server = Server::new(replies);
    let test = Test::new()
        .pipeline("p", |p| p.llm("a", "Hi", ""))
        .pipeline("q", |p| p.llm("a", "Hi", "retry: 0\nschema: schemas/a.json").file("schemas/a.json", "{}"))
        .pipeline("r", |p| p.llm("a", "Hi", "retry: 0"))
        .model(&server);
    for name in ["p", "q", "r"] {
        steers_nothing(&OnTerminal::start(&test, &["run", "--pipeline", name], true).over());
    }
}

/// A-7.1: an agent's text, the names and arguments of its calls, and the results of tools are harmless.
#[test]
fn agents_steer_nothing() {
    let server = Server::new([
        Reply::Calls {
            text: STEERING.to_owned(),
            calls: vec![("Read".to_owned(), json!({"path": STEERING})), (STEERING.to_owned(), json!({STEERING: 1}))],
        },
        Reply::says(STEERING),
    ]);
    let test = Test::new().skill("", "Help.").model(&server);
    steers_nothing(&OnTerminal::start(&test, &["run", "--skill", "do it"], true).over());
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    let screen = OnTerminal::start(&test, &["runs", "show", &id], true).over();
    assert!(screen.contains("steps"), "it is shown: {screen:?}");
    steers_nothing(&screen);
}

/// A-2.2: definitions are harmless, with their faults, their names and their descriptions.
#[test]
fn definitions_steer_nothing() {
    let said = quoted(STEERING);
    let test = Test::new()
        .yaml("p", &format!("name: p\ndescription: {said}\ntriggers: [{said}]\nsteps:\n  - {{name: {said}, type: {said}}}\n{said}: 1\n"))
        .yaml("q", &format!("name: q\ndescription: {said}\nsteps:\n  - {{name: a, type: approval, message: {said}}}\n"))
        .yaml("raw", &format!("name: raw # {STEERING}\ndescription: {STEERING}\nsteps: []\n"))
        .file("a.skill.md", &format!("---\nname: {said}\ndescription: {said}\nmetadata: {{$inherit: {said}}}\n---\n{STEERING}\n"))
        .file(".agents/skills/s/SKILL.md", &format!("---\nname: s\ndescription: {said}\n---\n{STEERING}\n"))
        .file("apps/x/APP.md", &format!("---\nname: {said}\ndescription: {said}\n---\n{STEERING}\n"))
        .file("tools/t.yaml", &format!("name: {said}\ndescription: {said}\n"));
    let commands: &[&[&str]] = &[
        &["check"],
        &["check", "--format", "json"],
        &["list"],
        &["graph", "q"],
        &["route", "hello"],
        &["route", STEERING],
        &["run", "--pipeline", "q"],
        &["run", "--pipeline", STEERING],
        &["run", "--pipeline", "q", "--dry-run"],
        &["skill", "list"],
        &["skill", "show", "s"],
        &["skill", "run", "a"],
        &["apps", "list"],
        &["apps", "show", "x"],
        &["runs", "list"],
        &["runs", "show", STEERING],
        &["explain", STEERING],
    ];
    for command in commands {
        steers_nothing(&OnTerminal::start(&test, command, true).over());
    }
}

/// A-3.6: documents on a terminal stay parsable, whatever their values are.
#[test]
fn documents_on_a_terminal_can_be_read() {
    let test = Test::new().pipeline("p", |p| {
        let output = json!({ "said": STEERING }).to_string();
        let octal: String = output.bytes().map(|byte| format!("\\{byte:03o}")).collect();
        p.sh("a", &format!("cat >/dev/null; printf '{{\"output\":'; printf '{octal}'; echo '}}'"))
    });
    let id = test.run_json("p").exit(0).id();
    echo_box::put(&test, echo_box::USER, &[]);
    let commands: &[&[&str]] = &[
        &["run", "--pipeline", "p", "--quiet"],
        &["runs", "show", &id, "--format", "json"],
        &["runs", "export", &id],
        &["apps", "run", "echo-box", "args", "--format", "json", "--quiet", "--", STEERING],
        &["apps", "run", "echo-box", "args", "--quiet", "--", STEERING],
        &["schema", "pipeline"],
    ];
    for command in commands {
        let screen = OnTerminal::start(&test, command, true).over();
        steers_nothing(&screen);
        let at = screen.find('{').unwrap_or_else(|| panic!("{command:?}: {screen:?}"));
        let documents = serde_json::Deserializer::from_str(&screen[at..]).into_iter::<Value>();
        let read: Result<Vec<Value>, _> = documents.collect();
        let read = read.unwrap_or_else(|error| panic!("{command:?}: {error}: {screen:?}"));
        let is_there = command[0] == "schema" || Value::from(read).to_string().contains("\u{202e}");
        assert!(is_there, "{command:?} has its values: {screen:?}");
    }
}

/// A pipe gets data unchanged: only terminal output is filtered.
#[test]
fn a_file_gets_every_byte() {
    let test = Test::new().pipeline("p", |p| p.sh("a", &says(STEERING, 0)));
    test.run(&["run", "--pipeline", "p", "--format", "json"]).exit(0).output(STEERING);
}

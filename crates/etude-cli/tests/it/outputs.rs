//! Output on stdout: JSON, or a string as text on a terminal and with `--raw`.

use crate::test::Test;

fn app() -> Test {
    Test::new().pipeline("text", |p| p.note("a", r#""Größe: 1""#)).pipeline("object", |p| p.note("a", r#"{"a":"b"}"#))
}

/// cli: to a file or pipe, an output is JSON; with `--raw` a string is text, and anything else stays JSON.
#[test]
fn a_string_is_text_to_a_pipe_with_raw_only() {
    let test = app();
    test.run(&["run", "-p", "text"]).exit(0).stdout(r#""Größe: 1""#);
    test.run(&["run", "-p", "text", "--raw"]).exit(0).stdout("Größe: 1");
    for more in [&[][..], &["--raw"]] {
        test.run(&[&["run", "-p", "object"], more].concat()).exit(0).stdout(r#"{"a":"b"}"#);
    }
    let ran = test.run(&["run", "-p", "text", "--raw", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/output"), "Größe: 1");
}

/// cli: `--raw` ends a text with a line break, and adds none to a text that has one.
#[test]
fn a_raw_text_ends_with_one_line_break() {
    let script = |text: &str| format!("cat >/dev/null; cat <<'E'\n{{\"output\":\"{text}\"}}\nE");
    let test = Test::new().pipeline("p", |p| p.sh("a", &script("x\\n"))).pipeline("q", |p| p.sh("a", &script("x")));
    for name in ["p", "q"] {
        assert_eq!(test.run(&["run", "-p", name, "--raw"]).exit(0).raw, b"x\n", "{name}");
    }
}

/// cli: on a terminal a string is text without any option, and an object is JSON.
#[test]
fn a_string_is_text_on_a_terminal() {
    use crate::terminal::OnTerminal;
    let test = app();
    for (name, raw, expected) in
        [("text", false, "Größe: 1"), ("text", true, "Größe: 1"), ("object", false, r#"{"a":"b"}"#)]
    {
        let args = ["run", "-p", name, "--quiet", "--raw"];
        let shown = OnTerminal::start(&test, &args[..if raw { 5 } else { 4 }], true).over();
        assert_eq!(shown.trim_end(), expected, "{name} {raw}");
    }
}

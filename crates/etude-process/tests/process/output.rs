//! A-3.3, A-4.7: requirements on stdout, and the values read from it.

use etude_core::digest::Digest;
use etude_core::effect::Protocol;
use etude_core::outcome::{Exit, ProcessEnd, Stdout};

use crate::fixture::{Fixture, direct, in_own_process, json, shell, value, with_stdin};

fn echo(fixture: &Fixture, text: &str, protocol: Protocol) -> ProcessEnd {
    let mut call = with_stdin(direct(&["cat"]), text);
    call.protocol = protocol;
    fixture.run(&call)
}

fn problem(end: &ProcessEnd) -> &str {
    match &end.stdout {
        Stdout::Unusable { problem, .. } => problem,
        Stdout::Value(value) => panic!("accepted: {value:?}"),
    }
}

/// A-3.3: the value is kept as it was printed, numbers and all; other members do not matter.
#[test]
fn value_is_kept_as_it_was_printed() {
    let fixture = Fixture::new();
    let kept = |text: &str| value(&echo(&fixture, text, Protocol::Step));
    let numbers = "[123456789012345678901234567890, 1.10, 1e400, -0.0, 1E+2]";
    assert_eq!(kept(&format!("{{\"output\": {numbers}}}")), numbers);
    assert_eq!(
        kept("\n {\"log\":{\"output\":0},\"output\" : { \"b\":1,\"a\" :2 } ,\"x\":[]}\t\r\n"),
        "{ \"b\":1,\"a\" :2 }"
    );
    assert_eq!(kept("{\"output\":null}"), "null");
    assert_eq!(kept("{\"out\\u0070ut\":\"\\u00e9\"}"), "\"\\u00e9\"");
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(kept(&format!("{{\"output\":{deep}}}")), deep);
}

/// A-3.3: any other content of stdout is an error with its own name.
#[test]
fn anything_else_on_stdout_is_an_error_of_its_own() {
    let fixture = Fixture::new();
    let table = [
        ("\n", "stdout contains only whitespace"),
        ("{\"output\":1}{\"output\":2}", "2 JSON values on stdout instead of one"),
        ("{\"output\":1} bye", "text after the JSON document"),
        ("hello {\"output\":1}", "text before the JSON document"),
        ("[1]", "an array instead of an object"),
        ("{\"result\":1}", "the JSON object has no member `output`; it has `result`"),
        ("{\"output\":", "the JSON document is cut off"),
        ("{\"output\":Infinity}", "`Infinity` is not JSON, at line 1 column 11"),
        ("{\"output\":1,\"output\":1}", "the member `output` occurs twice"),
        ("{'output': True}", "JSON has no single quotes"),
        ("{\"output\":1,}", "stdout is not valid JSON: a comma before the closing bracket"),
    ];
    for (printed, expected) in table {
        let end = echo(&fixture, printed, Protocol::Step);
        assert_eq!(end.exit, Exit::Status(0));
        assert!(problem(&end).starts_with(expected), "{printed}: {}", problem(&end));
    }
    assert_eq!(problem(&fixture.run(&shell(":"))), "stdout is empty");
    let end = fixture.run(&shell("printf '{\"output\":\"\\377\"}'"));
    assert_eq!(problem(&end), "stdout is not UTF-8: byte 0xff at offset 11");
}

/// A-4.7: a validator prints any one JSON value, which is kept whole.
#[test]
fn document_protocol_keeps_the_whole_value() {
    let fixture = Fixture::new();
    let document = "{\"valid\":false,\"errors\":[\"x\"]}";
    assert_eq!(value(&echo(&fixture, &format!(" {document}\n"), Protocol::Document)), document);
    assert_eq!(value(&echo(&fixture, "3", Protocol::Document)), "3");
    assert_eq!(problem(&echo(&fixture, "3 4", Protocol::Document)), "2 JSON values on stdout instead of one");
}

/// X-2: with `output: text` stdout is a string of any content, without one line break at its end.
#[test]
fn text_is_a_string_without_its_last_line_break() {
    let fixture = Fixture::new();
    let kept = |text: &str| value(&echo(&fixture, text, Protocol::Text));
    let table = [
        ("", "\"\""),
        ("\n", "\"\""),
        ("a\n\n", "\"a\\n\""),
        ("a\r\n", "\"a\""),
        ("a\r", "\"a\\r\""),
        (" {\"output\": 1}\n", "\" {\\\"output\\\": 1}\""),
        ("é\u{1f600}\u{1}\\", "\"é\u{1f600}\\u0001\\\\\""),
        ("\u{feff}x", "\"\u{feff}x\""),
    ];
    for (printed, expected) in table {
        assert_eq!(kept(printed), expected, "{printed:?}");
    }
    let mut call = shell("printf 'caf\\303'");
    call.protocol = Protocol::Text;
    assert_eq!(problem(&fixture.run(&call)), "stdout is not UTF-8: byte 0xc3 at offset 3");
}

/// X-2, A-3.4: a long text lies in the store, escaped, as does a text that is long because it is escaped.
#[test]
fn long_text_is_stored() {
    let fixture = Fixture::new();
    // Characters of three bytes do not end where pieces do.
    for long in ["a€\"\n".repeat(100_000), "\u{1}".repeat(200_000)] {
        let end = echo(&fixture, &format!("{long}\r\n"), Protocol::Text);
        let expected = serde_json::to_string(&long).expect("a string");
        let stored = json(&end).as_stored().expect("stored");
        assert_eq!((stored.offset, stored.len), (0, expected.len() as u64));
        assert_eq!(stored.digest, Digest::of(expected.as_bytes()));
        assert_eq!(value(&end), expected);
    }
    let mut call = shell("yes € | head -c 900000; printf '\\377'");
    call.protocol = Protocol::Text;
    assert_eq!(problem(&fixture.run(&call)), "stdout is not UTF-8: byte 0xff at offset 900000");
}

/// A-3.4: a long value lies in the store; a short one beside much other output does not.
#[test]
fn long_values_are_stored_and_short_ones_are_not() {
    let fixture = Fixture::new();
    let long = format!("[\"{}\"]", "é".repeat(200_000));
    let end = echo(&fixture, &format!("{{\"output\": {long} }}\n"), Protocol::Step);
    let stored = json(&end).as_stored().expect("stored");
    assert_eq!((stored.offset, stored.len, stored.digest), (11, long.len() as u64, Digest::of(long.as_bytes())));
    assert_eq!(value(&end), long);

    let end = echo(&fixture, &format!("{{\"log\":{long},\"output\":[1]}}"), Protocol::Step);
    assert_eq!(json(&end).inline(), Some("[1]"));

    let end = echo(&fixture, &format!("{long}\n"), Protocol::Document);
    assert_eq!(json(&end).as_stored().expect("stored").offset, 0);
    assert_eq!(value(&end), long);
}

/// A-3.3: a long output that is wrong is diagnosed like a short one and leaves nothing in the store.
#[test]
fn long_unusable_output_is_judged_and_thrown_away() {
    let fixture = Fixture::new();
    let end = echo(&fixture, &format!("{{\"output\":\"{}\"}} extra", "x".repeat(1_000_000)), Protocol::Step);
    let Stdout::Unusable { problem, found } = &end.stdout else { panic!("accepted") };
    assert_eq!(
        (problem.as_str(), found.as_str()),
        ("text after the JSON document; print diagnostics to stderr", "…extra")
    );
    let blobs = fixture.path("../../blobs/tmp");
    assert_eq!(std::fs::read_dir(blobs).expect("scratch directory").count(), 0);
}

/// A-3.4: 100 MB pass through two steps with memory bounded to a small multiple of one output.
#[cfg(target_os = "linux")]
#[test]
fn hundred_megabytes_pass_with_bounded_memory() {
    let ran = in_own_process("output::pass_hundred_megabytes", &[]);
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    let peak = text.lines().find_map(|line| line.split("peak ").nth(1)).expect("a figure");
    let peak: u64 = peak.trim().parse().expect("kibibytes");
    assert!(peak < 180 * 1024, "peak memory of {peak} KiB for outputs of 102400 KiB");
}

#[cfg(target_os = "linux")]
#[ignore = "run in a process of its own by `hundred_megabytes_pass_with_bounded_memory`"]
#[test]
fn pass_hundred_megabytes() {
    use etude_core::effect::{Chunk, Stdin};
    use std::sync::Arc;

    let fixture = Fixture::new();
    let mut call = shell("printf '{\"output\":\"'; head -c 104857600 /dev/zero | tr '\\0' x; printf '\"}'");
    for _ in 0..2 {
        let end = fixture.run(&call);
        assert_eq!(end.exit, Exit::Status(0));
        let output = json(&end).clone();
        assert_eq!(output.as_stored().expect("stored").len, 104_857_602);
        call = direct(&["cat"]);
        let text = |text: &str| Chunk::Text(Arc::from(text));
        call.stdin = Stdin(vec![text("{\"output\":"), Chunk::Json(output), text("}")]);
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("peak");
    println!("peak {}", peak.trim().trim_end_matches(" kB"));
}

/// X-2, A-3.5: only a process in a sandbox can report a failed sandbox. The same text from another process is its own output.
#[test]
fn a_process_without_a_sandbox_fails_in_its_own_words() {
    let end = Fixture::new().run(&shell("echo 'etude sandbox: no' >&2; exit 125"));
    assert_eq!((end.exit, end.stderr.tail.as_str()), (Exit::Status(125), "etude sandbox: no\n"));
}

/// A-3.3: a step that prints without an end is killed at the limit of its output, and the fault names the limit.
#[test]
fn a_step_that_prints_without_an_end_is_killed() {
    let fixture = Fixture::limited(3 << 20);
    for protocol in [Protocol::Step, Protocol::Text] {
        let mut call = shell("yes");
        call.protocol = protocol;
        assert_eq!(problem(&fixture.run(&call)), "stdout has more than 3 MiB, so the process was killed");
    }
    assert_eq!(fixture.output("echo '{\"output\":1}'"), "1");
}

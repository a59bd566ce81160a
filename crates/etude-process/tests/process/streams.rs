//! stdin, exit statuses, and pipes that other processes hold.

use std::sync::Arc;

use etude_core::data::{Json, Stored};
use etude_core::digest::Digest;
use etude_core::effect::{Chunk, Stdin};
use etude_core::outcome::{Exit, Stdout};
use etude_process::blob::{BlobStore, FileBlobs, put};

use crate::fixture::{Fixture, direct, shell, value, with_stdin};

const MEGABYTE: usize = 1024 * 1024;

/// a step that never reads its stdin neither blocks nor fails.
#[test]
fn stdin_that_is_never_read_is_no_failure() {
    let fixture = Fixture::new();
    let large = "x".repeat(3 * MEGABYTE);
    let end = fixture.run(&with_stdin(shell("printf '{\"output\":1}'"), &large));
    assert_eq!(value(&end), "1");
}

/// a step may read its stdin late and gets all of it.
#[test]
fn stdin_that_is_read_late_arrives_whole() {
    let fixture = Fixture::new();
    let large = "x".repeat(3 * MEGABYTE);
    let end = fixture.run(&with_stdin(shell("sleep 0.2; n=$(wc -c); echo \"{\\\"output\\\":$n}\""), &large));
    assert_eq!(value(&end), (3 * MEGABYTE).to_string());
}

/// a step may write megabytes before it reads megabytes.
#[test]
fn megabytes_written_before_stdin_is_read_do_not_deadlock() {
    for fixture in Fixture::both() {
        megabytes_go_both_ways(&fixture);
    }
}

fn megabytes_go_both_ways(fixture: &Fixture) {
    let code = "import sys\n\
        sys.stdout.write('{\"output\":\"' + 'y' * (20 << 20)); sys.stdout.flush()\n\
        sys.stderr.write('e' * (1 << 20)); sys.stderr.flush()\n\
        print(len(sys.stdin.read()), end='\"}')\n";
    let large = "x".repeat(3 * MEGABYTE);
    let end = fixture.run(&with_stdin(direct(&["python3", "-c", code]), &large));
    let text = value(&end);
    assert_eq!(text.len(), 20 * MEGABYTE + 2 + 7);
    assert!(text.ends_with("y3145728\""));
    assert_eq!((end.stderr.bytes, end.stderr.lines), (MEGABYTE as u64, 1));
}

/// closing stdin without reading it is no failure.
#[test]
fn stdin_closed_at_once_is_no_failure() {
    let fixture = Fixture::new();
    let large = "x".repeat(3 * MEGABYTE);
    let end = fixture.run(&with_stdin(shell("exec 0<&-; sleep 0.2; printf '{\"output\":true}'"), &large));
    assert_eq!(value(&end), "true");
}

#[test]
fn without_stdin_the_process_reads_an_end_at_once() {
    let fixture = Fixture::new();
    assert_eq!(fixture.output("n=$(wc -c); echo \"{\\\"output\\\":$n}\""), "0");
}

/// text, inline values and stored values arrive in order, byte for byte.
#[test]
fn stdin_of_many_pieces_arrives_in_order() {
    let fixture = Fixture::new();
    let dir = tempfile::tempdir().expect("directory");
    let blobs = FileBlobs::new(dir.path(), false);
    let long = format!("\"{}\"", "é".repeat(MEGABYTE));
    let (blob, source) = put(&blobs, format!("{{\"output\":{long}}}").as_bytes()).expect("kept");
    let (len, digest) = (long.len() as u64, Digest::of(long.as_bytes()));
    let stored = Json::stored(Stored { blob, offset: 10, len, digest, source });
    let text = |text: &str| Chunk::Text(Arc::from(text));
    let mut chunks = vec![text("{\"output\":["), Chunk::Json(stored.clone()), text(","), Chunk::Json(stored)];
    for number in 0..1_000 {
        chunks.extend([text(","), Chunk::Json(Json::trusted(number.to_string()))]);
    }
    chunks.push(text("]}"));
    let mut call = direct(&["cat"]);
    call.stdin = Stdin(chunks);
    let numbers: Vec<String> = (0..1_000).map(|number: u32| number.to_string()).collect();
    assert_eq!(value(&fixture.run(&call)), format!("[{long},{long},{}]", numbers.join(",")));
}

/// A stored value that is gone does not become an empty stdin: the step is ended with the reason.
#[test]
fn stored_value_that_cannot_be_read_ends_the_step_with_the_reason() {
    let fixture = Fixture::new();
    let dir = tempfile::tempdir().expect("directory");
    let blobs = FileBlobs::new(dir.path(), false);
    let (blob, source) = put(&blobs, b"[1]").expect("kept");
    blobs.remove(blob).expect("removed");
    assert!(blobs.open(blob).is_err());
    let stored = Json::stored(Stored { blob, offset: 0, len: 3, digest: blob, source });
    let mut call = direct(&["sleep", "300"]);
    call.stdin = Stdin(vec![Chunk::Json(stored)]);
    let end = fixture.run(&call);
    let Exit::NotStarted(why) = end.exit else { panic!("{end:?}") };
    assert!(why.starts_with("cannot read its stdin from the store: "), "{why}");
}

/// all kinds of exits are distinguished.
#[test]
fn exit_statuses_and_signals_are_reported() {
    let fixture = Fixture::new();
    let exit = |line: &str| fixture.run(&shell(line)).exit;
    assert_eq!(exit("exit 0"), Exit::Status(0));
    assert_eq!(exit("exit 3"), Exit::Status(3));
    assert_eq!(exit("exit 255"), Exit::Status(255));
    let signal = |number, name: &str| Exit::Signal { number, name: name.to_owned() };
    assert_eq!(exit("kill -KILL $$"), signal(9, "SIGKILL"));
    assert_eq!(exit("kill -SEGV $$"), signal(11, "SIGSEGV"));
    assert_eq!(exit("kill -PIPE $$"), signal(13, "SIGPIPE"));
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    assert_eq!(exit("kill -36 $$"), signal(36, "SIGRTMIN+2"));
}

/// output is read for every exit status; the machine decides what counts.
#[test]
fn output_is_read_whatever_the_exit_status() {
    let fixture = Fixture::new();
    let end = fixture.run(&shell("printf '{\"output\":[1]}'; echo oops >&2; exit 1"));
    assert_eq!(end.exit, Exit::Status(1));
    assert_eq!(end.stdout, Stdout::Value(Json::trusted("[1]")));
    assert_eq!((end.stderr.tail.as_str(), end.stderr.lines, end.stderr.bytes), ("oops\n", 1, 5));
    assert_eq!(end.stderr.blob, None);
}

/// A child that writes into a closed pipe ends as it would in a shell, although this process ignores the signal.
#[test]
fn children_have_the_default_action_for_broken_pipes() {
    let fixture = Fixture::new();
    let line = "bash -c 'yes | head -n 1 >/dev/null; echo \"{\\\"output\\\":${PIPESTATUS[0]}}\"'";
    assert_eq!(fixture.output(line), "141");
}

/// a grandchild that keeps stdout open does not delay a step whose own process has ended.
#[test]
fn grandchild_that_holds_stdout_does_not_delay_the_end() {
    let fixture = Fixture::new();
    let end = fixture.run(&shell("(trap '' HUP; sleep 600) & echo '{\"output\":\"done\"}'"));
    assert_eq!(value(&end), "\"done\"");
}

/// a grandchild that prints for ever does not delay it either, and the step's own bytes are all there.
#[test]
fn grandchild_that_floods_stderr_does_not_delay_the_end() {
    let fixture = Fixture::new();
    let end = fixture.run(&shell("yes noise >&2 & echo last >&2; echo '{\"output\":\"done\"}'"));
    assert_eq!(value(&end), "\"done\"");
}

/// the last bytes before the exit are never lost, in many attempts.
#[test]
fn output_printed_right_before_the_exit_is_never_lost() {
    let fixture = Fixture::new();
    let line = format!("printf '{{\"output\":\"%s\"}}' {}; printf e >&2; kill -KILL $$", "z".repeat(40_000));
    for _ in 0..100 {
        let end = fixture.run(&shell(&line));
        assert_eq!(end.exit, Exit::Signal { number: 9, name: "SIGKILL".to_owned() });
        let Stdout::Value(json) = &end.stdout else { panic!("{end:?}") };
        assert_eq!((json.len(), end.stderr.tail.as_str()), (40_002, "e"));
    }
}

/// Many concurrent steps, each on its own thread, do not disturb each other.
#[test]
fn concurrent_steps_keep_their_streams_apart() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for number in 0..32 {
            let fixture = &fixture;
            scope.spawn(move || {
                let text = format!("{{\"output\":\"{number} {}\"}}", "x".repeat(100_000));
                let end = fixture.run(&with_stdin(shell("cat; cat >&2 <<END\n$ETUDE_RUN_ID\nEND"), &text));
                assert_eq!(value(&end), text[10..text.len() - 1]);
                assert_eq!(end.stderr.tail, format!("{}\n", fixture.run_id));
            });
        }
    });
}

//! a cancelled process is gone, with everything it had started.

use std::time::Duration;

use etude_core::outcome::Stderr;
use etude_process::{Cancel, Cancelled};

use crate::fixture::{Fixture, eventually, is_alive, shell, with_stdin};

/// Short, so that a process that ignores the request is killed soon.
const IMPATIENT: Duration = Duration::from_millis(50);

#[test]
fn call_that_is_cancelled_before_it_starts_does_not_start() {
    let fixture = Fixture::new();
    let cancel = Cancel::new();
    cancel.cancel();
    let call = shell("touch started");
    assert_eq!(fixture.host.run(&call, &cancel, &mut |_| {}), Err(Cancelled::default()));
    assert!(!fixture.path("started").exists());
}

/// the group gets SIGTERM and time to react; its last output on stderr is received.
#[test]
fn process_may_clean_up_when_it_is_cancelled() {
    let fixture = Fixture::new();
    let line = "trap 'touch cleaned; echo bye >&2; exit 1' TERM; touch ready; while :; do sleep 0.01; done";
    let stderr = fixture.cancel_when_ready(&shell(line), "ready");
    assert!(fixture.path("cleaned").exists());
    assert!(stderr.tail.ends_with("bye\n"));
}

/// the stderr of a cancelled process is returned, and kept like that of any other process.
#[test]
fn what_was_given_up_has_flushed_its_output() {
    let fixture = Fixture::with(IMPATIENT, &[]);
    let stderr = fixture.cancel_when_ready(&shell("printf 'one\ntwo' >&2; touch ready; exec sleep 600"), "ready");
    assert_eq!(stderr, Stderr { tail: "one\ntwo".to_owned(), lines: 2, bytes: 7, blob: None });
    let long = "seq 1 20000 >&2; touch ready; exec sleep 600";
    let fixture = Fixture::with(IMPATIENT, &[]);
    let stderr = fixture.cancel_when_ready(&shell(long), "ready");
    assert_eq!(stderr.lines, 20_000);
    assert!(stderr.tail.ends_with("\n20000\n") && stderr.blob.is_some(), "{stderr:?}");
}

/// a stopped process gets the signal too.
#[cfg(target_os = "linux")]
#[test]
fn stopped_process_is_woken_to_end() {
    let fixture = Fixture::new();
    let call = shell("trap 'touch cleaned; exit 1' TERM; echo $$ >a; kill -STOP $$; while :; do sleep 0.01; done");
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stat = format!("/proc/{}/stat", fixture.pid("a").as_raw_nonzero());
            eventually("it is stopped", || std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") T ")));
            cancel.cancel();
        });
        assert_eq!(fixture.host.run(&call, &cancel, &mut |_| {}), Err(Cancelled::default()));
    });
    assert!(fixture.path("cleaned").exists());
}

/// a tree of processes that ignores SIGTERM is killed completely after the grace period.
#[test]
fn tree_that_ignores_the_request_is_killed() {
    let fixture = Fixture::with(IMPATIENT, &[]);
    let line = "trap '' TERM; echo $$ >a; (trap '' TERM; sh -c 'echo $$ >b; sleep 600 & echo $! >c; touch ready; wait') & wait";
    fixture.cancel_when_ready(&shell(line), "ready");
    for name in ["a", "b", "c"] {
        assert!(!is_alive(fixture.pid(name)), "{name}");
    }
}

/// the leader may end at once while others of its group ignore the signal.
#[test]
fn group_outlives_its_leader_but_not_the_cancellation() {
    let fixture = Fixture::with(IMPATIENT, &[]);
    let line = "(trap '' TERM; echo $$ >leader; sh -c 'echo $$ >b; touch ready; exec sleep 600') & wait";
    fixture.cancel_when_ready(&shell(line), "ready");
    assert!(!is_alive(fixture.pid("leader")) && !is_alive(fixture.pid("b")));
}

/// a child or an orphan that leaves the group is killed too.
#[cfg(target_os = "linux")]
#[test]
fn descendants_that_left_the_group_are_killed() {
    let fixture = Fixture::with(IMPATIENT, &[]);
    let line = "trap '' TERM
        setsid sh -c 'trap \"\" TERM; echo $$ >child; sleep 600' &
        (setsid sh -c 'trap \"\" TERM; echo $$ >orphan; sleep 600' &)
        env -i PATH=\"$PATH\" setsid sh -c 'trap \"\" TERM; echo $$ >bare; sleep 600' &
        while ! [ -s child -a -s orphan -a -s bare ]; do sleep 0.01; done
        touch ready; sleep 600";
    fixture.cancel_when_ready(&shell(line), "ready");
    for name in ["child", "orphan", "bare"] {
        assert!(!is_alive(fixture.pid(name)), "{name}");
    }
}

/// a process that left the group gets SIGTERM before it is killed.
#[cfg(target_os = "linux")]
#[test]
fn descendants_that_left_the_group_may_clean_up() {
    let fixture = Fixture::new();
    let inner = "trap \"touch cleaned; exit\" TERM; echo $$ >child; while :; do sleep 0.01; done";
    let line = format!("setsid sh -c '{inner}' & while ! [ -s child ]; do sleep 0.01; done; touch ready; sleep 600");
    fixture.cancel_when_ready(&shell(&line), "ready");
    assert!(fixture.path("cleaned").exists() && !is_alive(fixture.pid("child")));
}

/// a process that forks faster than it can be counted is stopped before it is killed.
#[test]
fn process_that_keeps_forking_is_killed() {
    let fixture = Fixture::with(IMPATIENT, &[]);
    let line = "trap '' TERM; echo $$ >a; touch ready; while :; do (trap '' TERM; sleep 0.2) & sleep 0.002; done";
    fixture.cancel_when_ready(&shell(line), "ready");
    assert!(!is_alive(fixture.pid("a")));
    assert!(rustix::process::test_kill_process_group(fixture.pid("a")).is_err());
}

/// neither a flood of diagnostics nor an unread stdin keeps a step alive.
#[test]
fn flood_on_both_streams_does_not_hinder_the_cancellation() {
    let fixture = Fixture::with(IMPATIENT, &[]);
    let line = "trap '' TERM; echo $$ >a; yes out & yes err >&2 & touch ready; wait";
    let large = "x".repeat(3 << 20);
    let stderr = fixture.cancel_when_ready(&with_stdin(shell(line), &large), "ready");
    assert!(!is_alive(fixture.pid("a")));
    assert!(stderr.tail.is_empty() || stderr.tail.starts_with("err\n"));
}

/// One handle cancels many processes, and only those.
#[test]
fn one_handle_ends_all_its_processes_and_no_other() {
    let fixture = Fixture::new();
    let cancel = Cancel::new();
    let other = Cancel::new();
    std::thread::scope(|scope| {
        let mut cancelled = Vec::new();
        for number in 0..4 {
            let (fixture, cancel) = (&fixture, &cancel);
            let line = format!("echo $$ >p{number}; sleep 600");
            cancelled.push(scope.spawn(move || fixture.host.run(&keyed(&line, number), cancel, &mut |_| {})));
        }
        let survivor = scope.spawn(|| {
            let line = "echo $$ >other; while ! [ -e release ]; do sleep 0.01; done";
            fixture.host.run(&keyed(line, 9), &other, &mut |_| {})
        });
        for name in ["p0", "p1", "p2", "p3", "other"] {
            fixture.pid(name);
        }
        cancel.cancel();
        for thread in cancelled {
            assert_eq!(thread.join().expect("no panic"), Err(Cancelled::default()));
        }
        assert!(is_alive(fixture.pid("other")));
        std::fs::write(fixture.path("release"), "").expect("written");
        assert!(survivor.join().expect("no panic").expect("not cancelled").exit.is_success());
    });
    eventually("all are gone", || (0..4).all(|number| !is_alive(fixture.pid(&format!("p{number}")))));
}

fn keyed(line: &str, number: usize) -> etude_core::effect::ProcessCall {
    let mut call = shell(line);
    call.key = format!("p/step[{number}]");
    call
}

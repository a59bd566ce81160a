//! leftovers of steps, and their end with the run.

use std::time::Duration;

use etude_process::{ProcessHost, guard, reap_survivors_of};

use crate::fixture::{Fixture, eventually, in_own_process, is_alive, shell, value};

const IMPATIENT: Duration = Duration::from_millis(50);

/// A constructor may start a server for later steps; the end of the run ends it.
#[test]
fn background_process_serves_later_steps_and_ends_with_the_run() {
    let fixture = Fixture::new();
    assert_eq!(fixture.output("sleep 600 & echo $! >server; echo '{\"output\":1}'"), "1");
    let server = fixture.pid("server");
    assert_eq!(fixture.output("kill -0 $(cat server) && echo '{\"output\":\"up\"}'"), "\"up\"");
    fixture.host.kill_leftovers();
    assert!(!is_alive(server));
}

/// A background process that logs to the step's own streams is neither killed nor blocked by the end of the step.
#[test]
fn background_process_may_go_on_printing() {
    let fixture = Fixture::new();
    let line = "(while ! [ -e go ]; do sleep 0.01; done; head -c 1000000 /dev/zero | tee /dev/stderr; touch logged; sleep 600) &
        echo '{\"output\":1}'";
    assert_eq!(fixture.output(line), "1");
    std::fs::write(fixture.path("go"), "").expect("written");
    eventually("everything is logged", || fixture.path("logged").exists());
}

/// a process that ignores SIGTERM, or that left the group, ends with the run too.
#[cfg(target_os = "linux")]
#[test]
fn stubborn_and_escaped_processes_end_with_the_run() {
    let fixture = Fixture::with(IMPATIENT, &[]);
    let line = "(trap '' TERM; sh -c 'echo $$ >stubborn; exec sleep 600') &
        setsid sh -c 'echo $$ >escaped; sleep 600' &
        (setsid sh -c '(trap \"\" TERM; sh -c \"echo \\$\\$ >daemon; sleep 600\") &' &)
        while ! [ -s stubborn -a -s escaped -a -s daemon ]; do sleep 0.01; done
        echo '{\"output\":1}'";
    assert_eq!(fixture.output(line), "1");
    let left = ["stubborn", "escaped", "daemon"].map(|name| fixture.pid(name));
    assert!(left.iter().all(|pid| is_alive(*pid)));
    fixture.host.kill_leftovers();
    for pid in left {
        assert!(!is_alive(pid), "{pid:?} of {left:?}");
    }
}

/// leftovers may clean up.
#[test]
fn background_process_is_asked_before_it_is_killed() {
    let fixture = Fixture::new();
    let line = "(trap 'touch cleaned; exit' TERM; touch ready; while :; do sleep 0.01; done) &
        while ! [ -e ready ]; do sleep 0.01; done; echo '{\"output\":1}'";
    fixture.output(line);
    fixture.host.kill_leftovers();
    assert!(fixture.path("cleaned").exists());
}

/// Several runs share one process: the end of one does not end another.
#[test]
fn kill_leftovers_exempts_other_runs_and_running_steps() {
    let (one, two) = (Fixture::new(), Fixture::new());
    let setsid = if cfg!(target_os = "linux") { "setsid" } else { "" };
    two.output(&format!("{setsid} sleep 600 & echo $! >server; echo '{{\"output\":1}}'"));
    std::thread::scope(|scope| {
        let step =
            scope.spawn(|| one.output("touch running; while ! [ -e go ]; do sleep 0.01; done; echo '{\"output\":2}'"));
        eventually("the step runs", || one.path("running").exists());
        one.host.kill_leftovers();
        std::fs::write(one.path("go"), "").expect("written");
        assert_eq!(step.join().expect("no panic"), "2");
    });
    assert!(is_alive(two.pid("server")));
    let server = two.pid("server");
    drop(two);
    assert!(!is_alive(server), "dropping a host sweeps");
}

/// Orphans that have ended are reaped, so that a long-lived runner does not collect zombies.
#[cfg(target_os = "linux")]
#[test]
fn orphans_that_ended_leave_no_zombie() {
    let fixture = Fixture::new();
    fixture.output("(sh -c 'echo $$ >orphan' &); while ! [ -s orphan ]; do sleep 0.01; done; echo '{\"output\":1}'");
    let orphan = fixture.pid("orphan");
    fixture.host.kill_leftovers();
    assert!(!is_alive(orphan));
}

/// A panic while a step runs leaves no process behind.
#[test]
fn panic_in_the_observer_leaves_no_process() {
    let fixture = Fixture::with(IMPATIENT, &[]);
    let call = shell("echo $$ >a; echo oops >&2; sleep 600");
    let cancel = etude_process::Cancel::new();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = fixture.host.run(&call, &cancel, &mut |_| panic!("observer"));
    }));
    assert!(panicked.is_err());
    let step = fixture.pid("a");
    drop(fixture);
    assert!(!is_alive(step));
}

/// a host that is alone in its process also ends processes that left their group and cleared their environment.
#[cfg(target_os = "linux")]
#[test]
fn exclusive_host_ends_orphans_without_a_mark() {
    let ran = in_own_process("leftovers::exclusive_host", &[]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}

#[cfg(target_os = "linux")]
#[ignore = "run in a process of its own by `exclusive_host_ends_orphans_without_a_mark`"]
#[test]
fn exclusive_host() {
    let mut fixture = Fixture::with(IMPATIENT, &[]);
    fixture.host = exclusive(&fixture);
    let line = "(env -i PATH=\"$PATH\" setsid sh -c 'trap \"\" TERM; echo $$ >bare; sleep 600' &)
        while ! [ -s bare ]; do sleep 0.01; done; echo '{\"output\":1}'";
    assert_eq!(value(&fixture.run(&shell(line))), "1");
    let bare = fixture.pid("bare");
    assert!(is_alive(bare));
    fixture.host.kill_leftovers();
    assert!(!is_alive(bare));
}

/// is about processes that steps start: processes that the program itself has started for all runs are exempt.
#[cfg(target_os = "linux")]
#[test]
fn exclusive_host_exempts_what_no_step_started() {
    let ran = in_own_process("leftovers::exclusive_host_with_an_exempted_child", &[]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}

#[cfg(target_os = "linux")]
#[ignore = "run in a process of its own by `exclusive_host_exempts_what_no_step_started`"]
#[test]
fn exclusive_host_with_an_exempted_child() {
    use std::os::unix::process::CommandExt;

    let mut fixture = Fixture::with(IMPATIENT, &[]);
    fixture.host = exclusive(&fixture);
    let sleep = || std::process::Command::new("sleep").arg("600").process_group(0).spawn().expect("started");
    let (mut exempted, mut other) = (sleep(), sleep());
    etude_process::exempt(&exempted);
    fixture.host.kill_leftovers();
    assert!(exempted.try_wait().expect("a status").is_none());
    // `kill_leftovers` has reaped it, or it must be reaped here.
    assert!(other.try_wait().map_or(true, |status| status.is_some()));
    exempted.kill().expect("ended");
    exempted.wait().expect("ended");
}

#[cfg(target_os = "linux")]
fn exclusive(fixture: &Fixture) -> ProcessHost {
    use etude_process::blob::FileBlobs;
    use etude_process::sandbox::SandboxPolicy;
    use etude_process::{ChildEnvironment, HostSettings, Redaction};

    let app_dir = fixture.path("../..").canonicalize().expect("real path");
    let blobs = std::sync::Arc::new(FileBlobs::new(app_dir.join("blobs"), false));
    let settings = HostSettings { run_id: fixture.run_id.clone(), app_dir, blobs };
    let environment = ChildEnvironment::without_keys(&[]);
    let host = ProcessHost::builder(settings, environment, Redaction::NoSecrets, SandboxPolicy::Refused);
    host.grace(IMPATIENT).exclusive(true).build()
}

/// before a run is resumed, the leftovers of its dead runner are ended, in the group or not.
#[cfg(target_os = "linux")]
#[test]
fn survivors_of_a_dead_runner_are_ended() {
    let here = Fixture::new();
    let run = format!("dead-{}", std::process::id());
    let dir = here.path("").display().to_string();
    let ran = in_own_process("leftovers::die_in_the_middle", &[("TEST_RUN", &run), ("TEST_DIR", &dir)]);
    assert!(!ran.status.success(), "it aborts");
    let left = ["plain", "escaped"].map(|name| here.pid(name));
    assert!(left.iter().all(|pid| is_alive(*pid)));
    reap_survivors_of("dead");
    assert!(left.iter().all(|pid| is_alive(*pid)), "a run whose id is a prefix is another run");
    reap_survivors_of(&run);
    assert!(left.iter().all(|pid| is_dead(*pid)));
}

/// K-20: a guard ends the processes that its own worker has started. The processes of another holder that has taken the same
/// run over continue.
#[cfg(target_os = "linux")]
#[test]
fn guard_exempts_the_steps_of_another_holder() {
    let run = format!("taken-{}", std::process::id());
    let (there, here) = (Fixture::new(), Fixture::named(&run, IMPATIENT, &[]));
    let dir = there.path("").display().to_string();
    let ran = in_own_process("leftovers::die_in_the_middle", &[("TEST_RUN", &run), ("TEST_DIR", &dir)]);
    assert!(!ran.status.success(), "it aborts");
    here.output("sleep 600 & echo $! >later; echo '{\"output\":1}'");
    let left = ["plain", "escaped"].map(|name| there.pid(name));
    let holder = std::fs::read_to_string(there.path("holder")).expect("a holder");
    guard::attend(format!("={holder}+{run}\n").as_bytes());
    assert!(left.iter().all(|pid| is_dead(*pid)));
    let later = here.pid("later");
    assert!(is_alive(later));
    here.host.kill_leftovers();
    assert!(!is_alive(later));
}

/// True if the process has ended. Orphans are children of this test program or of process 1, which reaps them.
#[cfg(target_os = "linux")]
fn is_dead(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[cfg(target_os = "linux")]
#[ignore = "run in a process of its own by tests of what a dead runner left"]
#[test]
fn die_in_the_middle() {
    let (run, dir) = (std::env::var("TEST_RUN").expect("run"), std::env::var("TEST_DIR").expect("directory"));
    let fixture = Fixture::named(&run, IMPATIENT, &[]);
    fixture.output(&format!(
        "cd '{dir}'; echo $ETUDE_HOLDER >holder; exec 3>&1 >/dev/null 2>&1
        sleep 600 3>&- & echo $! >plain; setsid sh -c 'echo $$ >escaped; sleep 600' 3>&- &
        while ! [ -s escaped ]; do sleep 0.01; done; echo '{{\"output\":1}}' >&3"
    ));
    std::process::abort();
}

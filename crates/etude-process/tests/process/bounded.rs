//! Processes with a limit on their output, and with few variables (C-1.13).

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use etude_core::effect::{Inherits, ProcessCall, Setting};
use etude_core::outcome::Exit;
use etude_process::{Cancel, ChildEnvironment};

use crate::fixture::{Fixture, shell, with_time_limit};

/// C-1.13: raw bytes of any kind are returned, with the end of stderr.
#[test]
fn raw_output_is_given_back_as_it_is() {
    let fixture = Fixture::new();
    let call = shell("printf 'a\\377\\nb'; echo careful >&2; exit 3");
    let ended = with_time_limit(|| fixture.host.run_bounded(&call, &Cancel::new(), 100)).expect("no one cancelled");
    assert_eq!((ended.stdout.as_slice(), ended.exit, ended.is_too_large), (&b"a\xff\nb"[..], Exit::Status(3), false));
    assert_eq!(ended.stderr.tail, "careful\n");
}

/// C-1.13: a process that prints more than the limit is ended at once, and only the limit is kept.
#[test]
fn endless_output_ends_the_process() {
    let fixture = Fixture::with(Duration::from_secs(1), &[]);
    let call = shell("yes & wait");
    let ended = with_time_limit(|| fixture.host.run_bounded(&call, &Cancel::new(), 1_000)).expect("no one cancelled");
    assert!(ended.is_too_large);
    assert_eq!(ended.stdout.len(), 1_000);
}

/// C-1.13: nothing is written to the store, even if stderr is long.
#[test]
fn long_stderr_is_not_stored() {
    let fixture = Fixture::new();
    let call = shell("i=0; while [ $i -lt 30000 ]; do echo 'a line of noise on stderr' >&2; i=$((i+1)); done");
    let ended = with_time_limit(|| fixture.host.run_bounded(&call, &Cancel::new(), 10)).expect("no one cancelled");
    assert_eq!((ended.stderr.lines, ended.stderr.blob), (30_000, None));
    let blobs = fixture.path("").join("../../blobs");
    assert!(!blobs.exists() || fs::read_dir(blobs).expect("a directory").count() == 0);
}

/// B-20.4: a hook inherits the variables by which programs are found and started, and no others.
#[test]
fn a_hook_inherits_the_basics() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let basics = ["HOME", "LC_ALL", "XDG_CONFIG_HOME", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "TZ"];
    let others = ["DEPLOY_TOKEN", "AWS_SECRET_ACCESS_KEY", "PYTHONSTARTUP", "HTTPS_PROXY", "ETUDE_SERVER", "HOMEPAGE"];
    let given = |name: &&str| (OsString::from(name), OsString::from("x"));
    let variables = basics.iter().chain(&others).map(given).chain([(OsString::from("PATH"), path)]).collect();
    let fixture = Fixture::inheriting(ChildEnvironment::only(variables));
    let names = |inherits: Inherits| {
        let call = shell("env");
        let call = ProcessCall { setting: Setting { inherits, ..Setting::default() }, ..call };
        let ended =
            with_time_limit(|| fixture.host.run_bounded(&call, &Cancel::new(), 10_000)).expect("no one cancelled");
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let (all, hook) = (names(Inherits::All), names(Inherits::Basics));
    let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
    for name in basics.iter().chain(&["PATH", "ETUDE_RUN_ID", "ETUDE_EFFECT_ID", "ETUDE_APP_DIR"]) {
        assert!(has(&all, name) && has(&hook, name), "{name}: {hook:?}");
    }
    for name in others {
        assert!(has(&all, name) && !has(&hook, name), "{name}: {hook:?}");
    }
}

/// C-1.13, AA-55: only the named variables are inherited.
#[test]
fn a_chosen_environment_replaces_ours() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let variables = vec![(OsString::from("PATH"), path), (OsString::from("GRANTED"), OsString::from("yes"))];
    let fixture = Fixture::inheriting(ChildEnvironment::only(variables));
    let ended =
        with_time_limit(|| fixture.host.run_bounded(&shell("env"), &Cancel::new(), 10_000)).expect("no one cancelled");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    assert!(names.contains(&"GRANTED"), "{text}");
    let known =
        |name: &str| name.starts_with("ETUDE_") || ["PATH", "GRANTED", "PWD", "SHLVL", "_", "OLDPWD"].contains(&name);
    assert!(names.iter().all(|name| known(name)), "{text}");
}

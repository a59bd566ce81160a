use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn started(dir: &Path, command: &Command) -> Result<Vec<String>, String> {
    let path = env::var_os("PATH");
    let launch = resolve(command, dir, path.as_deref())?;
    let launch = in_place(launch, command, dir, path.as_deref())?;
    Ok([launch.name].into_iter().chain(launch.args).collect())
}

/// a script is started by its `#!` line, else by its extension, also where `exec` would ask a shell. A file that
/// is neither a script nor a program is refused with the usual message.
#[test]
fn what_is_started_in_place_of_something_is_no_guess_of_a_shell() {
    let dir = tempfile::tempdir().expect("directory");
    for (name, text, mode) in [
        ("named.py", &b"#!/bin/sh\n"[..], 0o755),
        ("plain.py", b"print()\n", 0o755),
        ("empty.sh", b"", 0o755),
        ("plain", b"echo\n", 0o755),
        ("binary", b"ab\0cd", 0o755),
        ("resting", b"echo\n", 0o644),
    ] {
        let file = dir.path().join(name);
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("mode");
    }
    let script = |name: &str| started(dir.path(), &Command::Script(name.to_owned()));
    assert_eq!(script("named.py").expect("started"), ["named.py"]);
    assert_eq!(script("plain.py").expect("started"), ["python3", "plain.py"]);
    assert_eq!(script("empty.sh").expect("started"), ["sh", "empty.sh"]);
    assert!(script("plain").is_err_and(|why| why.contains("give it a `#!` line")));
    let direct = |name: &str| started(dir.path(), &Command::Direct(vec![format!("./{name}"), "x".to_owned()]));
    let why = "`./plain` is neither a program of this machine nor a script with a `#!` line";
    assert_eq!(direct("plain"), Err(why.to_owned()));
    assert!(direct("plain.py").is_err_and(|why| why.ends_with("; name an interpreter: `python3 ./plain.py`")));
    // The system judges these, since it knows more kinds of programs than etude.
    for name in ["named.py", "binary", "resting", "missing"] {
        assert_eq!(direct(name).expect("started"), [format!("./{name}"), "x".to_owned()]);
    }
    assert_eq!(started(dir.path(), &Command::Shell("exit".to_owned())).expect("started"), ["sh", "-c", "exit"]);
}

/// a Windows line end or a byte order mark is named, instead of the error that the system makes of it.
#[test]
fn first_lines_of_other_editors_are_named() {
    let dir = tempfile::tempdir().expect("directory");
    for (name, text) in [
        ("env.py", "#!/usr/bin/env python3\r\nprint()\r\n"),
        ("option.py", "#!/usr/bin/env -S python3 -u\r\n"),
        ("perl.pl", "#!/usr/bin/perl -w\r\n"),
        ("sound.py", "#! /usr/bin/env python3\n\r\n"),
        ("mark.py", "\u{feff}#!/usr/bin/env python3\n"),
    ] {
        let file = dir.path().join(name);
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("mode");
    }
    let direct = |name: &str| started(dir.path(), &Command::Direct(vec![format!("./{name}")]));
    let why = "the `#!` line of `./env.py` ends in a carriage return; save the file with Unix line ends";
    assert_eq!(direct("env.py"), Err(why.to_owned()));
    assert!(started(dir.path(), &Command::Script("env.py".to_owned())).is_err_and(|why| why.contains("carriage")));
    let why = "a byte order mark precedes the `#!` line of `./mark.py`; save the file as UTF-8 without one";
    assert_eq!(direct("mark.py"), Err(why.to_owned()));
    for name in ["option.py", "perl.pl", "sound.py"] {
        assert!(direct(name).is_ok(), "{name}");
    }
}

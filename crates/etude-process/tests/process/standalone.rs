//! Programs that no run attends.

use std::process::Stdio;

use etude_process::{ChildEnvironment, SECRET_VARIABLES, detached, standalone};

use crate::fixture::in_own_process;

/// The lines that the shell prints for `line`.
fn lines(environment: ChildEnvironment, line: &str) -> Vec<String> {
    let done = standalone("/bin/sh", environment).args(["-c", line]).output().expect("started");
    String::from_utf8(done.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// a program gets the variables that were chosen for it, and an empty stdin.
#[test]
fn standalone_program_has_exactly_its_variables_and_no_input() {
    let environment = ChildEnvironment::only(vec![("ONE".into(), "1".into())]).with([("TWO".to_owned(), "2".into())]);
    assert_eq!(lines(environment, "cat; echo \"$ONE$TWO${PATH_OF_OURS-none}${HOME-none}\""), ["12nonenone"]);
}

/// only a program that is a model gets provider keys; secrets that etude uses are left out everywhere.
#[test]
fn keys_are_left_out_by_the_name_of_the_environment() {
    let env = SECRET_VARIABLES.map(|name| (name, "canary"));
    let env: Vec<_> = env.into_iter().chain([("WITHHELD", "canary"), ("KEPT", "kept")]).collect();
    let printed = in_own_process("standalone::prints_what_each_environment_leaves", &env);
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains("without_keys: kept;without: canary kept;named: kept;"), "{printed}");
}

#[test]
#[ignore = "started by a test that sets the environment"]
fn prints_what_each_environment_leaves() {
    let withheld = ["WITHHELD".to_owned()];
    for (name, environment) in [
        ("without_keys", ChildEnvironment::without_keys(&withheld)),
        ("without", ChildEnvironment::without(&withheld)),
        ("named", ChildEnvironment::named(&["KEPT", "PATH"])),
    ] {
        print!("{name}: {};", lines(environment, "echo $OPENAI_API_KEY $WITHHELD $KEPT").join("\n"));
    }
}

/// A detached program leads its own group: Ctrl-C in the terminal goes to a group.
#[test]
fn detached_program_leads_its_group() {
    let mut child = detached("cat", ChildEnvironment::named(&["PATH"])).stdin(Stdio::piped()).spawn().expect("started");
    let id = rustix::process::Pid::from_child(&child);
    assert_eq!(rustix::process::getpgid(Some(id)), Ok(id));
    drop(child.stdin.take());
    assert!(child.wait().expect("ended").success());
}

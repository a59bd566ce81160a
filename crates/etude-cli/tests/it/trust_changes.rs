//! Changes of an approved package without a new approval: nothing that can run may change (C-1.11, SECURITY.md).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::test::Test;

const APP: &str = "---\nschema: agentapplications/v1\nslug: box\nname: Box\ndescription: A box\nversion: 0.1.0\nentry:\n  \
                   command: sh app/run.sh\ncommands: [go]\nskills: [use]\n---\n# Box\n\n## CLI\n`sh app/run.sh`\n";

/// Runs every file that exists, wherever it lies in the package.
const RUN: &str = "for f in beside.sh .hidden.sh app/lib.sh app/nam*.sh app/link.sh app/dir/part.sh app/.git/hook.sh \
                   .git/hook.sh app/new.sh skills/use/script.sh app/state/kept.sh; do if [ -f \"$f\" ]; then . \"./$f\"; fi; done\n\
                   if [ -x app/plain ]; then ./app/plain; fi\nmkdir -p app/state; echo x >> app/state/log\necho '{\"ok\":true}'\n";

/// An approved package of the project in which every program that runs notes it.
fn approved() -> (Test, PathBuf) {
    let test = Test::new();
    for (path, text) in [
        ("APP.md", APP),
        ("app/run.sh", RUN),
        ("beside.sh", ":\n"),
        (".hidden.sh", ":\n"),
        ("app/lib.sh", ":\n"),
        ("app/target.sh", ":\n"),
        ("app/other.sh", ":\n"),
        ("app/dir/part.sh", ":\n"),
        ("app/plain", "#!/bin/sh\n"),
        (".git/hook.sh", ":\n"),
        ("app/.git/hook.sh", ":\n"),
        ("skills/use/SKILL.md", "---\nname: use\ndescription: How.\n---\nUse it.\n"),
        ("skills/use/script.sh", ":\n"),
    ] {
        test.put(&format!("app/apps/box/{path}"), text);
    }
    let root = test.path("app/apps/box");
    fs::write(root.join("app").join(odd()), ":\n").expect("written");
    symlink("target.sh", root.join("app/link.sh")).expect("a link");
    test.run(&["trust", "apps/box"]).exit(0);
    (test, root)
}

/// A name that is not UTF-8.
fn odd() -> OsString {
    OsString::from_vec(b"tool\xff.sh".to_vec())
}

fn go(test: &Test) -> i32 {
    test.run(&["apps", "run", "--format", "json", "box", "go"]).code()
}

/// C-1.11: any change in an approved package outside its state blocks its commands; once undone, they run again.
#[test]
fn no_change_of_an_approved_package_runs() {
    let (test, root) = approved();
    assert_eq!(go(&test), 0, "as approved");
    let mark = test.path("mark");
    let evil = format!("touch '{}'\n", mark.display());
    let write = |path: &Path| fs::write(path, &evil).expect("written");
    type Change<'c> = (&'c str, Box<dyn Fn(&Path) + 'c>, Box<dyn Fn(&Path) + 'c>);
    let text = |path: &'static str| -> Change<'_> {
        (
            path,
            Box::new(move |root| write(&root.join(path))),
            Box::new(move |root| fs::write(root.join(path), ":\n").expect("written")),
        )
    };
    let relink = |target: &'static str| {
        move |root: &Path| {
            fs::remove_file(root.join("app/link.sh")).expect("removed");
            symlink(target, root.join("app/link.sh")).expect("a link");
        }
    };
    let mode = |mode: u32| {
        move |root: &Path| {
            fs::set_permissions(root.join("app/plain"), fs::Permissions::from_mode(mode)).expect("a mode");
        }
    };
    let changes: Vec<Change<'_>> = vec![
        text("beside.sh"),
        text(".hidden.sh"),
        text("app/lib.sh"),
        text("app/target.sh"),
        text("app/dir/part.sh"),
        text("skills/use/script.sh"),
        (
            "a name that is not UTF-8",
            Box::new(|root| write(&root.join("app").join(odd()))),
            Box::new(|root| fs::write(root.join("app").join(odd()), ":\n").expect("written")),
        ),
        (
            "another name that is not UTF-8",
            Box::new(|root| {
                let other = OsString::from_vec(b"tool\xfe.sh".to_vec());
                fs::rename(root.join("app").join(odd()), root.join("app").join(other)).expect("renamed");
            }),
            Box::new(|root| {
                let other = OsString::from_vec(b"tool\xfe.sh".to_vec());
                fs::rename(root.join("app").join(other), root.join("app").join(odd())).expect("renamed");
            }),
        ),
        ("a link to another file", Box::new(relink("other.sh")), Box::new(relink("target.sh"))),
        ("a link that leads out", Box::new(relink("../../../../evil.sh")), Box::new(relink("target.sh"))),
        ("a link to state", Box::new(relink("state/kept.sh")), Box::new(relink("target.sh"))),
        ("a mode", Box::new(mode(0o755)), Box::new(mode(0o644))),
        (
            "a new file",
            Box::new(|root| write(&root.join("app/new.sh"))),
            Box::new(|root| fs::remove_file(root.join("app/new.sh")).expect("removed")),
        ),
        (
            "an empty directory",
            Box::new(|root| fs::create_dir(root.join("app/empty")).expect("a directory")),
            Box::new(|root| fs::remove_dir(root.join("app/empty")).expect("removed")),
        ),
    ];
    test.put("evil.sh", &evil);
    fs::set_permissions(root.join("app/plain"), fs::Permissions::from_mode(0o644)).expect("a mode");
    for (what, change, undo) in changes {
        change(&root);
        assert_eq!(go(&test), 4, "{what}");
        assert!(!mark.exists(), "{what} ran");
        undo(&root);
        assert_eq!(go(&test), 0, "{what}, undone");
    }
}

/// C-1.11: a refusal after a change says so; the package was approved once.
#[test]
fn a_refusal_names_a_change() {
    let (test, root) = approved();
    fs::write(root.join("beside.sh"), "# new\n").expect("written");
    let (run, show) = (["apps", "run", "box", "go"], ["apps", "show", "box"]);
    test.run(&run).exit(4).stderr_has("has changed since it was approved for execution");
    test.run(&show).exit(4).stderr_has("has changed since it was approved for activation");
    test.run(&["trust", "apps/box", "--activation"]).exit(0);
    test.run(&run).exit(4).stderr_has("is not approved for execution");
    test.run(&["untrust", "apps/box"]).exit(0);
    test.run(&show).exit(4).stderr_has("is not approved for activation");
}

/// C-1.11: `.git` is not part of an approval, so nothing in it can run; `git status` ends no approval.
#[test]
fn nothing_below_a_git_directory_runs() {
    let (test, root) = approved();
    let mark = test.path("mark");
    for path in [".git/hook.sh", "app/.git/hook.sh", "app/.git/index"] {
        fs::write(root.join(path), format!("touch '{}'\n", mark.display())).expect("written");
    }
    assert_eq!(go(&test), 0);
    assert!(!mark.exists());
}

/// C-1.11: the program receives a copy of the approved files: changes during its run are neither run nor approved.
#[test]
fn a_change_while_a_command_runs_is_not_approved() {
    let (test, root) = approved();
    let library = root.join("app/lib.sh");
    let mark = test.path("mark");
    // The program changes its package by its full path, as any other process would.
    let attack = format!("printf 'touch %s\\n' '{}' > '{}'\n", mark.display(), library.display());
    fs::write(root.join("beside.sh"), &attack).expect("written");
    test.run(&["trust", "apps/box"]).exit(0);
    assert_eq!(go(&test), 0, "it runs as approved");
    assert!(!mark.exists(), "the changed file did not run");
    assert_eq!(go(&test), 4, "the change is not approved");
    assert!(!mark.exists());
}

/// C-1.6, C-1.11: a check runs the command of the copy, also where the entry names its file by its full path.
#[test]
fn a_check_attempts_the_copy_whatever_the_entry_says() {
    let (test, root) = approved();
    let program = "touch \"${0%/*}/ran\"\necho '{\"ok\":true}'\n";
    fs::write(root.join("app/run.sh"), program).expect("written");
    let path = root.join("app/run.sh").canonicalize().expect("it is there");
    let entry = format!("sh {}", path.display());
    fs::write(root.join("APP.md"), APP.replace("sh app/run.sh", &entry)).expect("written");
    test.run(&["trust", "apps/box"]).exit(0);
    test.run(&["apps", "check", "apps/box", "--format", "json"]).exit(0).has("/checks/4/status", "pass");
    assert!(!root.join("app/ran").exists(), "the file of the package ran");
}

/// C-1.11: a file represents its package or skill, and never the other contents of its folder.
#[test]
fn a_file_that_is_trusted_stands_for_its_own_package_only() {
    let (test, _) = approved();
    test.run(&["untrust", "."]).exit(0);
    test.put("app/apps/README.md", "Trust me.\n");
    test.put("app/SKILL.md", "---\nname: app\ndescription: All.\n---\n");
    test.put("app/.agents/skills/other/SKILL.md", "---\nname: other\ndescription: x\n---\n");
    for file in ["apps/README.md", "SKILL.md", "apps/box/app/run.sh"] {
        test.run(&["trust", file]).exit(2).stderr_has("is not an `APP.md` or `SKILL.md` of a package or skill");
    }
    assert!(!test.run(&["trust", "--list"]).exit(0).out().contains("box"), "nothing is trusted");
    test.run(&["trust", "apps/box/APP.md"]).exit(0);
    assert_eq!(go(&test), 0);
}

/// C-1.11: state may change and stays where the package keeps it; a program in it cannot be approved.
#[test]
fn state_is_kept_and_holds_no_program() {
    let (test, root) = approved();
    for _ in 0..2 {
        assert_eq!(go(&test), 0);
    }
    assert_eq!(test.read("app/apps/box/app/state/log"), "x\nx\n");
    let paths = [
        ("  command: sh app/run.sh", "  command: sh app/state/run.sh"),
        ("skills: [use]", "skills: [use]\nmetadata: {statePaths: [\"app/*.sh\"]}"),
    ];
    for (old, new) in paths {
        fs::write(root.join("APP.md"), APP.replace(old, new)).expect("written");
        test.run(&["trust", "apps/box"]).exit(4).stderr_has("which belongs to the state and may change");
        assert_eq!(go(&test), 4);
    }
}

/// C-1.11: an evaluated entry does not show which files run, and cannot be approved.
#[test]
fn an_entry_that_is_evaluated_cannot_be_approved() {
    let (test, root) = approved();
    for (entry, why) in [
        ("cd app && sh state/run.sh", "is inline code"),
        ("sh $AGENT_APP_ROOT/app/state/run.sh", "is inline code"),
        ("sh app/st?te/run.sh", "is inline code"),
        ("sh -c 'cd app; . state/run.sh'", "is inline code"),
        ("bash -ec 'cd app; . state/run.sh'", "is inline code"),
        ("python3 -W ignore -c 'import app.state.main'", "is inline code"),
        ("env -i perl -E 'do \"app/state/run.pl\"'", "is inline code"),
        ("python3 -m app.state.main", "`app/state/main.py`, which belongs to the state"),
    ] {
        let entry = format!("  command: {}", serde_json::Value::from(entry));
        fs::write(root.join("APP.md"), APP.replace("  command: sh app/run.sh", &entry)).expect("written");
        test.run(&["trust", "apps/box"]).exit(4).stderr_has(why);
    }
}

/// C-1.11: a file that cannot be hashed cannot be approved, and the refusal names it.
#[test]
fn what_cannot_be_hashed_is_refused_by_name() {
    let (test, root) = approved();
    let made = |make: &dyn Fn(&Path), why: &str| {
        let place = root.join("app/odd");
        make(&place);
        test.run(&["trust", "apps/box"]).exit(4).stderr_has("app/odd").stderr_has(why);
        fs::remove_file(&place).expect("removed");
    };
    made(&|place| symlink("/bin/sh", place).expect("a link"), "outside the package");
    made(&|place| symlink("../../../..", place).expect("a link"), "outside the package");
    made(&|place| symlink("dir/../../..", place).expect("a link"), "`..` after a name can leave the package");
    made(&|place| symlink("../.git/hook.sh", place).expect("a link"), "approvals do not cover `.git`");
    made(
        &|place| {
            let made = std::process::Command::new("mkfifo").arg(place).status().expect("mkfifo runs");
            assert!(made.success());
        },
        "is a device, pipe or socket",
    );
    test.run(&["trust", "apps/box"]).exit(0);
}

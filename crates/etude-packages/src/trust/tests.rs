use std::fs;

use super::*;
use crate::approve::{Grants, approve};

const ALL: Grants = Grants { activation: true, execution: true };

fn skill(dir: &Path) {
    fs::create_dir_all(dir).expect("a directory");
    fs::write(dir.join("SKILL.md"), "---\nname: x\ndescription: d\n---\nDo it.\n").expect("a file");
}

/// True if commands in the skill may run: the skill is approved for execution, and unchanged.
fn lets_execute(approvals: &Approvals, dir: &Path) -> bool {
    approvals.executable(dir).is_some_and(|(place, content)| of_tree(place).is_ok_and(|found| found == *content))
}

/// C-1.11: an approval covers a path and its content; a change ends it.
#[test]
fn a_change_takes_an_approval_away() {
    let root = tempfile::tempdir().expect("a directory");
    let (store, dir) = (Store::new(&root.path().join("state")), root.path().join("x"));
    skill(&dir);
    approve(&store, &dir, ALL, "ada").expect("trusted");
    let approvals = store.approvals().expect("read");
    assert!(approvals.lets_activate(&dir) && lets_execute(&approvals, &dir));
    fs::write(dir.join("extra.sh"), "x").expect("a file");
    assert!(!lets_execute(&approvals, &dir) && !approvals.lets_activate(&dir));
}

/// C-0.4: a folder is trusted with everything in it; agents see later skills, but these run nothing.
#[test]
fn a_trusted_folder_shows_what_comes_later_and_runs_it_not() {
    let root = tempfile::tempdir().expect("a directory");
    let (store, folder) = (Store::new(&root.path().join("state")), root.path().join("project"));
    skill(&folder.join(".agents/skills/x"));
    approve(&store, &folder, ALL, "ada").expect("trusted");
    skill(&folder.join(".agents/skills/y"));
    let approvals = store.approvals().expect("read");
    assert!(lets_execute(&approvals, &folder.join(".agents/skills/x")));
    assert!(approvals.lets_activate(&folder.join(".agents/skills/y")));
    assert!(!lets_execute(&approvals, &folder.join(".agents/skills/y")));
    assert!(!approvals.lets_activate(root.path()));
}

/// C-0.4: a withdrawal includes everything below the path; a blocked path stays hidden.
#[test]
fn untrust_takes_back_everything_below() {
    let root = tempfile::tempdir().expect("a directory");
    let (store, folder) = (Store::new(&root.path().join("state")), root.path().join("project"));
    let dir = folder.join("skills/x");
    skill(&dir);
    approve(&store, &folder, ALL, "ada").expect("trusted");
    assert_eq!(store.untrust(&folder, false, "ada").expect("taken back").len(), 2);
    assert_eq!(store.approvals().expect("read"), Approvals::default());
    store.untrust(&folder, true, "ada").expect("blocked");
    assert!(store.approvals().expect("read").is_blocked(&dir));
}

/// C-1.11: changes of a package's own commands below `app/` stay approved, all others do not.
#[test]
fn only_payload_is_rebased() {
    let root = tempfile::tempdir().expect("a directory");
    let (store, package) = (Store::new(&root.path().join("state")), root.path().join("box"));
    fs::create_dir_all(package.join("app/state")).expect("a directory");
    fs::write(package.join("APP.md"), "---\nname: x\n---\n").expect("a file");
    let package = real(&package);
    approve(&store, &package, ALL, "ada").expect("trusted");
    let before = of_package(&package, &[]).expect("read");
    fs::write(package.join("app/state/box.json"), "{}").expect("a file");
    assert_eq!(of_package(&package, &[]).expect("read"), before, "state is left out");
    fs::write(package.join("app/cache.txt"), "x").expect("a file");
    assert_eq!(of_package(&package, &["app/cache.txt".into()]).expect("read"), before);
    assert_eq!(of_package(&package, &["app/cache*".into()]).expect("read"), before, "a glob leaves out as well");
    fs::create_dir(package.join("app/tmp")).expect("a directory");
    fs::write(package.join("app/tmp/x"), "x").expect("a file");
    assert_eq!(of_package(&package, &["app/tmp/**".into(), "app/cache*".into()]).expect("read"), before);
    fs::remove_dir_all(package.join("app/tmp")).expect("removed");
    let after = of_package(&package, &[]).expect("read");
    store.rebase(&package, &before, &after).expect("kept");
    assert_eq!(
        store.approvals().expect("read").of(&package).and_then(|known| known.content.clone()),
        Some(after.clone())
    );
    fs::write(package.join("APP.md"), "---\nname: y\n---\n").expect("a file");
    let edited = of_package(&package, &[]).expect("read");
    store.rebase(&package, &after, &edited).expect("kept");
    assert_eq!(store.approvals().expect("read").of(&package).and_then(|known| known.content.clone()), Some(after));
}

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::*;

/// SECURITY.md: files that other users put into a shared directory are not an app for anyone who works below it.
#[test]
fn no_search_finds_an_app_in_a_shared_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let shared = dir.path().join("shared");
    let own = shared.join("own/src");
    fs::create_dir_all(&own).expect("made");
    fs::create_dir(shared.join("pipelines")).expect("made");
    let mode = |mode| fs::set_permissions(&shared, Permissions::from_mode(mode)).expect("a mode");
    for (is_shared, bits) in [(false, 0o755), (false, 0o775), (true, 0o777), (true, 0o1777)] {
        mode(bits);
        let (found, passed_over) = (find(&own), of_others(&own));
        assert_eq!(found.is_none(), is_shared, "{bits:o}");
        assert_eq!(passed_over.as_deref(), is_shared.then_some(shared.as_path()), "{bits:o}");
    }
    // A user chose to enter any other directory; `/tmp` is shared by everybody.
    mode(0o777);
    assert_eq!(find(&shared).as_deref(), Some(shared.as_path()));
    mode(0o1777);
    assert_eq!(find(&shared), None);
    // The search continues past apps of other users to the nearest one of the user.
    fs::create_dir(dir.path().join("machines")).expect("made");
    assert_eq!(find(&own).as_deref(), Some(dir.path()));
}

/// a file or directory whose name is almost right does not make an app; the message names it.
#[test]
fn near_misses_of_names_are_found() {
    for (name, is_dir, meant) in [
        ("skill.md", false, Some("SKILL.md")),
        ("Skill.md", false, Some("SKILL.md")),
        ("SKILLS.md", false, Some("SKILL.md")),
        ("Pipelines", true, Some("pipelines")),
        ("pipeline", true, Some("pipelines")),
        ("machine", true, Some("machines")),
        ("pipeline", false, None),
        ("README.md", false, None),
        ("a.skill.md", false, None),
        ("src", true, None),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(name);
        if is_dir { fs::create_dir(path) } else { fs::write(path, "x") }.expect("made");
        let found = near_miss(dir.path());
        assert_eq!(found.as_ref().map(|(found, meant)| (&**found, *meant)), meant.map(|meant| (name, meant)), "{name}");
    }
}

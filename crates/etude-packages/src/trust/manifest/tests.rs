use super::*;

fn tree() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(root.path().join("app/state")).expect("a directory");
    fs::write(root.path().join("APP.md"), "text").expect("written");
    fs::write(root.path().join("app/run"), "text").expect("written");
    root
}

fn read(root: &Path) -> Manifest {
    let state = StatePaths::new(&[]);
    let keep = |_: &Path| true;
    Reading { state: Some(&state), keep: Some(&keep), copy: None }.read(root).expect("read")
}

/// C-1.11: a name and a content with a shifted boundary have different hashes.
#[test]
fn the_bounds_of_names_and_contents_are_hashed() {
    let (one, other) = (tree(), tree());
    fs::write(one.path().join("app/ab"), "c").expect("written");
    fs::write(other.path().join("app/a"), "bc").expect("written");
    assert_ne!(read(one.path()).content(), read(other.path()).content());
}

/// C-1.11: the kept text is the hashed one, through links that stay inside.
#[test]
fn texts_are_found_through_links() {
    let root = tree();
    symlink(Path::new("../APP.md"), &root.path().join("app/text")).expect("a link");
    symlink(Path::new("app"), &root.path().join("other")).expect("a link");
    symlink(Path::new("round"), &root.path().join("round")).expect("a link");
    let found = read(root.path());
    assert!(found.approvable().is_ok());
    for path in ["APP.md", "app/text", "other/text", "other/run"] {
        assert_eq!(found.text(Path::new(path)), Some(&b"text"[..]), "{path}");
    }
    for path in ["round", "nothing", "../x"] {
        assert_eq!(found.text(Path::new(path)), None, "{path}");
    }
}

/// C-1.11: a chain of links that ends in state is not approved.
#[test]
fn chains_of_links_to_state_are_refused() {
    let root = tree();
    symlink(Path::new("."), &root.path().join("app/here")).expect("a link");
    assert!(read(root.path()).approvable().is_ok());
    symlink(Path::new("here/state/run"), &root.path().join("app/tool")).expect("a link");
    let why = read(root.path()).approvable().expect_err("refused").to_string();
    assert!(why.contains("app/tool") && why.contains("symbolic link into the state"), "{why}");
}

use std::cell::Cell;
use std::path::PathBuf;
use std::thread;

use super::*;

fn routes(count: usize) -> Vec<Route> {
    (0..count)
        .map(|at| Route {
            name: format!("route-{at}"),
            description: format!("Does the thing number {at} to the {}", ["cat", "dog", "tree"][at % 3]),
            triggers: vec![format!("please do {at} now"), format!("thing {}", at * 7)],
        })
        .collect()
}

/// Returns the router, and true if it had to be built.
fn get(dir: &Path, routes: &[Route], model: Option<&str>) -> (Router, bool) {
    let is_built = Cell::new(false);
    let router = router(Some(dir), routes, model, || {
        is_built.set(true);
        Router::new(routes)
    });
    (router, is_built.get())
}

fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).map(|all| all.map(|entry| entry.expect("an entry").path()).collect()).unwrap_or_default()
}

/// an unchanged table is built once, and decides as before.
#[test]
fn an_unchanged_table_is_built_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let routes = routes(150);
    let (first, built) = get(dir.path(), &routes, None);
    assert!(built);
    let (second, built) = get(dir.path(), &routes, None);
    assert!(!built);
    assert_eq!(first.decide("thing 49 for the cat"), second.decide("thing 49 for the cat"));
    assert_eq!(files(dir.path()).len(), 1);
}

/// the file name depends on every word of a table and on the sentence model.
#[test]
fn any_change_builds_another_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut routes = routes(150);
    get(dir.path(), &routes, None);
    assert!(get(dir.path(), &routes, Some("a model")).1);
    routes[149].triggers[1].push('!');
    assert!(get(dir.path(), &routes, None).1);
    let moved = routes[0].triggers.pop().expect("a trigger");
    routes[0].triggers[0].push_str(&moved);
    assert!(get(dir.path(), &routes, None).1);
    assert_eq!(files(dir.path()).len(), 4);
}

#[test]
fn what_is_damaged_is_built_and_written_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let routes = routes(150);
    get(dir.path(), &routes, None);
    let path = files(dir.path()).remove(0);
    let whole = fs::read(&path).expect("a file");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() - 1], &whole[..20], b""] {
        fs::write(&path, damaged).expect("written");
        assert!(get(dir.path(), &routes, None).1);
        assert_eq!(fs::read(&path).expect("a file"), whole);
    }
}

#[test]
fn small_tables_and_places_that_cannot_be_written_are_no_trouble() {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(get(dir.path(), &routes(20), None).1);
    assert!(files(dir.path()).is_empty());
    let file = dir.path().join("file");
    fs::write(&file, "").expect("written");
    assert!(get(&file, &routes(150), None).1);
    assert!(get(&file, &routes(150), None).1);
}

#[test]
fn writers_at_the_same_time_leave_one_sound_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let routes = routes(150);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| get(dir.path(), &routes, None));
        }
    });
    assert!(!get(dir.path(), &routes, None).1);
    assert_eq!(files(dir.path()).len(), 1);
}

#[test]
fn only_the_newest_are_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = dir.path().join("x.router.1-2");
    fs::write(&old, "").expect("written");
    let long_ago = SystemTime::now() - 2 * ABANDONED;
    fs::File::options().write(true).open(&old).and_then(|file| file.set_modified(long_ago)).expect("set");
    for at in 0..KEPT + 3 {
        get(dir.path(), &routes(1), Some(&at.to_string()));
        // Some file systems keep times in steps of ten milliseconds.
        thread::sleep(Duration::from_millis(12));
    }
    assert_eq!(files(dir.path()).len(), KEPT);
    assert!(!get(dir.path(), &routes(1), Some(&(KEPT + 2).to_string())).1);
}

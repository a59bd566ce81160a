use std::io::{Read, Seek, SeekFrom};

use super::*;

const BOTH: [(Access, Durability); 2] = [(Access::Owner, Durability::Power), (Access::Mask, Durability::Process)];

fn names(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<_> =
        fs::read_dir(dir).expect("a directory").map(|one| one.expect("entry").file_name()).collect();
    names.sort();
    names
}

#[test]
fn the_new_content_stands_in_the_place_of_the_old_one() {
    for (access, durability) in BOTH {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("file.json");
        replace(&place, b"one, which is longer", access, durability).expect("created");
        replace(&place, b"two", access, durability).expect("replaced");
        assert_eq!(fs::read_to_string(&place).expect("read"), "two");
        assert_eq!(names(dir.path()), ["file.json"]);
    }
}

#[test]
fn a_reader_of_the_old_file_keeps_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("file");
    replace(&place, b"old", Access::Owner, Durability::Process).expect("created");
    let mut reader = File::open(&place).expect("opened");
    replace(&place, b"new", Access::Owner, Durability::Process).expect("replaced");
    let mut text = String::new();
    reader.seek(SeekFrom::Start(0)).and_then(|_| reader.read_to_string(&mut text)).expect("read");
    assert_eq!(text, "old");
}

#[test]
fn a_part_that_is_not_put_in_place_goes_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("file");
    fs::write(&place, "old").expect("written");
    let part = Part::create(&place, Access::Owner).expect("created");
    part.file().write_all(b"half of").expect("written");
    assert_eq!(names(dir.path()).len(), 2);
    drop(part);
    assert_eq!(names(dir.path()), ["file"]);
    assert_eq!(fs::read_to_string(&place).expect("read"), "old");
}

#[test]
fn two_parts_of_a_place_are_two_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("file");
    let parts = [1, 2].map(|_| Part::create(&place, Access::Mask).expect("created"));
    assert_eq!(names(dir.path()).len(), 2);
    for (part, content) in parts.into_iter().zip(["first", "last"]) {
        part.file().write_all(content.as_bytes()).expect("written");
        part.put_in_place(Durability::Process).expect("in place");
    }
    assert_eq!(fs::read_to_string(&place).expect("read"), "last");
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn a_directory_stays_and_the_part_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("taken");
    fs::create_dir(&place).expect("created");
    assert!(replace(&place, b"x", Access::Owner, Durability::Power).is_err());
    assert_eq!(names(dir.path()), ["taken"]);
    let why = replace(Path::new(".."), b"x", Access::Owner, Durability::Power).expect_err("no file");
    assert_eq!(why.to_string(), "it has no file name");
}

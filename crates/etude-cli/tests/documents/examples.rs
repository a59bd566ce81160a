//! Replays the examples of the documents, and runs the tests of the example apps.
//!
//! `<!-- file: PATH -->` above a block makes it a file of a small app. `<!-- run: demo -->` runs the commands of a block (lines
//! with `$ `) in that app, `<!-- run -->` in a copy of this repository's examples. Their output must match the block, except
//! for times and ids of runs. Other marks are in `readme.rs`.

use crate::markdown::blocks;
use crate::place::{Place, examples, marked};
use crate::{documents, read, root};

/// Writes the files that a document shows and runs its demos in the resulting app. Returns the number of demos.
#[track_caller]
fn replay_app(path: &str) -> usize {
    let document = read(path);
    let place = Place::new();
    for block in blocks(&document) {
        if let Some(file) = block.marker.as_deref().and_then(|marker| marker.strip_prefix("file: ")) {
            place.write(file, &block.text);
        }
    }
    let (status, text) = place.run(
        "git init -q . && git add . && git -c user.name=Ada -c user.email=ada@example.org commit -q -m 'add up prices'",
    );
    assert_eq!(status, 0, "{path}: {text}");
    let demos = marked(&document, "run: demo");
    for block in &demos {
        // The words of a model are not checked: the shown response and token count are what the mock returns here.
        let words: Vec<&str> = block.text.split_whitespace().collect();
        let tokens = words.windows(2).find(|pair| pair[1].starts_with("tokens")).and_then(|pair| pair[0].parse().ok());
        place.answer_with(block.text.trim_end().lines().last().unwrap_or_default(), tokens.unwrap_or(0));
        place.replay(path, block);
    }
    demos.len()
}

#[test]
fn the_pipelines_of_the_readme_run_as_shown() {
    assert!(replay_app("README.md") > 0, "README.md has no block marked `run: demo`");
}

#[test]
fn the_apps_that_pages_show_run_as_shown() {
    let with_files = |path: &String| read(path).contains("<!-- file: ");
    let pages: Vec<String> =
        documents().into_iter().filter(|path| path.starts_with("docs/")).filter(with_files).collect();
    assert!(pages.len() >= 4, "only these pages show an app: {pages:?}");
    for path in pages.iter().filter(|path| *path != "docs/configuration.md") {
        assert!(replay_app(path) > 0, "{path} shows files and no demo of them");
    }
}

#[test]
fn marked_commands_do_what_is_shown() {
    let place = examples();
    let mut count = 0;
    for path in documents() {
        for block in marked(&read(&path), "run") {
            place.replay(&path, &block);
            count += 1;
        }
    }
    assert!(count > 0, "no block is marked `run`");
}

#[test]
fn every_marker_is_one_that_is_known() {
    for path in documents() {
        for block in blocks(&read(&path)) {
            let Some(marker) = block.marker else { continue };
            let is_known = ["run", "run: demo", "run: clone", "run: crash", "run: key"].contains(&marker.as_str())
                || marker.starts_with("file: ");
            assert!(is_known, "{path}: `<!-- {marker} -->`");
        }
    }
}

#[test]
fn examples_pass_their_own_tests_without_a_model() {
    let place = examples();
    for entry in std::fs::read_dir(place.work().join("examples")).expect("the copy is there") {
        let name = entry.expect("it can be listed").file_name().into_string().expect("names are UTF-8");
        let (status, text) = place.run(&format!("etude check -C examples/{name} && etude test -C examples/{name}"));
        assert_eq!(status, 0, "{name}:\n{text}");
    }
}

#[test]
fn recordings_name_no_place_of_the_machine_that_made_them() {
    let mut count = 0;
    let mut left = vec![root().join("examples")];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).expect("the directory is there") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                left.push(path);
            } else if path.components().any(|part| part.as_os_str() == "recordings") {
                let text = std::fs::read_to_string(&path).expect("recordings are text");
                for folder in ["home", "Users", "root", "work", "tmp", "var"] {
                    assert!(!text.contains(&format!("/{folder}/")), "{}: a path in /{folder}", path.display());
                }
                assert!(!text.contains("127.0.0.1"), "{}: an address", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 0, "there are no recordings");
}

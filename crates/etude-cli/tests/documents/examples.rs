//! What README.md shows is done again, and the examples pass their own tests.
//!
//! `<!-- file: PATH -->` above a block makes it a file of a small app. `<!-- run: demo -->` runs the commands of a block
//! (lines with `$ `) in that app, `<!-- run -->` in a copy of this repository's examples; what they print must be what
//! the block shows, but for times and ids of runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::markdown::{Block, blocks};
use crate::transcript::{difference, run_ids};
use crate::{documents, read, root};

/// The model with which README.md was written.
const MODEL: &str = "loopback/qwen2.5-coder-1.5b";

/// A place to run commands in, away from the user's home and from every model.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("there is room for temporary files");
        std::fs::create_dir_all(dir.path().join("home/.config/etude")).expect("a directory can be made");
        std::fs::create_dir_all(dir.path().join("work")).expect("a directory can be made");
        Self { dir }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.work().join(path);
        std::fs::create_dir_all(path.parent().expect("the path has a parent")).expect("a directory can be made");
        std::fs::write(path, text).expect("a file can be written");
    }

    /// Makes every tier answer with this text, as a program that also says how many tokens it took.
    fn answer_with(&self, text: &str, tokens: u64) {
        let answer = json!({"type": "result", "result": text, "usage": {"input_tokens": tokens, "output_tokens": 0}});
        let path = self.dir.path().join("answer.json");
        std::fs::write(&path, answer.to_string()).expect("a file can be written");
        let config = format!(
            "model_mapping: {{lite: {MODEL}, standard: {MODEL}, reasoning: {MODEL}}}\n\
             providers: {{loopback: {{kind: command, command: \"cat {}\"}}}}\n",
            path.display()
        );
        std::fs::write(self.dir.path().join("home/.config/etude/config.yaml"), config).expect("a file can be written");
    }

    /// Runs a command line as a user would; its exit status, and its output as it looks on a terminal.
    fn run(&self, line: &str) -> (i32, String) {
        let home = self.dir.path().join("home");
        let binary = Path::new(env!("CARGO_BIN_EXE_etude")).parent().expect("the binary lies in a directory");
        let path = std::env::join_paths(
            std::iter::once(binary.to_owned())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        let done = Command::new("sh")
            .args(["-c", &line.replace("cargo run --release -- ", "etude ")])
            .current_dir(self.work())
            .env_clear()
            .env("PATH", path.expect("PATH has no strange names"))
            .env("HOME", &home)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .expect("a shell can be started");
        let stdout = String::from_utf8_lossy(&done.stdout).into_owned();
        // A string is printed as text on a terminal.
        let text = serde_json::from_str::<String>(&stdout).map_or(stdout, |text| text + "\n");
        (done.status.code().unwrap_or(-1), String::from_utf8_lossy(&done.stderr).into_owned() + &text)
    }

    /// Runs the commands of a block and compares what they print.
    #[track_caller]
    fn replay(&self, document: &str, block: &Block) {
        let mut ids: Vec<(String, String)> = Vec::new();
        for command in format!("\n{}", block.text).split("\n$ ").filter(|command| !command.trim().is_empty()) {
            let (line, shown) = command.split_once('\n').unwrap_or((command, ""));
            let (status, seen) = self.run(&with_ids_of_now(line, &ids));
            assert_eq!(status, 0, "{document}: {line}\n{seen}");
            ids.extend(run_ids(shown).into_iter().zip(run_ids(&seen)));
            if let Some(difference) = difference(shown.trim_end(), seen.trim_end()) {
                panic!("{document}: {line}\n{difference}\n\nAll of it:\n{seen}");
            }
        }
    }
}

/// A command line as it is shown, with the runs of now in place of those that were shown.
fn with_ids_of_now(line: &str, ids: &[(String, String)]) -> String {
    let of_now = |word: &str| {
        let is_prefix = |(shown, _): &&(String, String)| word.len() >= 4 && shown.starts_with(word);
        ids.iter().find(is_prefix).map_or(word.to_owned(), |(_, now)| now.clone())
    };
    line.split(' ').map(of_now).collect::<Vec<_>>().join(" ")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory can be made");
    for entry in std::fs::read_dir(from).expect("the directory is there") {
        let entry = entry.expect("it can be listed");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("it has a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// A copy of the examples, as the repository has them.
fn examples() -> Place {
    let place = Place::new();
    copy(&root().join("examples"), &place.work().join("examples"));
    place
}

fn marked(document: &str, marker: &str) -> Vec<Block> {
    blocks(document).into_iter().filter(|block| block.marker.as_deref() == Some(marker)).collect()
}

/// Writes the files that a document shows and runs its demos in the app that they make. The number of demos.
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
        // A model's words are not checked: what is shown as its answer, and as its tokens, is what it says here.
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
            let is_known = ["run", "run: demo"].contains(&marker.as_str()) || marker.starts_with("file: ");
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

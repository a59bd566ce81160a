//! Directory in which commands run as a reader of the documents runs them, away from the user's home and from every model.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::markdown::{Block, blocks};
use crate::root;
use crate::transcript::{difference, run_ids};

/// Model with which README.md was written.
const MODEL: &str = "local/qwen2.5-coder-1.5b";

/// Exit status that a shell reports for a process killed with `kill -9`.
const KILLED: i32 = 137;

/// A separate home and working directory.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("there is room for temporary files");
        std::fs::create_dir_all(dir.path().join("home/.config/etude")).expect("a directory can be made");
        std::fs::create_dir_all(dir.path().join("work")).expect("a directory can be made");
        Self { dir }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.work().join(path);
        std::fs::create_dir_all(path.parent().expect("the path has a parent")).expect("a directory can be made");
        std::fs::write(path, text).expect("a file can be written");
    }

    /// Makes every tier respond with this text, through a program that also reports a token count.
    pub(crate) fn answer_with(&self, text: &str, tokens: u64) {
        let answer = json!({"type": "result", "result": text, "usage": {"input_tokens": tokens, "output_tokens": 0}});
        let path = self.dir.path().join("answer.json");
        std::fs::write(&path, answer.to_string()).expect("a file can be written");
        let config = format!(
            "model_mapping: {{lite: {MODEL}, standard: {MODEL}, reasoning: {MODEL}}}\n\
             providers: {{local: {{kind: command, command: \"cat {}\"}}}}\n",
            path.display()
        );
        self.configure(&config);
    }

    /// Writes the user's configuration.
    pub(crate) fn configure(&self, text: &str) {
        std::fs::write(self.dir.path().join("home/.config/etude/config.yaml"), text).expect("a file can be written");
    }

    /// Runs a command line as a user would. Returns its exit status, and its output as on a terminal.
    pub(crate) fn run(&self, line: &str) -> (i32, String) {
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
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        // A shell that replaces itself by its only command ends like that command; another shell reports the status.
        match done.status.code().unwrap_or(KILLED) {
            KILLED => (KILLED, stderr.trim_end().trim_end_matches("Killed").to_owned() + &text + "Killed\n"),
            status => (status, stderr + &text),
        }
    }

    /// Runs the commands of a block and compares their output.
    #[track_caller]
    pub(crate) fn replay(&self, document: &str, block: &Block) {
        let mut ids: Vec<(String, String)> = Vec::new();
        for command in format!("\n{}", block.text).split("\n$ ").filter(|command| !command.trim().is_empty()) {
            let (line, shown) = command.split_once('\n').unwrap_or((command, ""));
            let (status, seen) = self.run(&with_ids_of_now(line, &ids));
            let expected = if shown.trim_end().ends_with("Killed") { KILLED } else { 0 };
            assert_eq!(status, expected, "{document}: {line}\n{seen}");
            ids.extend(run_ids(shown).into_iter().zip(run_ids(&seen)));
            if let Some(difference) = difference(shown.trim_end(), seen.trim_end()) {
                panic!("{document}: {line}\n{difference}\n\nAll of it:\n{seen}");
            }
        }
    }
}

/// A command line as shown, with the ids of the current runs instead of the shown ones.
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

/// A copy of the repository's examples.
pub(crate) fn examples() -> Place {
    let place = Place::new();
    copy(&root().join("examples"), &place.work().join("examples"));
    place
}

pub(crate) fn marked(document: &str, marker: &str) -> Vec<Block> {
    blocks(document).into_iter().filter(|block| block.marker.as_deref() == Some(marker)).collect()
}

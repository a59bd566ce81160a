//! Checks that the documents match the command line of the binary built with them.

#![expect(clippy::disallowed_methods, reason = "tests start programs to look at this one from outside")]

mod examples; // repeats the examples of the documents
#[path = "../../../etude-models/tests/it/loopback.rs"]
#[allow(dead_code, reason = "the tests of the models crate use more of it")]
mod loopback; // HTTP for scripted servers, as the tests of the models crate have it
mod markdown; // code blocks, code spans and markers of a document
mod mentions; // every command line that a document mentions
mod place; // a home and a directory to run commands in
mod promises; // exit statuses, versions, sizes
mod readme; // repeats the examples of README.md
mod schemas; // schemas in the repository
mod transcript; // two texts, except for the parts that differ from run to run
mod usage; // the arguments that the help of the binary lists

use std::path::{Path, PathBuf};

/// Root of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies two levels below the repository").to_owned()
}

/// Text of a document, by its path in the repository.
#[track_caller]
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("`{path}` cannot be read: {error}"))
}

/// Sorted paths of the documents that people read.
fn documents() -> Vec<String> {
    let mut found: Vec<String> = ["", "docs", "docs/adr", "docs/errors", "docs/guides", "docs/spec"]
        .into_iter()
        .flat_map(files)
        .filter(|path| path.ends_with(".md"))
        .collect();
    let examples = std::fs::read_dir(root().join("examples")).expect("there are examples");
    for example in examples {
        let name = example.expect("it can be listed").file_name().into_string().expect("names are UTF-8");
        found.push(format!("examples/{name}/README.md"));
    }
    found.push("crates/etude-cli/src/command/new/app/README.md".to_owned());
    found.sort();
    found
}

fn files(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("`{folder}`: {error}"));
    let names =
        entries.map(|entry| entry.expect("it can be listed").file_name().into_string().expect("names are UTF-8"));
    names.map(|name| if folder.is_empty() { name } else { format!("{folder}/{name}") }).collect()
}

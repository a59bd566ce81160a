//! Checks that the JSON Schemas in the repository, which editors read from there, equal those that the program prints.

use std::process::Command;

use crate::{files, read, root};

const KINDS: [&str; 7] = ["application", "config", "machine", "pipeline", "skill", "stage", "test"];

/// `UPDATE=1` writes the schemas.
#[test]
fn the_schemas_in_the_repository_are_current() {
    let is_update = std::env::var_os("UPDATE").is_some();
    for kind in KINDS {
        let path = format!("schemas/{kind}.json");
        let done =
            Command::new(env!("CARGO_BIN_EXE_etude")).args(["schema", kind]).output().expect("the binary starts");
        assert!(done.status.success(), "`etude schema {kind}`: {}", done.status);
        let printed = String::from_utf8(done.stdout).expect("a schema is UTF-8");
        if is_update {
            std::fs::write(root().join(&path), &printed).expect("it can be written");
        }
        assert!(read(&path) == printed, "`{path}` is stale: UPDATE=1 cargo test -p etude-cli --test documents schemas");
    }
    let mut found = files("schemas");
    found.sort();
    assert_eq!(found, KINDS.map(|kind| format!("schemas/{kind}.json")));
}

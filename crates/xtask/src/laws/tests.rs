//! Tests that every law can fail.

use super::*;

fn source(package: &str, file: &str, text: &str) -> Vec<(String, String)> {
    vec![(format!("crates/{package}/src/{file}"), text.to_owned())]
}

fn manifest(package: &str, text: &str) -> Vec<(String, String)> {
    vec![(format!("crates/{package}/Cargo.toml"), text.to_owned())]
}

fn tree(files: &[(String, String)]) -> Tree {
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    Tree::made_up(&files)
}

#[track_caller]
fn broken(law: u8, files: &[(String, String)]) {
    assert!(!absences(&tree(files), law).is_empty(), "law {law} does not see {files:?}");
}

#[track_caller]
fn kept(law: u8, files: &[(String, String)]) {
    assert_eq!(absences(&tree(files), law), [], "law {law}");
}

#[test]
fn law_1_sees_io_clocks_randomness_async_and_unordered_maps_in_core() {
    for text in [
        "use std::fs;",
        "use std::{sync::Arc, time::Instant};",
        "fn f() { std::env::var(\"A\"); }",
        "use std::collections::{BTreeMap, HashMap};",
        "async fn f() {}",
        "fn f() { std::thread::spawn(g); }",
        "struct YamlNode;",
        "fn f() { println!(\"x\"); }",
    ] {
        broken(1, &source("etude-core", "a.rs", text));
    }
    for name in ["tokio", "rand_core", "granit-parser", "futures-util"] {
        broken(1, &manifest("etude-core", &format!("[dependencies]\n{name}.workspace = true\n")));
    }
    assert_eq!(
        core_dependencies(&tree(&manifest("etude-core", "[dependencies]\nserde = \"1\"\nleft-pad = \"1\"\n"))).len(),
        1
    );
}

#[test]
fn law_1_lets_comments_strings_tests_and_other_crates_be() {
    for text in [
        "// std::fs",
        "//! async",
        "const A: &str = \"std::env::var\";",
        "#[cfg(test)]\nmod tests { use std::fs; }",
        "use std::collections::BTreeMap; use std::time::Duration;",
    ] {
        kept(1, &source("etude-core", "a.rs", text));
    }
    kept(1, &source("etude-runtime", "a.rs", "use std::fs;"));
    kept(1, &source("etude-core", "machine/tests.rs", "use std::fs;"));
    kept(1, &manifest("etude-core", "[dev-dependencies]\ntokio.workspace = true\n"));
}

#[test]
fn law_2_sees_files_processes_and_async_in_spec() {
    for text in
        ["use std::fs::File;", "fn f() { std::process::Command::new(a); }", "async fn f() {}", "use std::net::*;"]
    {
        broken(2, &source("etude-spec", "a.rs", text));
    }
    broken(2, &manifest("etude-spec", "[dependencies]\nreqwest.workspace = true\n"));
}

#[test]
fn law_3_sees_sql_yaml_and_printing_in_runtime() {
    for text in ["fn f() { eprintln!(); }", "use std::io::stdout;", "mod sqlite;", "struct Yaml;"] {
        broken(3, &source("etude-runtime", "a.rs", text));
    }
    broken(3, &manifest("etude-runtime", "[dependencies]\nclap_complete.workspace = true\n"));
    kept(3, &source("etude-runtime", "a.rs", "fn f(out: &mut Vec<u8>) { writeln!(out, \"x\"); }"));
}

#[test]
fn law_4_sees_plans_and_journals_in_models() {
    for text in ["use etude_core::plan::Plan;", "use etude_core::{model::Request, machine};", "struct JournalEntry;"] {
        broken(4, &source("etude-models", "a.rs", text));
    }
    kept(4, &source("etude-models", "a.rs", "use etude_core::model::Request;"));
}

#[test]
fn law_5_sees_step_kinds_and_other_engines_in_an_engine() {
    broken(5, &source("etude-sqlite", "a.rs", "use etude_core::plan::Step;"));
    broken(5, &source("etude-sqlite", "a.rs", "fn f(kind: StepKind) {}"));
    broken(5, &source("etude-sqlite", "a.rs", "use etude_runtime::driver::Drive;"));
    broken(5, &source("etude-postgres", "a.rs", "use rusqlite::Connection;"));
    broken(5, &manifest("etude-postgres", "[dependencies]\netude-sqlite.workspace = true\n"));
    kept(5, &source("etude-sqlite", "a.rs", "use etude_runtime::engine::{Engine, Session};"));
}

#[test]
fn law_5_sees_an_engine_that_skips_the_conformance_suite() {
    let mut files = manifest("etude-sqlite", "");
    assert_eq!(conformance(&tree(&files)).len(), 1);
    files.push(("crates/etude-sqlite/tests/it/a.rs".to_owned(), "// conformance::all(x)".to_owned()));
    assert_eq!(conformance(&tree(&files)).len(), 1);
    files.push(("crates/etude-sqlite/tests/it/b.rs".to_owned(), "fn f() { conformance::all(&make); }".to_owned()));
    assert_eq!(conformance(&tree(&files)), []);
}

#[test]
fn law_6_sees_printing_environment_and_exits_outside_the_command_line() {
    for text in [
        "fn f() { println!(); }",
        "use std::env;\nfn f() { env::var_os(\"A\"); }",
        "fn f() { std::process::exit(1) }",
        "use std::process::{self, ExitCode};",
    ] {
        broken(6, &source("etude", "a.rs", text));
        kept(6, &source("etude-cli", "a.rs", text));
    }
    broken(6, &source("etude-process", "other.rs", "use std::env::vars_os;"));
    kept(6, &source("etude-process", "environment.rs", "use std::env::vars_os;"));
    broken(6, &source("etude-tools", "environment.rs", "use std::env::vars_os;"));
    kept(6, &source("etude", "a.rs", "const V: &str = env!(\"CARGO_PKG_VERSION\");\nfn f() { std::process::id(); }"));
    broken(6, &manifest("etude", "[dependencies]\nclap.workspace = true\n"));
}

#[test]
fn law_13_sees_modes_of_new_files_outside_of_their_crate() {
    let text = "use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};";
    broken(13, &source("etude-server", "token/unix.rs", text));
    broken(13, &source("etude-sqlite", "unix.rs", "use std::os::unix::fs::DirBuilderExt;"));
    kept(13, &source("etude-files", "private/unix.rs", text));
    kept(13, &source("etude-cli", "command/new/unix.rs", text));
    kept(13, &source("etude-server", "unix.rs", "use std::os::unix::fs::PermissionsExt;"));
}

#[test]
fn law_7_sees_inner_types_that_are_serialized() {
    let seen = |package, file, text| serialization(&tree(&source(package, file, text))).len();
    assert_eq!(seen("etude-core", "plan.rs", "#[derive(Debug, serde::Serialize)]\nstruct A;"), 1);
    assert_eq!(seen("etude-core", "wire.rs", "use serde::Deserialize;"), 1);
    assert_eq!(seen("etude-runtime", "driver.rs", "impl Serialize for A {}"), 1);
    assert_eq!(seen("etude-runtime", "record/wire.rs", "#[derive(Serialize)]\nstruct A;"), 0);
    assert_eq!(seen("etude-cli", "config.rs", "#[derive(Deserialize)]\nstruct A;"), 0);
    assert_eq!(seen("etude-cli", "render.rs", "#[derive(Serialize)]\nstruct A;"), 1);
}

#[test]
fn law_8_sees_arrows_upward_sideways_and_from_nowhere() {
    let seen = |package, text| arrows(&tree(&manifest(package, text))).len();
    assert_eq!(seen("etude-core", "[dependencies]\netude-spec.workspace = true\n"), 1);
    assert_eq!(seen("etude-spec", "[dependencies]\netude-runtime.workspace = true\n"), 1);
    assert_eq!(seen("etude-models", "[target.'cfg(unix)'.dependencies]\netude.workspace = true\n"), 1);
    assert_eq!(seen("etude-new", ""), 1);
    assert_eq!(
        seen("etude-sqlite", "[dependencies]\netude-core.workspace = true\netude-runtime.workspace = true\n"),
        0
    );
    assert_eq!(seen("etude-runtime", "[dev-dependencies]\netude-sqlite.workspace = true\n"), 0);
}

#[test]
fn law_8_sees_runs_and_programs_without_approval_in_packages() {
    broken(8, &source("etude-packages", "a.rs", "use etude_runtime::engine::Engine;"));
    broken(8, &source("etude-packages", "skills/scan.rs", "use etude_process::ProcessHost;"));
    kept(8, &source("etude-packages", "applications/execute.rs", "use etude_process::ProcessHost;"));
}

#[test]
fn law_8_sees_crates_that_are_re_exported() {
    let seen = |text| re_exports(&tree(&source("etude", "lib.rs", text))).len();
    assert_eq!(seen("pub use etude_core as core;"), 1);
    assert_eq!(seen("pub use etude_core;"), 1);
    assert_eq!(seen("pub use etude_runtime::{clock, private};"), 0);
}

#[test]
fn law_8_sees_front_ends_that_name_each_other() {
    let seen = |file, text| arrows(&tree(&source("etude-spec", file, text))).len();
    assert_eq!(seen("stage_machine/read.rs", "use crate::cascade::Level;"), 1);
    assert_eq!(seen("cascade.rs", "fn f() { crate::application::g(); }"), 1);
    assert_eq!(seen("cascade/read.rs", "use crate::cascade::Level; use crate::yaml::Node;"), 0);
}

#[test]
fn law_1_sees_io_in_the_machine_of_chains_alone() {
    broken(1, &source("etude-invoke", "chain/machine.rs", "use std::fs;"));
    broken(1, &source("etude-invoke", "chain.rs", "async fn f() {}"));
    kept(1, &source("etude-invoke", "session.rs", "async fn f() {}"));
}

#[test]
fn law_8_sees_plans_and_journals_in_invocations() {
    for text in ["use etude_core::plan::Plan;", "use etude_runtime::driver::Drive;", "struct Journal;"] {
        broken(8, &source("etude-invoke", "session.rs", text));
    }
    kept(8, &source("etude-invoke", "session.rs", "use etude_core::tool::ToolReply;"));
}

#[test]
fn law_8_sees_constructs_that_name_their_siblings() {
    let found = |file: &str, text: &str| constructs(&tree(&source("etude-core", file, text))).len();
    assert_eq!(found("machine/llm.rs", "use super::code::check_exit;"), 1);
    assert_eq!(found("machine/stages/probe.rs", "use crate::machine::llm::call_failed;"), 1);
    assert_eq!(found("machine/stages/probe.rs", "use crate::machine::conversation::Conversation;"), 0);
    assert_eq!(found("machine/stages/walk.rs", "use super::execution::Execution;"), 0);
    assert_eq!(found("machine/step.rs", "use super::code::CodeTask;"), 0);
}

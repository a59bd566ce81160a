//! Runs the whole corpus: seeds and earlier findings.

use etude_fuzz::{TARGETS, corpus};

#[test]
fn the_corpus_breaks_nothing() {
    for target in TARGETS {
        let inputs = corpus::inputs(target.name).expect("every target has a directory in `corpus/`");
        assert!(!inputs.is_empty(), "`corpus/{}` has seeds", target.name);
        for (name, data) in inputs {
            let broken = std::panic::catch_unwind(|| (target.run)(&data)).is_err();
            assert!(!broken, "once more: cargo run -p etude-fuzz -- {} corpus/{0}/{name}", target.name);
        }
    }
}

#[test]
fn every_directory_of_the_corpus_has_its_target() {
    for entry in std::fs::read_dir(corpus::directory()).expect("the corpus is there") {
        let name = entry.expect("it can be read").file_name().into_string().expect("names are UTF-8");
        assert!(etude_fuzz::target(&name).is_some(), "`corpus/{name}` belongs to no target");
    }
}

#[test]
fn empty_and_binary_inputs_break_nothing() {
    let bytes: Vec<u8> = (0..=255).collect();
    for target in TARGETS {
        (target.run)(b"");
        (target.run)(&bytes);
        (target.run)(b"\xff\xfe\x00");
    }
}

/// `fuzz/Cargo.toml` has exactly one program for each target.
#[test]
fn every_target_has_its_program_for_cargo_fuzz() {
    let manifest = corpus::directory().join("../../../fuzz/Cargo.toml");
    let text = std::fs::read_to_string(manifest).expect("the manifest of the guided targets is there");
    let programs: Vec<&str> = text
        .split("[[bin]]")
        .skip(1)
        .filter_map(|program| program.lines().find_map(|line| line.strip_prefix("name = ")))
        .map(|name| name.trim_matches('"'))
        .collect();
    let targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(programs, targets);
}

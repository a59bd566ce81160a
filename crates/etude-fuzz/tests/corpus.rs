//! The corpus, seeds and past findings, one after the other.

use etude_fuzz::{TARGETS, corpus};

#[test]
fn the_corpus_breaks_nothing() {
    for target in TARGETS {
        let inputs = corpus::inputs(target.name).expect("every target has a directory in `corpus/`");
        assert!(!inputs.is_empty(), "`corpus/{}` has seeds", target.name);
        for (name, data) in inputs {
            let broken = std::panic::catch_unwind(|| (target.run)(&data)).is_err();
            assert!(!broken, "once more: cargo run -p etude-fuzz -- --replay {} corpus/{0}/{name}", target.name);
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

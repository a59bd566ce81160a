//! Mutations of the corpus: inputs that are cut, joined, repeated, and mixed with words of the project's small languages. A
//! failure is shrunk to the fewest edits. `PROPTEST_CASES` runs more cases, `PROPTEST_RNG_SEED` other ones.

use std::fs;
use std::path::Path;

use etude_fuzz::{TARGETS, corpus};
use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, any, prop_oneof};
use proptest::sample::{Index, select};
use proptest::strategy::Strategy;
use proptest::test_runner::{RngSeed, TestRunner};

/// Maximum length of an input, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Words of the project's small languages, and text that often breaks readers.
const WORDS: &[&str] = &[
    "{{",
    "}}",
    "${",
    "}",
    "{",
    "[",
    "]",
    "(",
    ")",
    ":",
    ": ",
    "- ",
    "? ",
    "|\n",
    ">\n",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "---\n",
    "...\n",
    "\n",
    "\r\n",
    "\r",
    "\t",
    " ",
    "  ",
    "\\",
    "\"",
    "'",
    "`",
    "```\n",
    "#",
    "%",
    "@",
    "*",
    "**",
    "?",
    ",",
    "=",
    "$",
    "$deny",
    "\0",
    "\u{1b}[31m",
    "\u{202e}",
    "\u{200b}",
    "\u{feff}",
    "\u{85}",
    "\u{2028}",
    "é",
    "日本",
    "\u{1f600}",
    "e\u{301}",
    "../",
    "/",
    "//",
    "\\u0000",
    "\\ud800",
    "1e999",
    "-0",
    "18446744073709551616",
    "0x7f",
    ".inf",
    "null",
    "true",
    "data: ",
    "event: ",
    "data: [DONE]\n\n",
    "\n\n",
    "\n---8<---\n",
    "=== pipelines/q/pipeline.yaml\n",
    "=== a.skill.md\n",
    "$ref",
    "#/$defs/a",
    "$self",
    "$order",
    "$inherit",
    "$authority",
    "$hook",
    "$static",
    "$dynamic",
    "$private",
    "$merge",
    "$remove",
];

/// An input of `corpus` after a few edits, each of which replaces up to 63 bytes by a piece.
fn mutated(corpus: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let word = select(WORDS).prop_map(|word| word.as_bytes().to_vec());
    let part = (select(corpus.clone()), any::<Index>(), 0..512_usize).prop_map(|(input, start, length)| {
        let start = start.index(input.len() + 1);
        input[start..input.len().min(start + length)].to_vec()
    });
    // Repetition tests depth, and algorithms with quadratic cost.
    let repeated = (prop_oneof![word.clone(), part.clone()], 0..10_u32).prop_map(|(piece, n)| piece.repeat(1 << n));
    let piece = prop_oneof![Just(Vec::new()), vec(any::<u8>(), 1..3), word, part, repeated];
    let edits = vec((any::<Index>(), 0..64_usize, piece), 1..9);
    (select(corpus), edits).prop_map(|(mut input, edits)| {
        for (at, removed, piece) in edits {
            let at = at.index(input.len() + 1);
            input.splice(at..input.len().min(at + removed), piece);
            input.truncate(MAX_BYTES);
        }
        input
    })
}

#[test]
fn mutations_of_the_corpus_break_nothing() {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 24;
    }
    if config.rng_seed == RngSeed::Random {
        // The inputs of one commit are reproducible.
        config.rng_seed = RngSeed::Fixed(1);
    }
    for target in TARGETS {
        // This file keeps an input that ends the process, or hangs.
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("input-{}", target.name));
        let inputs = corpus::inputs(target.name).expect("every target has a directory in `corpus/`");
        let inputs = mutated(inputs.into_iter().map(|(_, data)| data).collect());
        let result = TestRunner::new(config.clone()).run(&inputs, |data| {
            fs::write(&file, &data).expect("the directory of the build can be written");
            (target.run)(&data);
            Ok(())
        });
        assert!(result.is_ok(), "{}: {}", target.name, result.unwrap_err());
        fs::remove_file(&file).expect("it was written");
    }
}

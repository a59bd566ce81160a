//! Mutations: what stands in the corpus, cut, joined, repeated, and mixed with what hostile texts are made of.

use fastrand::Rng;

/// What the small languages here are made of, and what breaks readers.
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

/// The longest input that mutations make, in bytes.
pub const MAX_LENGTH: usize = 64 * 1024;

/// A new input out of those of a corpus.
pub fn mutated(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut data = pick(rng, corpus).map(<[u8]>::to_vec).unwrap_or_default();
    for _ in 0..1 + rng.usize(..8) {
        once(rng, &mut data, corpus);
    }
    data.truncate(MAX_LENGTH);
    data
}

fn pick<'c>(rng: &mut Rng, corpus: &'c [Vec<u8>]) -> Option<&'c [u8]> {
    (!corpus.is_empty()).then(|| corpus[rng.usize(..corpus.len())].as_slice())
}

fn once(rng: &mut Rng, data: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = rng.usize(..=data.len());
    match rng.u8(..8) {
        0 if !data.is_empty() => data[at.saturating_sub(1)] = rng.u8(..),
        1 => drop(data.splice(at..at, [rng.u8(..)])),
        2 => drop(data.drain(range(rng, data.len(), 64))),
        3 => drop(data.splice(at..at, word(rng))),
        // The same many times: depth, and what costs a square.
        4 => drop(data.splice(at..at, word(rng).repeat(1 << rng.u8(..10)))),
        5 => {
            let copy = data[range(rng, data.len(), 256)].to_vec();
            let times = if rng.u8(..16) == 0 { 64 } else { 1 };
            data.splice(at..at, copy.repeat(times));
        }
        6 => {
            let other = pick(rng, corpus).unwrap_or_default();
            let piece = other[range(rng, other.len(), 512)].to_vec();
            data.splice(at..at, piece);
        }
        _ => {
            let taken = range(rng, data.len(), 32);
            data.splice(taken, word(rng));
        }
    }
}

fn word(rng: &mut Rng) -> Vec<u8> {
    WORDS[rng.usize(..WORDS.len())].as_bytes().to_vec()
}

fn range(rng: &mut Rng, len: usize, most: usize) -> std::ops::Range<usize> {
    let start = rng.usize(..=len);
    start..start + rng.usize(..=most.min(len - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_make_equal_inputs() {
        let corpus = [b"name: x\n".to_vec(), b"{{a.b}}".to_vec()];
        let inputs = |seed| {
            let mut rng = Rng::with_seed(seed);
            (0..200).map(|_| mutated(&mut rng, &corpus)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
        assert!(inputs(7).iter().all(|input| input.len() <= MAX_LENGTH));
    }
}

use super::read;
use crate::source::SourceFile;
use crate::yaml::build::parse_with_parser;

/// Initial texts; all others are derived from them.
const SEEDS: &[&str] = &[
    "name: greet\ndescription: Says hello to someone - politely.\nallowed-tools: file-* shell(cmd=ls)\nmetadata:\n  \
     $inherit: base\n  params:\n    type: object\n    required: [who, \"a b\"]\n    properties:\n      who: {type: string, \
     min: 1}\n  tags: [a, b]\n  empty:\n  list:\n  - x\n  - y: 1\n    z: 'two'\n  -\n  - - p\n    - q\n",
    "a: 1\nb:\n  - 1.5\n  - -2\n  - \"x\"\n  - [ ]\n  - {}\n# note\nc: ${locals.x:-./y}\nd: http://x/y?z=1#a\n",
    "steps:\n  - name: fetch\n    type: code\n    command: \"sh steps/fetch.sh\"\n    retry: {max: 3}\n\n  - name: tell\n    \
     type: llm\n    when: {path: fetch.output.n, equals: 3}\n",
    "- a\n- b:\n    c: d\n-   e: f\n    g: h\n",
    "description: käse – gut\nx: 'it is'\ny: \"a, b: c\"\n",
];

/// Pieces that change the meaning of a text.
const PIECES: &[&str] = &[
    "\n", " ", "  ", "\n  ", ":", ": ", "- ", "-", "[", "]", "{", "}", ",", "#", " #", "\"", "'", "&a ", "*a", "!",
    "|", ">", "?", "? ", "%", "@", "`", "\\", "~", "x", "1", "---\n", "...", "\t", "é", "<<: ", "=", ".", "$", "null",
    "\n\n", "\u{7f}",
];

/// Reads a text both ways: true if the simple reader could read it, or the difference.
fn same(text: &str) -> Result<bool, String> {
    let Some(simple) = read(text, 7) else { return Ok(false) };
    let file = SourceFile::new("t.yaml", format!("-------{text}"));
    let (root, found) = parse_with_parser(&file, &file.text()[7..], 7);
    if found.is_empty() && root.as_ref() == Some(&simple) {
        Ok(true)
    } else {
        Err(format!("{text:?}\n{found:?}\n{simple:?}\n{root:?}"))
    }
}

/// the simple reader and the parser agree, places included, also on thousands of texts with faults.
#[test]
fn simple_texts_are_read_as_the_parser_reads_them() {
    assert!(SEEDS.iter().all(|seed| same(seed) == Ok(true)));
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let (mut simple, mut different) = (0, Vec::new());
    for round in 0..20_000 {
        let mut text = SEEDS[round % SEEDS.len()].to_owned();
        for _ in 0..=random(3) {
            let at = text.floor_char_boundary(random(text.len()));
            match random(4) {
                0 => text.insert_str(at, PIECES[random(PIECES.len())]),
                1 => drop(text.drain(at..text.floor_char_boundary((at + random(6)).min(text.len())))),
                2 => {
                    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
                    let (from, to) = (random(lines.len()), random(lines.len()));
                    lines.swap(from, to);
                    text = lines.concat();
                }
                _ => {
                    let end = text.floor_char_boundary((at + 1).min(text.len()));
                    text.replace_range(at..end, PIECES[random(PIECES.len())]);
                }
            }
        }
        match same(&text) {
            Ok(is_simple) => simple += usize::from(is_simple),
            Err(how) => different.push(how),
        }
    }
    different.sort_by_key(String::len);
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different[..different.len().min(2)].join("\n\n"));
    assert!(simple > 3_000, "only {simple} were simple");
}

/// a text beyond the simple form is left to the parser.
#[test]
fn what_is_not_simple_is_left_to_the_parser() {
    for text in [
        "a: |\n  b\n", "a: &x 1\n", "a: *x\n", "a: \"\\n\"\n", "a: b\n  c\n", "a: 1\na: 2\n", "a: [b\n]\n", "", "x",
        "\ta: 1", "a: b\u{7f}c\n",
    ] {
        assert!(read(text, 0).is_none(), "{text:?}");
    }
}

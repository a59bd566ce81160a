//! Parser for the subset of Markdown in these documents.

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Word behind the fence; may be empty.
    pub(crate) language: String,
    /// Comment on the line above the fence, without `<!--` and `-->`.
    pub(crate) marker: Option<String>,
    /// Lines, each with its line end, without the fence's own indentation.
    pub(crate) text: String,
}

/// Fenced blocks of a document.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    let mut above = "";
    for line in document.lines() {
        let bare = line.trim_start();
        match (&mut open, bare.strip_prefix("```")) {
            (None, Some(language)) => {
                let marker = above.trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
                let block = Block {
                    language: language.trim().to_owned(),
                    marker: marker.map(|marker| marker.trim().to_owned()),
                    text: String::new(),
                };
                open = Some((line.len() - bare.len(), block));
            }
            (Some(_), Some("")) => found.extend(open.take().map(|(_, block)| block)),
            (Some((indent, block)), _) => {
                block.text.push_str(line.get(*indent..).unwrap_or(bare));
                block.text.push('\n');
            }
            (None, None) => {}
        }
        above = line;
    }
    assert!(open.is_none(), "a fence is not closed");
    found
}

/// Code spans outside fenced blocks. A span may cross a line end.
pub(crate) fn spans(document: &str) -> Vec<String> {
    let mut is_fenced = false;
    let mut prose = String::new();
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            prose.push_str("\n\n");
        } else if !is_fenced {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    let in_paragraph = |paragraph: &str| -> Vec<String> {
        let parts: Vec<&str> = paragraph.split('`').collect();
        parts.iter().skip(1).step_by(2).map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    prose.split("\n\n").flat_map(in_paragraph).collect()
}

#[test]
fn blocks_have_language_marker_and_text() {
    let document = "a\n\n<!-- run -->\n```console\n$ x\ny\n```\n- b\n  ```sh\n  z\n  ```\n";
    let block = |language: &str, marker: Option<&str>, text: &str| Block {
        language: language.to_owned(),
        marker: marker.map(str::to_owned),
        text: text.to_owned(),
    };
    assert_eq!(blocks(document), [block("console", Some("run"), "$ x\ny\n"), block("sh", None, "z\n")]);
}

#[test]
fn spans_are_found_outside_blocks_and_over_line_ends() {
    assert_eq!(spans("a `b c` d `e\nf`\n\n```sh\n`g`\n```\n`h`\n"), ["b c", "e f", "h"]);
}

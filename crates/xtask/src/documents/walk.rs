//! Check of the walk of a tool call in `ARCHITECTURE.md`: its forms exist and are few, and it crosses one channel.

use crate::rust::{line_of, occurrences};
use crate::tree::{Tree, Violation};

const DOCUMENT: &str = "ARCHITECTURE.md";
const SECTION: &str = "### The walk of a tool call";

/// Maximum number of forms that a call takes between the machine and the tool and back.
const MAX_FORMS: usize = 8;

/// Crates between the machine and the programs of tools.
const WAY: &[&str] = &["etude-invoke", "etude-tools"];

/// Files in which they create a channel: for a call, and for a request of a running script.
const CHANNELS: &[&str] = &["crates/etude-invoke/src/session.rs", "crates/etude-invoke/src/session/requests.rs"];

/// Checks that the forms in the table are existing types, at most [`MAX_FORMS`] of them. Each place in [`CHANNELS`] creates one
/// channel, and no other place on the way creates any.
pub fn walk(tree: &Tree) -> Vec<Violation> {
    let mut found = forms(tree);
    let mut known = CHANNELS.to_vec();
    for source in tree.sources().iter().filter(|source| WAY.contains(&source.package())) {
        for (at, _) in source.code.match_indices("channel(") {
            match known.iter().position(|path| *path == source.path) {
                Some(place) => {
                    known.remove(place);
                }
                None => {
                    let what = "one channel is enough for a tool call (`CHANNELS`), and this is another one";
                    found.push(Violation::at(&source.path, line_of(&source.code, at), what));
                }
            }
        }
    }
    found.extend(known.into_iter().map(|path| Violation::of(path, "it makes no channel: take it out of `CHANNELS`")));
    found
}

fn forms(tree: &Tree) -> Vec<Violation> {
    let lines = tree.text(DOCUMENT).into_iter().flat_map(str::lines).enumerate();
    let section = lines.skip_while(|(_, line)| *line != SECTION).skip(1).take_while(|(_, line)| !line.starts_with('#'));
    let rows: Vec<_> = section.filter(|(_, line)| line.starts_with("| `")).collect();
    let mut found = Vec::new();
    if rows.is_empty() || rows.len() > MAX_FORMS {
        let what = format!("a tool call takes {} forms; from 1 to {MAX_FORMS} are described", rows.len());
        found.push(Violation::of(DOCUMENT, what));
    }
    for (number, row) in rows {
        let form = row.split('`').nth(1).unwrap_or_default();
        let (package, name) =
            (form.split("::").next().unwrap_or_default(), form.rsplit("::").next().unwrap_or_default());
        let package = package.replace('_', "-");
        let is_defined = |code: &str| {
            let kinds = ["struct", "enum", "type"].map(|kind| format!("pub {kind} {name}"));
            kinds.iter().any(|definition| occurrences(code, definition).next().is_some())
        };
        if !tree.sources().iter().any(|source| source.package() == package && is_defined(&source.code)) {
            found.push(Violation::at(DOCUMENT, number + 1, format!("`{package}` has no public type `{name}`")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rows: &str, session: &str, tool: &str) -> Vec<String> {
        let text = format!("# A\n{SECTION}\n\n| form | where |\n|---|---|\n{rows}\n### Other\n| `x::Y` | z |\n");
        let files = [
            (DOCUMENT, text.as_str()),
            (CHANNELS[0], session),
            (CHANNELS[1], "fn f() { oneshot::channel() }"),
            ("crates/etude-tools/src/tool.rs", tool),
            ("crates/etude-core/src/tool.rs", "pub struct ToolCall;"),
        ];
        walk(&Tree::made_up(&files)).into_iter().map(|violation| violation.what).collect()
    }

    const FORM: &str = "| `etude_core::tool::ToolCall` | a |\n";
    const CHANNEL: &str = "fn f() { mpsc::unbounded_channel() }";

    #[test]
    fn forms_that_are_there_and_known_channels_pass() {
        assert_eq!(seen(FORM, CHANNEL, "// A channel() in a comment."), [""; 0]);
    }

    #[test]
    fn forms_that_are_gone_or_too_many_are_seen() {
        assert_eq!(seen("| `etude_core::tool::Call` | a |\n", CHANNEL, "").len(), 1);
        assert_eq!(seen("", CHANNEL, "").len(), 1);
        assert_eq!(seen(&FORM.repeat(8), CHANNEL, ""), [""; 0]);
        assert_eq!(seen(&FORM.repeat(9), CHANNEL, "").len(), 1);
    }

    #[test]
    fn another_channel_and_one_that_is_gone_are_seen() {
        assert!(seen(FORM, &CHANNEL.repeat(2), "")[0].contains("another one"));
        assert!(seen(FORM, CHANNEL, "fn f() { mpsc::channel(1) }")[0].contains("another one"));
        assert!(seen(FORM, "", "")[0].contains("take it out"));
    }
}

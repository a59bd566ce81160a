//! Executable files without a sidecar: their names and descriptions.

use etude_core::effect::Command;

use crate::diagnose::tools as diagnose;
use crate::diagnostic::Diagnostic;
use crate::source::{Sources, Span};
use crate::tool::{AppTool, DEFAULT_TIMEOUT_MS, name_fault, stem, whole};

/// Maximum length of a description, in characters.
const MAX_LENGTH: usize = 2_000;

/// Maximum size of a script that is read for its description, in bytes.
const MAX_SIZE: u64 = 1 << 20;

pub(super) fn read(sources: &dyn Sources, path: &str) -> (Option<AppTool>, Option<Diagnostic>) {
    let name = stem(path.rsplit_once('/').map_or(path, |(_, name)| name));
    if let Some(fault) = name_fault(&whole(path), Span::default(), name) {
        return (None, Some(diagnose::script_name(fault)));
    }
    // A compiled program has no readable description; it may still be called.
    let text = sources.read(path, MAX_SIZE).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let description = description(&text);
    let tool = AppTool {
        name: name.to_owned(),
        has_help: description.is_empty() && answers_help(&text),
        description,
        input_schema: serde_json::json!({"type": "object"}),
        command: Command::Direct(vec![format!("./{path}")]),
        gated: true,
        effects: None,
        approval_key: None,
        timeout_ms: DEFAULT_TIMEOUT_MS,
        tags: Vec::new(),
        file: path.to_owned(),
        bare: true,
    };
    (Some(tool), None)
}

/// True if the text of a script indicates support for `--help`. Other scripts are never run with it: they might just do
/// their work.
fn answers_help(text: &str) -> bool {
    ["--help", "argparse", "OptionParser", "commander", "parseArgs"].iter().any(|word| text.contains(word))
}

/// The comment or docstring at the start of a script.
fn description(text: &str) -> String {
    let mut lines = text.lines().skip_while(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with("#!") || line.contains("coding:") || line == "'use strict';"
    });
    let Some(first) = lines.next().map(str::trim) else { return String::new() };
    let block = |open: &str, close: &str, strip: &str| -> Option<String> {
        let rest = first.strip_prefix(open)?;
        if let Some((inside, _)) = rest.split_once(close) {
            return Some(inside.trim().to_owned());
        }
        let mut all = vec![rest.trim().to_owned()];
        for line in lines.clone() {
            let (inside, ends) = line.split_once(close).map_or((line, false), |(inside, _)| (inside, true));
            all.push(inside.trim().trim_start_matches(strip).trim().to_owned());
            if ends {
                break;
            }
        }
        Some(all.join("\n"))
    };
    let text = block("\"\"\"", "\"\"\"", "")
        .or_else(|| block("'''", "'''", ""))
        .or_else(|| block("/*", "*/", "*"))
        .or_else(|| ["//", "#"].iter().find_map(|mark| comment(mark, first, lines.clone())));
    text.unwrap_or_default().trim().trim_start_matches('*').trim().chars().take(MAX_LENGTH).collect()
}

/// Reads the lines that begin with `mark`, without the metadata of inline scripts (`# /// script` … `# ///`).
fn comment<'t>(mark: &str, first: &'t str, rest: impl Iterator<Item = &'t str>) -> Option<String> {
    first.strip_prefix(mark)?;
    let mut in_metadata = false;
    let mut all = Vec::new();
    for line in std::iter::once(first).chain(rest) {
        let Some(line) = line.trim().strip_prefix(mark) else { break };
        let line = line.trim_start_matches(['/', '!', '#']).trim_end();
        let line = line.strip_prefix(' ').unwrap_or(line);
        let raw = line.trim();
        if raw.starts_with("/// ") || raw == "///" {
            in_metadata = raw != "///";
        } else if !in_metadata {
            all.push(line);
        }
    }
    Some(all.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// the comment at the start of a script is its description.
    #[test]
    fn the_first_comment_is_the_description() {
        for (text, expected) in [
            (
                "#!/usr/bin/env python3\n\"\"\"Adds numbers.\n\nGive `a` and `b`.\n\"\"\"\nimport x\n",
                "Adds numbers.\n\nGive `a` and `b`.",
            ),
            ("#!/bin/sh\n# Adds numbers.\n# Give a.\n\n# not this\necho\n", "Adds numbers.\nGive a."),
            ("#!/usr/bin/env node\n// Adds.\n//  - a\nx()\n", "Adds.\n - a"),
            ("/* Adds.\n * More.\n */\nx()\n", "Adds.\nMore."),
            ("#!/bin/sh\necho hi\n# no\n", ""),
            ("#!/usr/bin/env -S uv run\n# /// script\n# dependencies = []\n# ///\n# Adds.\n", "Adds."),
            ("", ""),
        ] {
            assert_eq!(description(text), expected, "{text}");
        }
    }

    #[test]
    fn only_scripts_that_speak_of_help_are_asked_for_it() {
        assert!(answers_help("import argparse\n") && answers_help("case $1 in --help) usage;; esac"));
        assert!(!answers_help("rm -rf build\n"));
    }
}

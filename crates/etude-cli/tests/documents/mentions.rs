//! Checks that the binary accepts every command line in a document.

use crate::markdown::{blocks, spans};
use crate::usage::USAGES;
use crate::{documents, read};

/// Decisions, clauses and words also describe future commands.
const TO_COME: [&str; 3] = ["docs/adr/", "docs/glossary.md", "docs/spec/"];
/// Words before the arguments.
const PROGRAMS: [&[&str]; 3] = [&["etude"], &["target/release/etude"], &["cargo", "run", "--release", "--"]];
/// Words that end a command line in a shell.
const ENDS: [&str; 8] = ["|", "||", "&&", ";", "&", ">", "<", "#"];

/// Arguments of each mention of the binary in a line.
fn mentions(line: &str) -> Vec<Vec<String>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut found = Vec::new();
    for at in 0..words.len() {
        let is_start = at == 0 || ENDS.contains(&words[at - 1]) || words[at - 1] == "$" || words[at - 1].contains('=');
        let Some(program) = PROGRAMS.iter().find(|program| is_start && words[at..].starts_with(program)) else {
            continue;
        };
        let arguments = words[at + program.len()..].iter().take_while(|word| !ENDS.contains(word));
        found.push(arguments.map(|word| word.trim_end_matches([';', ')']).to_owned()).collect());
    }
    found
}

/// Fault of the arguments, if any.
fn fault(arguments: &[String]) -> Option<String> {
    let mut command = String::new();
    let mut is_value = false;
    for word in arguments {
        let usage = &USAGES[&command];
        if std::mem::take(&mut is_value) {
            continue;
        }
        if word == "--" {
            // The following words belong to another command.
            return None;
        }
        if word.starts_with('-') && word.len() > 1 {
            let flag = word.split('=').next().unwrap_or(word);
            if !usage.flags.contains(flag) {
                return Some(format!("`etude {command}` has no flag `{flag}`"));
            }
            is_value = usage.with_value.contains(flag) && !word.contains('=');
        } else if usage.commands.iter().any(|name| name == word) {
            command = format!("{command} {word}").trim().to_owned();
        } else if !usage.commands.is_empty() && word.chars().all(|c| c.is_ascii_lowercase()) {
            return Some(format!("`etude {command}` has no command `{word}`"));
        }
    }
    None
}

/// Lines of a document that contain commands.
fn lines(document: &str) -> Vec<String> {
    let mut found = spans(document);
    for block in blocks(document) {
        let is_shell = ["sh", "console", "text", "bash"].contains(&block.language.as_str());
        if is_shell {
            // A line that ends in a backslash or a pipe continues with the next one.
            let text = block.text.replace("\\\n", " ").replace("|\n", "| ");
            found.extend(text.lines().map(str::to_owned));
        }
    }
    found
}

#[test]
fn every_command_line_in_the_documents_is_one_that_the_binary_takes() {
    let mut faults = Vec::new();
    let mut count = 0;
    for path in documents().into_iter().filter(|path| !TO_COME.iter().any(|prefix| path.starts_with(prefix))) {
        for line in lines(&read(&path)) {
            for arguments in mentions(&line) {
                count += 1;
                faults.extend(fault(&arguments).map(|fault| format!("{path}: {line}\n    {fault}")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 100, "only {count} command lines were found");
}

#[test]
fn a_wrong_flag_or_command_is_noticed() {
    let fault_of = |line: &str| mentions(line).iter().find_map(|arguments| fault(arguments));
    for right in [
        "etude run --app x --pipeline y -i a=b | less -R",
        "$ etude runs resume ID --accept-changes",
        "etude -C x run -p y # --nothing",
        "XDG_STATE_HOME=/x etude check && etude explain P0303",
        "cargo run --release -- test -C examples/csv-audit",
        "etude runs show RUN --format json",
        "the etude resume of a concert",
        "etude run",
        "etude apps run box wipe -- --confirm",
    ] {
        assert_eq!(fault_of(right), None, "{right}");
    }
    for wrong in [
        "etude run --pipline x",
        "etude resume x",
        "etude runs resum x",
        "cat x | etude run --portable",
        "cargo run --release -- check --strict",
    ] {
        assert!(fault_of(wrong).is_some(), "{wrong}");
    }
}

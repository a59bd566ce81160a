//! Detection of shell text that evaluates the value of a variable again: as shell text, as code or as arithmetic.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use crate::command::scan::{Place, places};

const SHELLS: &str = "(?:sh|bash|dash|ash|zsh|ksh)";

/// `bash -c`, `python3 -c`: the next word is code.
static CODE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let shells = format!(r"(?:^|[\s;&|(`/]){SHELLS}(?:\s+[-+]\S+(?:\s+pipefail)?)*?\s+-[A-Za-z]*c\s+");
    let others = r"(?:^|[\s;&|(`/])(?:python[\d.]*|perl|ruby|node|php)(?:\s+-\S+)*?\s+-[A-Za-z]*[cer]\s+";
    Regex::new(&format!("{shells}|{others}")).ok()
});

/// `eval`, `ssh HOST`: the rest of the command is shell text, or arithmetic for `let`.
static REST: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?:^|[\s;&|(`])(?:eval|let|ssh|su)\s").ok());

/// `bash <<EOF`, `cat <<EOF | sh`, `echo … | sh`: the input of a shell is shell text.
static READ: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(&format!(r"(?:^|[\s;&|(`/])(?:{SHELLS}|ssh)\b[^\n;|&]*<<|\b(?:echo|printf|cat)\b[^\n|]*\|\s*{SHELLS}\b"))
        .ok()
});

/// `${NAME}` or `$NAME`.
static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$\{?#?([A-Za-z_][A-Za-z0-9_]*)").ok());

/// `[[ a -eq b ]]` is arithmetic.
static COMPARED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\s-(?:eq|ne|lt|le|gt|ge)\s").ok());

/// Reason why shell text cannot be imported: it evaluates a value again that is not constant.
pub(super) fn refusal(text: &str, env: &Map<String, Value>) -> Option<String> {
    let is_given = |name: &str| env.get(name).and_then(Value::as_str).is_some_and(|value| value.contains("{{"));
    let places = places(text);
    let place = |at: usize| places.get(at).copied().unwrap_or(Place::Plain);
    let is_text = |at: usize| !matches!(place(at), Place::Single | Place::Comment | Place::RawHere);
    let evaluated = evaluated(text, &places);
    let mut spans = evaluated.iter().peekable();
    let mut until = 0;
    for found in REFERENCE.iter().flat_map(|pattern| pattern.captures_iter(text)) {
        let (Some(all), Some(name)) = (found.get(0), found.get(1)) else { continue };
        while let Some((_, end)) = spans.next_if(|(start, _)| *start <= all.start()) {
            until = until.max(*end);
        }
        if all.start() < until && is_given(name.as_str()) && is_text(all.start()) {
            return Some(format!("it evaluates the value of `{}` as code or arithmetic", name.as_str()));
        }
    }
    None
}

/// Byte ranges of a text that are evaluated again, ordered by their starts.
fn evaluated(text: &str, places: &[Place]) -> Vec<(usize, usize)> {
    let place = |at: usize| places.get(at).copied().unwrap_or(Place::Plain);
    let end_of = |from: usize, is_end: fn(char) -> bool| {
        let end = text[from..].char_indices().find(|(at, c)| place(from + at) == Place::Plain && is_end(*c));
        end.map_or(text.len(), |(at, _)| from + at)
    };
    let starts = |pattern: &'static LazyLock<Option<Regex>>| pattern.iter().flat_map(|pattern| pattern.find_iter(text));
    let mut found = Vec::new();
    add(&mut found, starts(&CODE).map(|one| one.end()), |from| {
        let mut depth = 0_usize;
        let mut is_end = |at: usize, c: char| {
            match c {
                '(' if text[..at].ends_with('$') => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && place(at) == Place::Plain && (c.is_whitespace() || matches!(c, ';' | '|' | '&'))
        };
        let end = text[from..].char_indices().find(|(at, c)| is_end(from + at, *c));
        end.map_or(text.len(), |(at, _)| from + at)
    });
    add(&mut found, starts(&REST).map(|one| one.end()), |from| end_of(from, |c| matches!(c, '\n' | ';' | '|' | '&')));
    add(&mut found, starts(&READ).map(|one| one.start()), |from| {
        let line = end_of(from, |c| c == '\n');
        let document = (line + 1..text.len()).take_while(|at| matches!(place(*at), Place::Here | Place::RawHere));
        document.last().map_or(line, |last| last + 1)
    });
    add(&mut found, text.match_indices("((").map(|(at, _)| at), |from| closed(text, from, b'(', b')'));
    add(&mut found, text.match_indices("$[").map(|(at, _)| at), |from| closed(text, from + 1, b'[', b']'));
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.contains("[[") && COMPARED.as_ref().is_none_or(|pattern| pattern.is_match(line)) {
            found.push((start, start + line.len()));
        }
        start += line.len();
    }
    found.sort_unstable();
    found
}

/// Adds ranges of one kind. A range that begins inside the one before it is skipped.
fn add(found: &mut Vec<(usize, usize)>, starts: impl Iterator<Item = usize>, end: impl Fn(usize) -> usize) {
    let mut until = 0;
    for start in starts {
        if start >= until {
            until = end(start).max(start + 1);
            found.push((start, until));
        }
    }
}

/// End of the bracket that is open at a place.
fn closed(text: &str, from: usize, open: u8, close: u8) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate().skip(from) {
        match byte {
            byte if byte == open => depth += 1,
            byte if byte == close && depth <= 1 => return at,
            byte if byte == close => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_are_evaluated_again_are_found() {
        let env = json!({"X": "{{input.x}}", "C": "constant"});
        let refusal = |text: &str| refusal(text, env.as_object().expect("a mapping"));
        for text in [
            "bash -c \"echo ${X}\"",
            "sh -ec 'echo '\"$X\"''",
            "bash -o pipefail -c \"\n a\n $X\"",
            "sudo bash -c \"$(printf '%s' \"$X\")\"",
            "eval echo \"$X\"",
            "echo $(( 1 + $X ))",
            "(( X1 = ${X} ))",
            "let y=$X",
            "[[ $X -eq 1 ]]",
            "python3 -c \"print('$X')\"",
            "bash <<EOF\necho $X\nEOF",
            "ssh host \"deploy $X\"",
            "echo \"$X\" | sh",
            "cat <<EOF | bash -e\necho $X\nEOF",
        ] {
            assert!(refusal(text).is_some(), "{text}");
        }
        for text in [
            "bash -c \"echo ${C}\"",
            "bash -c 'echo \"$X\"'",
            "bash -c 'echo \"$1\"' _ \"$X\"",
            "bash ./deploy.sh -c \"$X\"",
            "echo \"$X\"; bash -c \"make\"; echo $X",
            "eval \"$(ssh-agent)\"\necho $X",
            "[ \"$X\" -eq 1 ]",
            "[[ $X == a ]]",
            "cat <<EOF\n$X\nEOF",
            "echo $(( 1 + 2 )) $X",
        ] {
            assert_eq!(refusal(text), None, "{text}");
        }
    }
}

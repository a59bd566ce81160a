//! The commands of a command line, as far as rules about commands must see them.

/// The commands that a line consists of; `None` if it redirects output, or if a part of it is computed when it runs,
/// so that nobody can tell from the text what it will do.
pub(super) fn parts(line: &str) -> Option<Vec<String>> {
    let scan = scan(line);
    (!scan.opaque).then_some(scan.parts)
}

/// Everything in a line that could be a command of its own, for rules that forbid.
pub(super) fn pieces(line: &str) -> Vec<String> {
    let mut pieces = scan(line).parts;
    pieces.extend(
        line.split(['\n', ';', '|', '&', '`', '(', ')', '{', '}', '<', '>'])
            .map(|piece| piece.trim().trim_start_matches('$').to_owned())
            .filter(|piece| !piece.is_empty()),
    );
    pieces
}

struct Scan {
    parts: Vec<String>,
    opaque: bool,
}

fn scan(line: &str) -> Scan {
    let (mut parts, mut part, mut opaque) = (Vec::new(), String::new(), false);
    let mut quote: Option<char> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => {
                part.push(c);
                part.extend(chars.next());
                continue;
            }
            // These compute in double quotes, too.
            (_, '`') => opaque = true,
            (_, '$') if matches!(chars.peek(), Some('(' | '{' | '\'' | '"')) => opaque = true,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '<' | '>' | '(' | ')' | '{' | '}') => opaque = true,
            (None, '\n' | ';' | '|' | '&') => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            (None, _) => {}
        }
        part.push(c);
    }
    parts.push(part);
    let parts = parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
    Scan { parts, opaque: opaque || quote.is_some() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart_at_its_commands() {
        assert_eq!(parts("a b && c || d; e | f & g\nh").expect("plain"), ["a b", "c", "d", "e", "f", "g", "h"]);
        assert_eq!(parts("echo 'a; b' \"c && d\" e\\;f").expect("plain"), ["echo 'a; b' \"c && d\" e\\;f"]);
    }

    #[test]
    fn what_redirects_or_computes_is_opaque() {
        for line in [
            "a > f",
            "a < f",
            "a $(b)",
            "a `b`",
            "a \"$(b)\"",
            "a \"`b`\"",
            "(a)",
            "{ a; }",
            "a 'b",
            "a <(b)",
            "a ${b:=c}",
            "a $'\\n'",
        ] {
            assert_eq!(parts(line), None, "{line}");
        }
        assert_eq!(parts("a '$(b)' '`c`' '>'").expect("quoted"), ["a '$(b)' '`c`' '>'"]);
    }

    #[test]
    fn what_forbids_sees_every_piece() {
        assert!(pieces("echo $(rm -rf x)").contains(&"rm -rf x".to_owned()));
        assert!(pieces("echo \"`rm x`\"").contains(&"rm x".to_owned()));
    }
}

//! Words of shell command lines.

use serde_json::Value;

/// The tool that runs command lines.
pub const TOOL: &str = "Bash";
/// The argument of the tool that holds the command line.
pub const COMMAND: &str = "command";
/// Prefix of the arguments that are positional parameters of the command line: `argument_1` is `"$1"`. Only steps may
/// give them (L-33).
pub const ARGUMENT: &str = "argument_";

/// A word of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineWord {
    /// Start, as a byte offset into the line.
    pub start: usize,
    /// End, as a byte offset into the line (exclusive).
    pub end: usize,
    /// The word as the program receives it, without quotes and escapes.
    pub text: String,
    /// True if an argument may replace the word: the argument, whatever its text, stays one argument and is not run or
    /// evaluated (L-33).
    pub takes_value: bool,
}

/// The name of a positional parameter of a call, counted from 1.
pub fn argument(place: usize) -> String {
    format!("{ARGUMENT}{place}")
}

/// The positional parameters of a call: the texts from `argument_1` on.
pub fn arguments(call: &Value) -> Vec<String> {
    let texts = (1..).map_while(|place| call.get(argument(place))?.as_str().map(str::to_owned));
    texts.collect()
}

/// Quotes a text as one word of a POSIX shell, in single quotes.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Writes a text as one word of a shell, in quotes only if a shell would divide or change it.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    // Some shells take `=` at the start of a word for the path of a program.
    let needs_no_quotes = !text.is_empty() && !text.starts_with('=') && text.chars().all(is_plain);
    if needs_no_quotes { text.to_owned() } else { quoted(text) }
}

/// Joins words to a command line.
pub fn line<S: AsRef<str>>(words: &[S]) -> String {
    words.iter().map(|text| word(text.as_ref())).collect::<Vec<_>>().join(" ")
}

/// A command line with its positional parameters inserted: each `"$1"` becomes the first of `arguments` as one word,
/// and so on. For judging and comparing only: the line itself is executed, with the arguments beside it (L-33).
pub fn with_arguments<S: AsRef<str>>(line: &str, arguments: &[S]) -> String {
    with_words(line, arguments, &word)
}

/// True if two command lines with their positional parameters are the same, however their words are quoted.
pub fn is_same_line<S: AsRef<str>>(one: (&str, &[S]), other: (&str, &[S])) -> bool {
    let in_double = |text: &str| format!("\"{text}\"");
    let forms = |(line, arguments): (&str, &[S])| {
        [
            with_words(line, arguments, &word),
            with_words(line, arguments, &quoted),
            with_words(line, arguments, &in_double),
        ]
    };
    let own = forms(one);
    forms(other).iter().any(|line| own.contains(line))
}

fn with_words<S: AsRef<str>>(line: &str, arguments: &[S], written: &dyn Fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\"$") {
        let (number, more) = after.split_once('"').unwrap_or((after, ""));
        let place = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        match place.and_then(|place| arguments.get(place)).filter(|_| number.bytes().all(|b| b.is_ascii_digit())) {
            Some(argument) => {
                out.push_str(before);
                out.push_str(&written(argument.as_ref()));
                rest = more;
            }
            None => {
                out.push_str(before);
                out.push_str("\"$");
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-33: a parameter is one word at any position, and other texts are not parameters.
    #[test]
    fn parameters_are_put_in_as_words() {
        let put = |line: &str| with_arguments(line, &["v1", "a b; c", "\"$1\""]);
        assert_eq!(put(r#"git tag "$1" -m "$2""#), "git tag v1 -m 'a b; c'");
        assert_eq!(put(r#"x "$3" "$4" "$0" "$+1" "$1a" $1 "$"#), r#"x '"$1"' "$4" "$0" "$+1" "$1a" $1 "$"#);
        let line = r#"git tag "$1""#;
        assert!(is_same_line((line, &["a b"]), ("git tag 'a b'", &[])));
        assert!(is_same_line((line, &["a b"]), ("git tag \"a b\"", &[])));
        assert!(is_same_line((line, &["v1"]), ("git tag v1", &[])));
        assert!(!is_same_line((line, &["v1"]), ("git tag v2", &[])));
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        assert_eq!(line(&["a-b_c", "x=1,y@z", "./p:q"]), "a-b_c x=1,y@z ./p:q");
        assert_eq!(
            line(&["", "a b", "it's", "call[1]", "hey!", "$x", "=a"]),
            r"'' 'a b' 'it'\''s' 'call[1]' 'hey!' '$x' '=a'"
        );
    }
}

//! Command lines: their words, and the detection of shell syntax (A-3.2).

pub mod interpreter;
pub(crate) mod script;

use etude_core::effect::Command;

/// Utilities that exist only inside a shell and cannot be started as programs.
const BUILT_IN: &[&str] = &[
    ".", ":", "break", "cd", "continue", "eval", "exec", "exit", "export", "readonly", "return", "set", "shift",
    "source", "times", "trap", "unset",
];

/// Splits a command by POSIX word rules. A command needs a shell in four cases: it has shell syntax outside quotes; `$`
/// or a back-quote stands in double quotes, where they expand; it begins with an assignment; or its program exists only
/// inside a shell.
///
/// # Errors
/// The reason as a sentence fragment: a quote is not closed, or the command is empty.
pub fn parse(line: &str) -> Result<Command, &'static str> {
    let line = line.trim();
    let mut words = Words { chars: line.chars().peekable(), needs_shell: false, first_is_assignment: false };
    let split = words.split()?;
    let Some(program) = split.first() else {
        return Err("it is empty");
    };
    if words.needs_shell || words.first_is_assignment || BUILT_IN.contains(&program.as_str()) {
        return Ok(Command::Shell(line.to_owned()));
    }
    if program.is_empty() {
        return Err("the program's name is empty");
    }
    Ok(Command::Direct(split))
}

/// False if the command is certainly not a single Python process. A script may be one, depending on its first line.
pub(crate) fn may_be_python(command: &Command) -> bool {
    match command {
        Command::Direct(words) => words.first().is_some_and(|program| {
            let name = program.rsplit('/').next().unwrap_or_default();
            program.contains('/') || name.starts_with("python")
        }),
        Command::Script(_) => true,
        Command::Shell(_) => false,
    }
}

/// Words of a command that may name files, with or without a shell. Files that a shell writes are left out.
pub fn words(command: &Command) -> Vec<&str> {
    match command {
        Command::Direct(words) => words.iter().map(String::as_str).collect(),
        Command::Script(path) => vec![path],
        Command::Shell(line) => {
            let written = written(line);
            line.split(|c: char| c.is_whitespace() || "|<>&;$()`*?~\"'{}=".contains(c))
                .filter(|word| !word.is_empty() && !written.contains(word))
                .collect()
        }
    }
}

/// Targets of `>`, `>>`, `2>` and the like outside of quotes, without their own quotes. Targets of `<>` are left out,
/// because a shell may read them as well.
fn written(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let (mut quote, mut before, mut rest) = (None, ' ', line);
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match (quote, c) {
            (None | Some('"'), '\\') => {
                rest = rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default()
            }
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, '>') if before != '<' => {
                let target = rest.trim_start_matches(['>', '|', '&']).trim_start_matches([' ', '\t', '"', '\'']);
                let end = target.find(|c: char| c.is_whitespace() || "|<>&;()`\"'".contains(c));
                targets.push(&target[..end.unwrap_or(target.len())]);
            }
            _ => {}
        }
        before = c;
    }
    targets
}

struct Words<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    needs_shell: bool,
    first_is_assignment: bool,
}

impl Words<'_> {
    fn split(&mut self) -> Result<Vec<String>, &'static str> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        while let Some(c) = self.chars.next() {
            match c {
                ' ' | '\t' => words.extend(word.take()),
                '\n' | '\r' => {
                    self.needs_shell = true;
                    words.extend(word.take());
                }
                '\'' => self.single(word.get_or_insert_default())?,
                '"' => self.double(word.get_or_insert_default())?,
                '\\' => match self.chars.next() {
                    // A backslash before a line break joins two lines.
                    Some('\n') => {}
                    Some(c) => word.get_or_insert_default().push(c),
                    None => return Err("it ends in a backslash"),
                },
                _ => {
                    let starts_word = word.is_none();
                    self.needs_shell |= "|<>&;$()`*?~".contains(c) || (c == '#' && starts_word);
                    let text = word.get_or_insert_default();
                    self.first_is_assignment |= c == '=' && words.is_empty() && is_name(text);
                    text.push(c);
                }
            }
        }
        words.extend(word);
        Ok(words)
    }

    fn single(&mut self, word: &mut String) -> Result<(), &'static str> {
        for c in self.chars.by_ref() {
            if c == '\'' {
                return Ok(());
            }
            word.push(c);
        }
        Err("a single quote is not closed")
    }

    fn double(&mut self, word: &mut String) -> Result<(), &'static str> {
        while let Some(c) = self.chars.next() {
            match c {
                '"' => return Ok(()),
                '\\' => match self.chars.next() {
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '"' | '\\')) => word.push(c),
                    Some(c) => word.extend(['\\', c]),
                    None => break,
                },
                '$' | '`' => {
                    self.needs_shell = true;
                    word.push(c);
                }
                c => word.push(c),
            }
        }
        Err("a double quote is not closed")
    }
}

/// True if `text` is a valid name of a variable.
pub(crate) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(words: &[&str]) -> Result<Command, &'static str> {
        Ok(Command::Direct(words.iter().map(ToString::to_string).collect()))
    }

    /// A-3.2: split by POSIX word rules and executed directly.
    #[test]
    fn words_are_split_as_a_shell_would() {
        assert_eq!(parse("bash steps/x.sh"), direct(&["bash", "steps/x.sh"]));
        assert_eq!(parse("  a\t'b c'\"d e\"f \\g ''\n"), direct(&["a", "b cd ef", "g", ""]));
        assert_eq!(parse(r#"a "x\"y\\z\n""#), direct(&["a", r#"x"y\z\n"#]));
        assert_eq!(parse("a \\\n b"), direct(&["a", "b"]));
    }

    /// A-3.2: quoted shell characters stay text.
    #[test]
    fn quoted_shell_characters_stay_text() {
        assert_eq!(parse("a '$HOME | x' \"*;>#\" \\$x \\*"), direct(&["a", "$HOME | x", "*;>#", "$x", "*"]));
        assert_eq!(parse(r#"a "\$HOME""#), direct(&["a", "$HOME"]));
    }

    #[test]
    fn harmless_characters_need_no_shell() {
        assert_eq!(
            parse("a {b,c} [x] !hey %d @x = x=1 a#b"),
            direct(&["a", "{b,c}", "[x]", "!hey", "%d", "@x", "=", "x=1", "a#b"])
        );
    }

    /// A-3.2: shell syntax outside quotes runs through a shell.
    #[test]
    fn shell_syntax_needs_a_shell() {
        for line in [
            "a | b",
            "a > b",
            "a < b",
            "a & b",
            "a; b",
            "a $X",
            "(a)",
            "a `b`",
            "a *",
            "a ?",
            "ls ~",
            "a # b",
            "a\nb",
            "cat \"$ETUDE_PIPELINE_DIR/ok.json\"",
            "a \"`b`\"",
            "X=1 a",
            "exit 3",
            "cd x",
        ] {
            assert_eq!(parse(line), Ok(Command::Shell(line.to_owned())), "{line}");
        }
    }

    /// A-5.3, X-1: files that a command writes do not belong to its definition; files that it reads do.
    #[test]
    fn files_that_a_shell_writes_are_not_named() {
        let named = |line: &str| -> Vec<String> {
            let words = parse(line).map(|command| words(&command).into_iter().map(str::to_owned).collect());
            words.unwrap_or_else(|why| panic!("{line}: {why}"))
        };
        for line in [
            "sh x.sh >> l.txt",
            "sh x.sh >l.txt",
            "sh x.sh 2> l.txt",
            "sh x.sh &>l.txt",
            "sh x.sh >| 'l.txt'",
            "sh x.sh > \"l.txt\"",
            "> l.txt sh x.sh; cat l.txt > $NEXT",
        ] {
            let named = named(line);
            assert!(named.iter().any(|word| word == "x.sh"), "{line}: {named:?}");
            assert!(!named.iter().any(|word| word == "l.txt"), "{line}: {named:?}");
        }
        for line in
            ["cat < l.txt", "cat <> l.txt", "echo \"a > $X\" l.txt", "echo '>' l.txt | cat", "echo \\> l.txt | cat"]
        {
            assert!(named(line).iter().any(|word| word == "l.txt"), "{line}: {:?}", named(line));
        }
    }

    #[test]
    fn unbalanced_quotes_and_nothing_are_errors() {
        for line in ["a 'b", "a \"b", "a \\", "", "  ", "''"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}

//! Arguments in a command line of a skill: they stay text, whatever they contain and wherever they stand (C-0.4).

use etude_core::shell;

/// Prefix of the variables that hold arguments.
const PREFIX: &str = "etude_argument_";

/// A command line with arguments in it.
///
/// After a quote, a substitution or the like, an argument is not inserted as text: inside double quotes, a quoted word
/// gives no protection. It becomes a variable, whose value a shell never reads as a command. The quotes around the
/// place only decide whether the value could be split into words.
#[derive(Debug, Default)]
pub(super) struct Line {
    text: String,
    values: Vec<String>,
}

/// Context of a place in a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Single,
    Double,
    /// `$( )` and `( )`: a nested command.
    Parentheses,
    Backticks,
}

impl Line {
    /// Adds text of the skill.
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Removes the backslash at the end.
    pub(super) fn pop(&mut self) {
        self.text.pop();
    }

    /// Number of backslashes at the end.
    pub(super) fn backslashes(&self) -> usize {
        self.text.len() - self.text.trim_end_matches('\\').len()
    }

    /// Adds an argument, quoted or as a variable.
    pub(super) fn argument(&mut self, value: &str) {
        if !self.text.contains(['"', '\'', '`', '\\', '(', '<', '#']) {
            return self.text.push_str(&shell::quoted(value));
        }
        let known = self.values.iter().position(|one| one == value);
        let at = known.unwrap_or_else(|| {
            self.values.push(value.to_owned());
            self.values.len() - 1
        });
        let variable = format!("${{{PREFIX}{}}}", at + 1);
        match inside(&self.text) {
            Some(Inside::Double) => self.text.push_str(&variable),
            Some(Inside::Single) => self.text.push_str(&format!("'\"{variable}\"'")),
            Some(Inside::Parentheses | Inside::Backticks) | None => self.text.push_str(&format!("\"{variable}\"")),
        }
    }

    /// Returns the command line, preceded by the variables that it uses.
    pub(super) fn into_text(self) -> String {
        let set = |(at, value): (usize, &String)| format!("{PREFIX}{}={}\n", at + 1, shell::quoted(value));
        self.values.iter().enumerate().map(set).collect::<String>() + &self.text
    }
}

/// The innermost context at the end of `text`.
fn inside(text: &str) -> Option<Inside> {
    let mut open: Vec<Inside> = Vec::new();
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        let innermost = open.last().copied();
        match (innermost, sign) {
            (Some(Inside::Single), '\'') | (Some(Inside::Double), '"') => drop(open.pop()),
            (Some(Inside::Single), _) => {}
            (_, '\\') => drop(signs.next()),
            (Some(Inside::Double), '\'') => {}
            (_, '\'') => open.push(Inside::Single),
            (_, '"') => open.push(Inside::Double),
            (_, '`') => match open.iter().rposition(|one| *one == Inside::Backticks) {
                Some(at) => open.truncate(at),
                None => open.push(Inside::Backticks),
            },
            (_, '$') if signs.peek() == Some(&'(') => {
                signs.next();
                open.push(Inside::Parentheses);
            }
            (Some(Inside::Double), _) => {}
            (_, '(') => open.push(Inside::Parentheses),
            (Some(Inside::Parentheses), ')') => drop(open.pop()),
            _ => {}
        }
    }
    open.last().copied()
}

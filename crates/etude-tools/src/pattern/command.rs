//! Patterns of commands: matches the words of a pattern with the words of each command in a line.

use globset::GlobMatcher;

use super::programs;
use super::shell::{self, Command, Line, Word};

/// A pattern of commands, such as `git *`.
#[derive(Debug, Clone)]
pub(super) struct CommandPattern {
    /// The described commands; empty if the pattern cannot be parsed.
    commands: Vec<Simple>,
}

#[derive(Debug, Clone)]
struct Simple {
    assignments: Vec<WordPattern>,
    words: Vec<WordPattern>,
    /// True if any number of words may follow.
    is_open: bool,
}

#[derive(Debug, Clone)]
struct WordPattern {
    /// The word, if it is literal.
    text: Option<String>,
    /// `None` if the word is not a valid glob.
    glob: Option<GlobMatcher>,
    /// Glob for the last part of a program's path, ignoring case.
    name: Option<GlobMatcher>,
}

impl CommandPattern {
    /// Parses a pattern.
    pub(super) fn parse(specifier: &str) -> Self {
        let specifier = specifier.trim();
        let (words, is_open) = match (specifier.strip_suffix(":*"), specifier.strip_suffix('*')) {
            (Some(words), _) => (words, true),
            (None, Some(words)) if words.ends_with([' ', '\t']) => (words, true),
            _ => (specifier, false),
        };
        let commands = match shell::read(words) {
            Line::Literal(commands) | Line::Partial(commands) => commands,
            Line::Unreadable => Vec::new(),
        };
        let last = commands.len().saturating_sub(1);
        let commands = commands.iter().enumerate().map(|(at, command)| Simple::new(command, is_open && at == last));
        Self { commands: commands.collect() }
    }

    /// True if the pattern allows the command.
    pub(super) fn lets_through(&self, command: &Command) -> bool {
        matches!(self.commands.as_slice(), [simple] if simple.lets_through(command))
    }

    /// True if the line may run a described command. A pattern that cannot be parsed describes everything.
    pub(super) fn touches(&self, line: &Line) -> bool {
        match line {
            Line::Unreadable => true,
            Line::Literal(commands) | Line::Partial(commands) => {
                self.commands.iter().all(|simple| commands.iter().any(|command| simple.touches(command)))
            }
        }
    }
}

impl Simple {
    fn new(command: &Command, is_open: bool) -> Self {
        let word = |(at, word): (usize, &Word)| WordPattern::new(word, at == 0);
        Self {
            assignments: command.assignments.iter().map(|word| WordPattern::new(word, false)).collect(),
            words: command.words.iter().enumerate().map(word).collect(),
            is_open,
        }
    }

    fn lets_through(&self, command: &Command) -> bool {
        let (Some(own), Some(first)) = (self.words.first(), command.words.first()) else { return false };
        let Some(program) = &first.text else { return false };
        let name = programs::name(program);
        if programs::changes_shell(program) || programs::evaluates(&name, &command.words) {
            return false;
        }
        // A glob matches the programs that its author thought of, and not a program that runs any other.
        let is_named = own.text.as_ref() == Some(program);
        let runs_others = programs::runs_text(&name) || programs::runs_arguments(&name) || program.contains("..");
        let is_long = command.words.len() > self.words.len();
        (is_named || !runs_others)
            && (command.words.len() == self.words.len() || self.is_open && is_long)
            && self.assignments.len() == command.assignments.len()
            && self.assignments.iter().zip(&command.assignments).all(|(pattern, word)| pattern.is(word))
            && self.words.iter().zip(&command.words).all(|(pattern, word)| pattern.is(word))
    }

    fn touches(&self, command: &Command) -> bool {
        let words = &command.words;
        if self.words.is_empty() {
            let mut given = command.assignments.iter().chain(words);
            return given.any(|word| self.assignments.iter().any(|own| own.may_be(word)));
        }
        let Some(program) = words.first() else { return false };
        let Some(program) = &program.text else { return true };
        let starts = if programs::runs_arguments(&programs::name(program)) { words.len() } else { 1 };
        (0..starts).any(|at| self.may_be(at.checked_sub(1).map(|before| &words[before]), &words[at..]))
    }

    /// True if these words, some of them computed, may be a described command. `before` is the word in front of the program,
    /// if that is an argument.
    fn may_be(&self, before: Option<&Word>, words: &[Word]) -> bool {
        let Some(program) = words[0].text.as_deref() else { return true };
        // `find` and `fd` replace the placeholder by names of files.
        let is_placeholder =
            program.contains("{}") && before.and_then(|word| word.text.as_deref()).is_some_and(programs::takes_program);
        let name = programs::name(program);
        let runs_more = programs::runs_text(&name) || programs::splits_text(&name, words);
        if is_placeholder || runs_more || programs::evaluates(&name, words) {
            return true;
        }
        if !self.words[0].may_be_program(program, &name) {
            return false;
        }
        for (at, pattern) in self.words.iter().enumerate().skip(1) {
            match words.get(at) {
                None => return false,
                // The word may become any number of words.
                Some(Word { text: None, .. }) => return true,
                Some(word) if !pattern.may_be(word) => return false,
                Some(_) => {}
            }
        }
        let rest = &words[self.words.len()..];
        self.is_open || rest.is_empty() || rest.iter().any(|word| word.text.is_none())
    }
}

impl WordPattern {
    fn new(word: &Word, is_program: bool) -> Self {
        let glob = word.glob.as_deref();
        let name = glob.and_then(|glob| glob.rsplit('/').next()).filter(|_| is_program);
        Self {
            text: word.text.clone(),
            glob: glob.and_then(|glob| matcher(glob, is_program, false)),
            name: name.and_then(|name| matcher(name, false, true)),
        }
    }

    /// True if the pattern matches the word, and the word is not computed.
    fn is(&self, word: &Word) -> bool {
        let (Some(glob), Some(text)) = (&self.glob, &word.text) else { return false };
        self.text.as_ref().map_or_else(|| glob.is_match(text), |own| own == text)
    }

    /// False only if the pattern certainly does not match the word.
    fn may_be(&self, word: &Word) -> bool {
        self.glob.is_none() || word.text.is_none() || self.is(word)
    }

    /// The check of [`Self::may_be`] for a program, by any path that names it.
    fn may_be_program(&self, program: &str, name: &str) -> bool {
        let (Some(glob), Some(own)) = (&self.glob, &self.name) else { return true };
        glob.is_match(program) || own.is_match(name)
    }
}

fn matcher(glob: &str, separator: bool, ignore_case: bool) -> Option<GlobMatcher> {
    let built = etude_spec::glob::build(glob, |glob| {
        glob.literal_separator(separator).case_insensitive(ignore_case).backslash_escape(true).empty_alternates(true)
    });
    built.ok().map(|glob| glob.compile_matcher())
}

//! The commands of a command line, parsed with the grammar of a shell.
//!
//! `brush-parser` parses the text as bash does. Its result counts only if every shell that may run the line agrees. Simple
//! commands of literal words are [`Line::Literal`]. If words are computed, but each program is named, a line is
//! [`Line::Partial`]. Everything else is [`Line::Unreadable`]. ADR 0054 has the reasons.

use brush_parser::ast::{self, CommandPrefixOrSuffixItem as Item, CompoundCommand as Compound};
use brush_parser::word::{self, ParameterExpr, WordPiece, WordPieceWithSource};
use brush_parser::{ParserOptions, SourceInfo, Token, TokenizerOptions};

use super::programs;

/// Maximum length of a line that is parsed, in bytes.
const MAX_LENGTH: usize = 16 * 1024;

/// Stack size of the thread that parses a line, in bytes. The worst known line takes a tenth of it in a development build.
const STACK: usize = 16 << 20;

/// Maximum number of constructs that may nest: `$(`, `${`, backquotes. The tokenizer recurses for each.
const MAX_SUBSTITUTIONS: usize = 32;

/// Maximum number of openings of compound commands. The grammar backtracks over them.
const MAX_COMPOUNDS: usize = 8;

/// Words that a shell reserves at the beginning of a command.
const RESERVED: &[&str] = &[
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "end", "esac", "fi", "for", "foreach",
    "function", "if", "in", "namespace", "nocorrect", "noglob", "repeat", "select", "then", "time", "until", "while",
    "-",
];

/// Commands that a line runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Simple commands of literal words, joined by `;`, `&&`, `||`, `|` and line breaks.
    Literal(Vec<Command>),
    /// These commands, under conditions, in loops or with redirections; some words are computed at run time.
    Partial(Vec<Command>),
    /// The text does not show which programs run.
    Unreadable,
}

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Command {
    /// Assignments before the program, each as `NAME=value`.
    pub(super) assignments: Vec<Word>,
    /// The program and its arguments.
    pub(super) words: Vec<Word>,
}

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Word {
    /// The argument for the program; `None` if it is computed at run time.
    pub(super) text: Option<String>,
    /// The word as a glob, with quoted text as literals. `None` if the word has other constructs.
    pub(super) glob: Option<String>,
}

/// Error for a line that cannot be parsed safely.
struct Unreadable;

/// Parses a line.
pub(super) fn read(line: &str) -> Line {
    // The parser recurses, and its caller may have little stack left.
    let (name, line) = ("shell grammar".to_owned(), line.to_owned());
    let reader = std::thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
        // The parser has assertions of its own. None is known to be reachable. If one is, it must not become an approval.
        std::panic::catch_unwind(|| try_read(&line)).unwrap_or(Err(Unreadable))
    });
    let read = reader.map(std::thread::JoinHandle::join);
    read.unwrap_or(Ok(Err(Unreadable))).unwrap_or(Err(Unreadable)).unwrap_or(Line::Unreadable)
}

fn try_read(line: &str) -> Result<Line, Unreadable> {
    if !has_plain_characters(line) || line.len() > MAX_LENGTH {
        return Err(Unreadable);
    }
    let substitutions = ["$(", "${", "$[", "`"].iter().map(|opening| line.matches(opening).count()).sum::<usize>();
    // The tokenizer does not end if a here-document begins in a substitution, so no here-document is accepted. The grammar
    // does not know the old arithmetic `$[…]`, which runs commands.
    if substitutions > MAX_SUBSTITUTIONS || line.contains("<<") || line.contains("$[") {
        return Err(Unreadable);
    }
    let options = ParserOptions { enable_extended_globbing: false, tilde_expansion: false, ..ParserOptions::default() };
    let tokenizer = TokenizerOptions { enable_extended_globbing: false, posix_mode: false, sh_mode: false };
    let tokens = brush_parser::uncached_tokenize_str(line, &tokenizer).map_err(|_| Unreadable)?;
    if !is_bounded(&tokens) {
        return Err(Unreadable);
    }
    let program = brush_parser::parse_tokens(&tokens, &options, &SourceInfo::default()).map_err(|_| Unreadable)?;
    let mut reader = Reader { options, commands: Vec::new(), is_literal: true };
    for list in &program.complete_commands {
        reader.list(list)?;
    }
    Ok(if reader.is_literal { Line::Literal(reader.commands) } else { Line::Partial(reader.commands) })
}

/// The words of a parsed line, as spans of bytes in their order. They correspond to the words of the commands only for a
/// [`Line::Literal`].
pub(super) fn spans(line: &str) -> Option<Vec<(usize, usize)>> {
    let tokenizer = TokenizerOptions { enable_extended_globbing: false, posix_mode: false, sh_mode: false };
    let tokens = brush_parser::uncached_tokenize_str(line, &tokenizer).ok()?;
    let places: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
    let words = tokens.iter().filter_map(|token| match token {
        Token::Word(text, location) => Some((text, location)),
        Token::Operator(..) => None,
    });
    let span = |(text, location): (&String, &brush_parser::TokenLocation)| {
        let (start, end) = (*places.get(location.start.index)?, *places.get(location.end.index)?);
        (line.get(start..end)? == text).then_some((start, end))
    };
    words.map(span).collect()
}

/// False for characters that shells, or the encodings of their locales, read in different ways.
fn has_plain_characters(line: &str) -> bool {
    let is_plain = |c: char| matches!(c, '\t' | '\n') || !c.is_control();
    // In some encodings of East Asia a backslash is the second half of a character.
    line.chars().all(is_plain) && (line.is_ascii() || !line.contains('\\'))
}

/// False for tokens that take the parser long, or that make it panic.
fn is_bounded(tokens: &[Token]) -> bool {
    let opens = |token: &&Token| match token {
        Token::Operator(text, _) => text.contains('('),
        Token::Word(text, _) => RESERVED.contains(&text.as_str()),
    };
    // The number of a descriptor is parsed without a check.
    let is_long_number = |pair: &[Token]| {
        matches!(&pair[0], Token::Word(text, _) if text.len() > 4 && text.bytes().all(|b| b.is_ascii_digit()))
            && matches!(&pair[1], Token::Operator(text, _) if text.starts_with(['<', '>']))
    };
    tokens.iter().filter(opens).count() <= MAX_COMPOUNDS && !tokens.windows(2).any(is_long_number)
}

struct Reader {
    options: ParserOptions,
    commands: Vec<Command>,
    is_literal: bool,
}

impl Reader {
    fn list(&mut self, list: &ast::CompoundList) -> Result<(), Unreadable> {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            self.is_literal &= matches!(separator, ast::SeparatorOperator::Sequence);
            self.pipeline(&and_or.first)?;
            for ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline) in &and_or.additional {
                self.pipeline(pipeline)?;
            }
        }
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline) -> Result<(), Unreadable> {
        // `time` is a word of the grammar for some shells and a program for others.
        if pipeline.timed.is_some() || pipeline.seq.is_empty() {
            return Err(Unreadable);
        }
        self.is_literal &= !pipeline.bang;
        pipeline.seq.iter().try_for_each(|command| self.command(command))
    }

    fn command(&mut self, command: &ast::Command) -> Result<(), Unreadable> {
        let (compound, redirects) = match command {
            ast::Command::Simple(simple) => return self.simple(simple),
            ast::Command::Compound(compound, redirects) => (compound, redirects),
            // A function gives names another meaning, and `[[` is a program for some shells.
            ast::Command::Function(_) | ast::Command::ExtendedTest(_) => return Err(Unreadable),
        };
        self.is_literal = false;
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect)?;
        }
        match compound {
            Compound::BraceGroup(group) => self.list(&group.list),
            Compound::Subshell(subshell) => self.list(&subshell.list),
            Compound::IfClause(clause) => {
                self.list(&clause.condition)?;
                self.list(&clause.then)?;
                for part in clause.elses.iter().flatten() {
                    part.condition.iter().try_for_each(|condition| self.list(condition))?;
                    self.list(&part.body)?;
                }
                Ok(())
            }
            Compound::WhileClause(clause) | Compound::UntilClause(clause) => {
                self.list(&clause.0)?;
                self.list(&clause.1.list)
            }
            Compound::ForClause(clause) if programs::is_number(&clause.variable_name) => Err(Unreadable),
            Compound::ForClause(clause) => {
                clause.values.iter().flatten().try_for_each(|word| self.word(&word.value).map(drop))?;
                self.list(&clause.body.list)
            }
            // Some shell parses each of these in another way.
            Compound::Arithmetic(_) | Compound::ArithmeticForClause(_) | Compound::CaseClause(_) => Err(Unreadable),
        }
    }

    fn simple(&mut self, simple: &ast::SimpleCommand) -> Result<(), Unreadable> {
        let mut command = Command::default();
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                Item::AssignmentWord(assignment, word) => {
                    command.assignments.push(self.assignment(assignment, word)?);
                }
                Item::IoRedirect(redirect) => self.redirect(redirect)?,
                Item::Word(_) | Item::ProcessSubstitution(..) => return Err(Unreadable),
            }
        }
        if let Some(name) = &simple.word_or_name {
            if RESERVED.contains(&name.value.as_str()) {
                return Err(Unreadable);
            }
            command.words.push(self.word(&name.value)?);
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                Item::Word(word) => command.words.push(self.word(&word.value)?),
                Item::AssignmentWord(assignment, word)
                    if matches!(assignment.value, ast::AssignmentValue::Scalar(_)) =>
                {
                    command.words.push(self.word(&word.value)?);
                }
                Item::IoRedirect(redirect) => self.redirect(redirect)?,
                Item::AssignmentWord(..) | Item::ProcessSubstitution(..) => return Err(Unreadable),
            }
        }
        self.is_literal &= command.assignments.iter().chain(&command.words).all(|word| word.text.is_some());
        self.commands.push(command);
        Ok(())
    }

    /// Checks an assignment `NAME=value`. For some shells the other forms are commands, and for some names bash evaluates the
    /// value.
    fn assignment(&self, assignment: &ast::Assignment, word: &ast::Word) -> Result<Word, Unreadable> {
        let is_plain = matches!(&assignment.name, ast::AssignmentName::VariableName(name) if !programs::is_number(name))
            && matches!(assignment.value, ast::AssignmentValue::Scalar(_))
            && !assignment.append;
        if is_plain { self.word(&word.value) } else { Err(Unreadable) }
    }

    fn redirect(&mut self, redirect: &ast::IoRedirect) -> Result<(), Unreadable> {
        self.is_literal = false;
        match redirect {
            ast::IoRedirect::File(_, _, target) => match target {
                ast::IoFileRedirectTarget::Filename(word) => self.word(&word.value).map(drop),
                // bash expands a computed target a second time.
                ast::IoFileRedirectTarget::Duplicate(word) => self.word(&word.value)?.text.map(drop).ok_or(Unreadable),
                ast::IoFileRedirectTarget::Fd(_) => Ok(()),
                ast::IoFileRedirectTarget::ProcessSubstitution(..) => Err(Unreadable),
            },
            // A shell without `&>` reads the end of a command and the beginning of another. Bodies of here-documents may
            // compute.
            ast::IoRedirect::HereDocument(..)
            | ast::IoRedirect::HereString(..)
            | ast::IoRedirect::OutputAndError(..) => Err(Unreadable),
        }
    }

    /// Parses a word, unless it runs commands of its own.
    fn word(&self, raw: &str) -> Result<Word, Unreadable> {
        let mut word = Word { text: Some(String::new()), glob: Some(String::new()) };
        // Without the other characters of globs and braces, these words are literal.
        if matches!(raw, "[" | "]" | "{}") {
            word.push_quoted(raw);
            return Ok(word);
        }
        // Before a redirection bash takes `{a[b]}` for a variable, and evaluates the text in brackets.
        if raw.starts_with('{') && raw.contains('[') {
            return Err(Unreadable);
        }
        let pieces = word::parse(raw, &self.options).map_err(|_| Unreadable)?;
        for WordPieceWithSource { piece, .. } in &pieces {
            match piece {
                WordPiece::Text(text) => word.push_unquoted(text),
                WordPiece::SingleQuotedText(text) => word.push_quoted(text),
                WordPiece::EscapeSequence(text) => word.push_quoted(text.strip_prefix('\\').unwrap_or(text)),
                WordPiece::DoubleQuotedSequence(pieces) => {
                    for WordPieceWithSource { piece, .. } in pieces {
                        match piece {
                            WordPiece::Text(text) if !text.contains(['$', '`']) => word.push_quoted(text),
                            WordPiece::EscapeSequence(text) => {
                                word.push_quoted(text.strip_prefix('\\').unwrap_or(text));
                            }
                            piece => word.push_computed(piece)?,
                        }
                    }
                }
                piece => word.push_computed(piece)?,
            }
        }
        Ok(word)
    }
}

impl Word {
    fn push_unquoted(&mut self, text: &str) {
        let mut before = self.text.as_deref().and_then(|text| text.chars().next_back());
        for c in text.chars() {
            let is_literal = match c {
                '_' | '.' | '/' | ',' | ':' | '=' | '@' | '%' | '+' | '-' | '^' | '!' => true,
                // As in `HEAD~1`: only at the start, or after `:` or `=`, a tilde means a folder.
                '~' => before.is_some_and(|before| before.is_ascii_alphanumeric() || before == '^'),
                '#' => before.is_some(),
                c => c.is_ascii_alphanumeric(),
            };
            if !is_literal {
                self.text = None;
            }
            if !is_literal && !matches!(c, '*' | '?' | '[' | ']' | '{' | '}') {
                self.glob = None;
            }
            self.push(c);
            before = Some(c);
        }
    }

    fn push_quoted(&mut self, text: &str) {
        for c in text.chars() {
            if let Some(glob) = self.glob.as_mut().filter(|_| !c.is_alphanumeric()) {
                glob.push('\\');
            }
            self.push(c);
        }
    }

    fn push(&mut self, c: char) {
        for form in [&mut self.text, &mut self.glob].into_iter().flatten() {
            form.push(c);
        }
    }

    /// Adds a part that only inserts the value of a variable.
    fn push_computed(&mut self, piece: &WordPiece) -> Result<(), Unreadable> {
        match piece {
            WordPiece::ParameterExpansion(ParameterExpr::Parameter { indirect: false, parameter }) => match parameter {
                word::Parameter::Positional(_) | word::Parameter::Special(_) | word::Parameter::Named(_) => {
                    *self = Self { text: None, glob: None };
                    Ok(())
                }
                word::Parameter::NamedWithIndex { .. } | word::Parameter::NamedWithAllIndices { .. } => Err(Unreadable),
            },
            _ => Err(Unreadable),
        }
    }
}

//! Words of shell text: placeholders become parameters, and paths of the skill's files start at the app's directory.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Captures, NoExpand, Regex};

use super::scan::{Place, places};
use super::usage;
use super::{Command, Values};
use crate::skill::Skill;

/// Prefix of variables with values of parameters, so that they do not collide with variables of the system.
const PREFIX: &str = "INPUT_";

/// Directory of the app, in which the files of the skill are.
const APP: &str = "$ETUDE_APP_DIR";

/// Variables that every shell or user has.
const KNOWN: [&str; 14] = [
    "HOME", "PATH", "PWD", "USER", "TMPDIR", "SHELL", "LANG", "OLDPWD", "HOSTNAME", "EDITOR", "IFS", "RANDOM",
    "SECONDS", "PIPESTATUS",
];

/// Names of a skill's directory in other programs, and words that stand for it.
static BASE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\$\{?(?:CLAUDE_SKILL_DIR|CLAUDE_PLUGIN_ROOT|SKILL_DIR|SKILL_ROOT)\}?|\{(?:baseDir|SKILL_DIR|skill_dir)\}|<(?:(?:absolute-)?path[-_ ]to[-_ ](?:this[-_ ])?skill|skill[-_ ](?:dir|path|root))>",
    )
    .ok()
});

/// `{{name}}`, `<name>`, `path/to/name`, `your-name`, `$name`, `${name}`, `$1`, `$@`, `{name}`.
static PLACEHOLDER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"\{\{ *([A-Za-z][A-Za-z0-9_. -]*?) *\}\}",
        r"|<([A-Za-z][A-Za-z0-9_./ -]*)>",
        r"|(?:(?:\.{0,2}/)?path/to/)+([A-Za-z0-9_-]+)(?:\.[A-Za-z0-9]+)*",
        r"|\b(?:your|YOUR)[-_]([A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*)",
        r"|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*|[1-9@*])",
        r"|(?:^|[^$])\{([A-Za-z][A-Za-z0-9_-]*)\}",
    ))
    .ok()
});

/// The groups of [`PLACEHOLDER`] that are variables, and the one of a name in braces.
const VARIABLES: [usize; 2] = [5, 6];
const BRACES: usize = 7;

/// `NAME=`, `for NAME`, `read -r NAME NAME`.
static ASSIGNED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b([A-Za-z_][A-Za-z0-9_]*)\+?=|\bfor\s+([A-Za-z_][A-Za-z0-9_]*)|\bread\s+((?:-\w+\s+)*[A-Za-z_][A-Za-z0-9_ ]*)").ok()
});

/// Replaces the placeholders and paths of a text; adds parameters and scripts to `command`.
///
/// # Errors
/// The reason why the text cannot be run.
pub(super) fn replace(
    skill: &Skill,
    text: &str,
    values: &Values,
    command: &mut Command,
) -> Result<String, &'static str> {
    let (assigned, places) = (assigned(text), places(text));
    let pieces = pieces(text, &places);
    let is_usage = pieces.iter().any(|piece| piece.is_word && usage::option(&text[piece.start..piece.end]).is_some());
    let words = Words { skill, text, values, assigned: &assigned, places: &places, is_usage };
    let mut out = String::new();
    let mut is_first = true;
    // Facts about the command from the words before.
    let mut before = Before::default();
    for piece in pieces {
        let part = &text[piece.start..piece.end];
        if !piece.is_word {
            let is_next = part.contains(['\n', ';', '|', '&', '(']);
            is_first = is_first && piece.start == 0 || is_next;
            before = if is_next { Before::default() } else { before };
            out.push_str(part);
            continue;
        }
        if let Some(choice) = words.choice(&piece, &before) {
            out.push_str(&chosen(choice, before.flag, command)?);
            before.flag = None;
            is_first = false;
            continue;
        }
        before = Before { flag: usage::flag(part), calls_script: before.calls_script || words.is_script(part) };
        if usage::is_elision(part) {
            return Err("it leaves something out, as `...`");
        }
        if part == "/" {
            return Err("it names alternatives");
        }
        if is_first && part.starts_with(['"', '\'']) && part.contains(' ') && !part.contains('$') {
            return Err("its first word is not a program");
        }
        words.is_there(part)?;
        match usage::option(part) {
            Some(option) => out.push_str(&usage::replaced(&option, command)),
            None => {
                let word = words.replaced(&piece, command)?;
                if is_first && word.starts_with(&format!("\"${PREFIX}")) && word.matches('"').count() == 2 {
                    return Err("its program is a placeholder");
                }
                out.push_str(&word);
            }
        }
        is_first = false;
    }
    Ok(out)
}

/// Facts from the words before a word of a command.
#[derive(Debug, Clone, Copy, Default)]
struct Before<'t> {
    /// Name of the option right before it.
    flag: Option<&'t str>,
    /// True if a script of the skill is before it.
    calls_script: bool,
}

/// Shell text of the parameter for one of several words.
///
/// # Errors
/// The word is not the value of an option, so that its parameter has no name.
fn chosen(choice: usage::Choice<'_>, flag: Option<&str>, command: &mut Command) -> Result<String, &'static str> {
    let name = choice.option.map(|option| option.trim_start_matches('-')).or(flag).ok_or("it names alternatives")?;
    let variable = parameter(name, command);
    let all = command.choices.entry(parameter_name(name)).or_insert_with(|| choice.alternatives.clone());
    // With several choices, any text is permitted.
    if *all != choice.alternatives {
        all.clear();
    }
    let option = choice.option.map(|option| format!("{option}=")).unwrap_or_default();
    Ok(format!("{option}\"${variable}\""))
}

/// Variables to which a text gives values itself.
pub(super) fn assigned(text: &str) -> BTreeSet<&str> {
    let found = ASSIGNED.iter().flat_map(|pattern| pattern.captures_iter(text));
    let groups = found.flat_map(|found| [1, 2, 3].map(|group| found.get(group).map_or("", |group| group.as_str())));
    groups.flat_map(str::split_whitespace).filter(|name| !name.starts_with('-')).collect()
}

/// Word with its quotes, or the text between two words.
struct Piece {
    start: usize,
    end: usize,
    is_word: bool,
}

/// Words with their quotes, and the text between them. Comments are not words.
fn pieces(text: &str, places: &[Place]) -> Vec<Piece> {
    let (mut found, mut start, mut is_word) = (Vec::new(), 0, false);
    // The end of a placeholder or option with blanks inside.
    let mut whole = 0;
    for (at, c) in text.char_indices() {
        let place = places.get(at).copied().unwrap_or(Place::Plain);
        if place == Place::Plain && at >= whole {
            whole = whole_until(text, at, is_word).unwrap_or(whole);
        }
        let divides = place == Place::Plain && (c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')'));
        let divides = at >= whole && (divides || place == Place::Comment);
        if divides == is_word {
            if start < at {
                found.push(Piece { start, end: at, is_word });
            }
            (start, is_word) = (at, !divides);
        }
    }
    found.push(Piece { start, end: text.len(), is_word });
    found
}

/// End of `<input file>` or `[--limit N]` that begins here: one word, unlike `< file` and `[ -f file ]`.
fn whole_until(text: &str, at: usize, is_in_word: bool) -> Option<usize> {
    let rest = &text[at..];
    if let Some(inner) = rest.strip_prefix('<').filter(|inner| inner.starts_with(|c: char| c.is_ascii_alphabetic())) {
        let (inner, _) = inner.split_once('>')?;
        let is_name = inner.chars().all(|c| c.is_ascii_alphanumeric() || "_. -/".contains(c));
        if is_name {
            return Some(at + inner.len() + 2);
        }
    }
    if let Some(end) = usage::end_of_choice(rest) {
        return Some(at + end);
    }
    (!is_in_word).then(|| usage::end_of_option(rest)).flatten().map(|end| at + end)
}

/// Context for replacing the words of a text.
struct Words<'a> {
    skill: &'a Skill,
    text: &'a str,
    values: &'a Values,
    assigned: &'a BTreeSet<&'a str>,
    places: &'a [Place],
    /// True if the text has options in brackets, so that words in capitals are placeholders.
    is_usage: bool,
}

impl Words<'_> {
    /// Choice that a word is. A shell makes several words of `{a,b}`: it is a choice only if a script of the skill is called,
    /// or in a line with options in brackets.
    fn choice(&self, piece: &Piece, before: &Before<'_>) -> Option<usage::Choice<'_>> {
        let is_plain = matches!(self.places.get(piece.start), Some(Place::Plain));
        let choice = usage::choice(&self.text[piece.start..piece.end]).filter(|_| is_plain)?;
        (!choice.is_ambiguous || self.is_usage || before.calls_script).then_some(choice)
    }

    /// True if a word names a script of the skill.
    fn is_script(&self, word: &str) -> bool {
        let plain = word.trim_matches(['"', '\'']).trim_start_matches("./");
        self.path(plain).is_some_and(|path| self.skill.file(path).is_some_and(|file| file.interpreter().is_some()))
    }

    /// Checks that a script which a word names is in the skill.
    ///
    /// # Errors
    /// The skill does not have the script where a command finds it.
    fn is_there(&self, word: &str) -> Result<(), &'static str> {
        let plain = word.trim_matches(['"', '\'']).trim_start_matches("./");
        let has = |path: &str| self.skill.file(path).is_some();
        let names_script =
            plain.starts_with("scripts/") && plain.contains('.') && !plain.contains(['*', '<', '$', '{']);
        if names_script && self.skill.directories().contains("scripts") && self.path(plain).is_none() {
            return Err("it calls a script that is not in the skill");
        }
        let is_module = plain.contains('.') && !plain.contains('/') && has(&format!("{}.py", plain.replace('.', "/")));
        if is_module {
            return Err("it runs a module that is only in the skill's directory");
        }
        Ok(())
    }

    fn replaced(&self, piece: &Piece, command: &mut Command) -> Result<String, &'static str> {
        let word = &self.text[piece.start..piece.end];
        let bare = word.trim_matches(['"', '\'']);
        let plain = bare.strip_prefix("./").unwrap_or(bare).trim_end_matches('/');
        if let Some(path) = self.path(plain) {
            if self.skill.file(path).is_some_and(|file| file.interpreter().is_some()) {
                command.scripts.push(path.to_owned());
            }
            return Ok(format!("\"{APP}/{path}\""));
        }
        let is_value = |known: &Vec<String>| known.iter().any(|value| value == bare);
        if let Some((name, _)) = self.values.iter().find(|(_, known)| bare.len() > 1 && is_value(known)) {
            return Ok(format!("\"${}\"", parameter(name, command)));
        }
        if let Some(example) = self.example(piece, command) {
            return Ok(example);
        }
        if self.is_usage && usage::is_placeholder(word) && !is_secret(word) {
            return Ok(format!("\"${}\"", parameter(word, command)));
        }
        self.placeholders(piece, command)
    }

    /// Parameter for a word that names a file of the caller as an example, alone or as `--option=file`. The file is its
    /// default.
    fn example(&self, piece: &Piece, command: &mut Command) -> Option<String> {
        if matches!(self.places.get(piece.start), Some(Place::Here | Place::RawHere)) {
            return None;
        }
        let word = &self.text[piece.start..piece.end];
        let at = word.find('=').filter(|_| word.starts_with("--")).map_or(0, |at| at + 1);
        let (option, file) = (&word[..at], word[at..].trim_matches(['"', '\'']));
        if !self.skill.examples.contains(file) {
            return None;
        }
        command.defaults.insert(parameter_name(file), file.to_owned());
        Some(format!("{option}\"${}\"", parameter(file, command)))
    }

    /// File or directory of the skill that a word names: by its path, or by a path that ends with it and that names the skill
    /// or a folder of skills.
    fn path<'w>(&self, word: &'w str) -> Option<&'w str> {
        let is_there =
            |path: &str| self.skill.file(path).is_some() || path.len() > 1 && self.skill.directories().contains(path);
        if is_there(word) {
            return Some(word);
        }
        let word = BASE
            .as_ref()
            .and_then(|base| base.find(word))
            .filter(|base| base.start() == 0)
            .map_or(word, |base| word[base.end()..].trim_start_matches('/'));
        if is_there(word) {
            return Some(word);
        }
        let ends = word.match_indices('/').map(|(at, _)| (&word[..at], &word[at + 1..]));
        let names_skill = |before: &str| {
            let folders: Vec<&str> = before.split('/').collect();
            let is_own = |folder: &&str| !self.skill.name.is_empty() && **folder == self.skill.name;
            folders.last().is_some_and(is_own) || before.contains("skills/") && before.contains("/.")
        };
        ends.into_iter().find(|(before, path)| names_skill(before) && is_there(path)).map(|(_, path)| path)
    }

    /// Replaces placeholders in the form that the quotes around them need.
    fn placeholders(&self, piece: &Piece, command: &mut Command) -> Result<String, &'static str> {
        let word = &self.text[piece.start..piece.end];
        let Some(pattern) = PLACEHOLDER.as_ref() else { return Ok(word.to_owned()) };
        let mut out = String::new();
        let mut from = 0;
        let bases: Vec<(usize, usize)> =
            BASE.iter().flat_map(|base| base.find_iter(word)).map(|found| (found.start(), found.end())).collect();
        for found in pattern.captures_iter(word) {
            let (Some(all), Some(name)) = (found.get(0), name(&found)) else { continue };
            let is_braces = found.get(BRACES).is_some();
            let is_variable = VARIABLES.iter().any(|group| found.get(*group).is_some());
            let lead = if is_braces { all.as_str().find('{').unwrap_or(0) } else { 0 };
            let start = all.start() + lead;
            if bases.iter().any(|(base, end)| (*base..*end).contains(&start)) {
                continue;
            }
            let place = self.places.get(piece.start + start).copied().unwrap_or(Place::Plain);
            // In single quotes, braces belong to another language, and `$` is only a character.
            let is_text = matches!(place, Place::Single | Place::RawHere) && (is_braces || is_variable);
            if is_text || place == Place::Comment || is_variable && !is_parameter(name, self.assigned) {
                continue;
            }
            if place == Place::RawHere {
                return Err("a placeholder is in a here-document without expansion");
            }
            if !is_variable && is_secret(name) {
                return Err("a placeholder is for a secret");
            }
            let variable = parameter(name, command);
            out.push_str(&word[from..start]);
            out.push_str(&expansion(place.quote(), &variable));
            from = all.end();
        }
        out.push_str(&word[from..]);
        Ok(match BASE.as_ref() {
            Some(base) => base.replace_all(&out, NoExpand(APP)).into_owned(),
            None => out,
        })
    }
}

fn name<'w>(found: &Captures<'w>) -> Option<&'w str> {
    (1..=BRACES).find_map(|group| found.get(group)).map(|group| group.as_str())
}

/// Variable in shell text, in the form that the quotes around it need.
pub(crate) fn expansion(quote: Option<char>, variable: &str) -> String {
    match quote {
        None => format!("\"${variable}\""),
        Some('"') => format!("${{{variable}}}"),
        Some(_) => format!("'\"${variable}\"'"),
    }
}

/// Variable in shell text whose value the shell divides into words, as it does with text that is inserted as it is.
pub(crate) fn divided(quote: Option<char>, variable: &str) -> String {
    match quote {
        None => format!("${{{variable}}}"),
        quote => expansion(quote, variable),
    }
}

/// Places in shell text, followed from its start.
pub(crate) struct Quotes {
    places: Vec<Place>,
}

impl Quotes {
    pub(crate) fn new(text: &str) -> Self {
        Self { places: places(text) }
    }

    /// The text without comments and here-documents, and with `"` for everything in quotes.
    pub(crate) fn outside(&self, text: &str) -> String {
        let is_plain = |at: usize| self.places.get(at) == Some(&Place::Plain);
        let shown = |(at, c): (usize, char)| match self.places.get(at) {
            // The parentheses of `$(…)` in quotes.
            Some(Place::Double) if c == '(' && is_plain(at + 1) || c == ')' && at > 0 && is_plain(at - 1) => c,
            Some(Place::Single | Place::Double) => '"',
            Some(Place::Comment | Place::Here | Place::RawHere) => ' ',
            _ => c,
        };
        text.char_indices().map(shown).collect()
    }

    /// Quote that is open at a place where a variable is inserted.
    ///
    /// # Errors
    /// Variables are not replaced at this place.
    pub(crate) fn open_at(&self, at: usize) -> Result<Option<char>, &'static str> {
        match self.places.get(at) {
            Some(Place::RawHere) => Err("is in a here-document without expansion"),
            place => Ok(place.and_then(|place| place.quote())),
        }
    }
}

/// True if a variable stands for a value from the user: neither the system nor the text sets it, and it is not a secret.
fn is_parameter(name: &str, assigned: &BTreeSet<&str>) -> bool {
    !assigned.contains(name) && !is_secret(name) && !KNOWN.contains(&name) && !name.starts_with("ETUDE_")
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    ["API_KEY", "ACCESS_KEY", "SECRET", "TOKEN", "PASSWORD"].iter().any(|part| name.contains(part))
        || name.split('_').any(|part| part == "KEY")
}

/// Parameter name for `$ARGUMENTS`, `$1` or another placeholder: lower case, with `_` for other characters.
pub(super) fn parameter_name(placeholder: &str) -> String {
    match placeholder {
        "ARGUMENTS" | "@" | "*" => "arguments".to_owned(),
        digit if digit.bytes().all(|byte| byte.is_ascii_digit()) => format!("argument_{digit}"),
        other => {
            let name = other.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            name.trim_matches('_').to_owned()
        }
    }
}

/// Adds the parameter for a placeholder; returns its variable.
pub(super) fn parameter(placeholder: &str, command: &mut Command) -> String {
    let name = parameter_name(placeholder);
    let variable = format!("{PREFIX}{}", name.to_ascii_uppercase());
    command.parameters.insert(name, variable.clone());
    variable
}

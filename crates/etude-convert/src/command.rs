//! Shell commands of code steps, from statements: scripts and commands of the skill as they are, with parameters in place of
//! placeholders (L-89).

mod context;
mod example;
mod find;
pub(crate) mod scan;
mod secret;
mod session;
#[cfg(test)]
mod tests;
mod usage;
pub(crate) mod words;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use context::{condition, is_mention};
pub(crate) use example::files as example_files;
pub(crate) use find::has_action;
pub use secret::has_secret;
pub(crate) use session::{Session, session};

use crate::skill::Skill;
use crate::statement::Statement;

/// Shell command of a code step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Shell text, one command a line.
    pub text: String,
    /// True if the text needs `bash`.
    pub needs_bash: bool,
    /// Parameters in the text, each with the environment variable that has its value.
    pub parameters: BTreeMap<String, String>,
    /// Names of the parameters that may be missing.
    pub optional: BTreeSet<String>,
    /// Values that the text names as examples, by parameter: they are the defaults.
    pub defaults: BTreeMap<String, String>,
    /// Words that parameters choose from, by name. An empty list permits any text.
    pub choices: BTreeMap<String, Vec<String>>,
    /// Scripts of the skill that the text calls, in order.
    pub scripts: Vec<String>,
}

/// Values that cases give to parameters: a word of a command that equals one of them stands for the parameter.
pub type Values = BTreeMap<String, Vec<String>>;

/// Command in a statement; `None` if there is none.
///
/// # Errors
/// The reason why the command cannot be run as it is written.
pub fn of_statement(skill: &Skill, statement: &Statement, values: &Values) -> Result<Option<Command>, &'static str> {
    of_statements(skill, &[statement], values)
}

/// Commands of statements that one shell runs, one after the other.
///
/// # Errors
/// The reason why they cannot be run as they are written.
pub(crate) fn of_statements(
    skill: &Skill,
    statements: &[&Statement],
    values: &Values,
) -> Result<Option<Command>, &'static str> {
    let mut found = Vec::new();
    for statement in statements {
        found.extend(find::lines(skill, statement)?);
    }
    if found.is_empty() {
        return Ok(None);
    }
    let text = found.iter().map(|found| found.text.as_str()).collect::<Vec<_>>().join("\n");
    if has_secret(&text) {
        return Err("it has a value that looks like a key or a password");
    }
    let mut command = Command {
        text: String::new(),
        needs_bash: false,
        parameters: BTreeMap::new(),
        optional: BTreeSet::new(),
        defaults: BTreeMap::new(),
        choices: BTreeMap::new(),
        scripts: Vec::new(),
    };
    command.text = words::replace(skill, &text, values, &mut command)?;
    let is_bash = found.iter().any(|found| found.is_bash) && text.contains('\n');
    command.needs_bash = is_bash || find::needs_bash(&command.text);
    Ok(Some(command))
}

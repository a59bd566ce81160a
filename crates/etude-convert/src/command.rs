//! From a statement to the shell command of a code step: scripts and commands of the skill as they are, with parameters in
//! place of placeholders (L-89).

mod context;
mod example;
mod find;
pub(crate) mod scan;
mod session;
#[cfg(test)]
mod tests;
mod usage;
pub(crate) mod words;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use context::{condition, is_mention};
pub(crate) use example::files as example_files;
pub(crate) use find::has_action;
pub(crate) use session::{Session, session};

use crate::skill::Skill;
use crate::statement::Statement;

/// What a code step runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Shell text, one command a line.
    pub text: String,
    /// It is text for `bash`.
    pub needs_bash: bool,
    /// The parameters in it, by name, with the environment variable that has each value.
    pub parameters: BTreeMap<String, String>,
    /// The names of parameters without which it runs.
    pub optional: BTreeSet<String>,
    /// The values of parameters that it names as examples: it runs with them if no other one is given.
    pub defaults: BTreeMap<String, String>,
    /// The words that parameters choose from, by name. None: they are any text.
    pub choices: BTreeMap<String, Vec<String>>,
    /// The scripts of the skill that it calls, in order.
    pub scripts: Vec<String>,
}

/// Values that cases give to parameters: a word of a command that is one of them stands for the parameter.
pub type Values = BTreeMap<String, Vec<String>>;

/// The command in a statement; `None` if there is none.
///
/// # Errors
/// Why the command cannot be run as it is written.
pub fn of_statement(skill: &Skill, statement: &Statement, values: &Values) -> Result<Option<Command>, &'static str> {
    of_statements(skill, &[statement], values)
}

/// The commands of statements that one shell runs, one after the other.
///
/// # Errors
/// Why they cannot be run as they are written.
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

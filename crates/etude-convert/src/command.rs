//! From a statement to the shell command of a code step: scripts and commands of the skill as they are, with parameters in
//! place of placeholders (L-89).

mod find;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use std::collections::BTreeMap;

use crate::skill::Skill;
use crate::statement::Statement;

/// What a code step runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Shell text, one command a line.
    pub text: String,
    /// It is more than one line of text for `bash`.
    pub needs_bash: bool,
    /// The parameters in it, by name, with the environment variable that has each value.
    pub parameters: BTreeMap<String, String>,
    /// The scripts of the skill that it calls, in order.
    pub scripts: Vec<String>,
}

/// Values that cases give to parameters: a word of a command that is one of them stands for the parameter.
pub type Values = BTreeMap<String, Vec<String>>;

/// The command in a statement; `None` if there is none to run.
pub fn of_statement(skill: &Skill, statement: &Statement, values: &Values) -> Option<Command> {
    let found = find::lines(skill, statement)?;
    let mut command = Command {
        text: String::new(),
        needs_bash: found.is_bash && found.text.contains('\n'),
        parameters: BTreeMap::new(),
        scripts: Vec::new(),
    };
    let replaced = words::replace(skill, &found.text, values, &mut command);
    command.text = replaced;
    Some(command)
}

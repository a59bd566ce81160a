//! The script that a command runs.

use etude_core::effect::Command;

use super::interpreter::{self, Code};

/// File extensions with an interpreter, and the usual interpreter of each.
const SCRIPTS: [(&str, &str); 7] = [
    ("py", "python3"),
    ("sh", "bash"),
    ("js", "node"),
    ("mjs", "node"),
    ("ts", "node"),
    ("rb", "ruby"),
    ("pl", "perl"),
];

/// Interpreter of a file with this extension.
pub(crate) fn usual_interpreter(path: &str) -> Option<&'static str> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    SCRIPTS.iter().find(|(known, _)| *known == extension).map(|(_, interpreter)| *interpreter)
}

/// The script that a command cannot do without: its program, or the script that its interpreter runs.
pub(crate) fn needed(command: &Command) -> Option<&str> {
    match command {
        Command::Script(path) => Some(path),
        Command::Shell(_) => None,
        Command::Direct(words) => match interpreter::code(words) {
            Some(Code::Script(path)) => Some(path),
            Some(_) => None,
            None => words.first().map(String::as_str),
        },
    }
}

/// The script of the app that a command runs, if it certainly runs one.
pub(crate) fn script_of(command: &Command) -> Option<&str> {
    needed(command).filter(|word| is_script(command, word))
}

/// True if a program, or the argument of an interpreter, looks like a script of the app. A program without a `/` is looked up
/// on `PATH`, and a word with a `:` may be an address.
fn is_script(command: &Command, word: &str) -> bool {
    let is_program = super::words(command).first() == Some(&word);
    usual_interpreter(word).is_some() && !word.contains(':') && (!is_program || word.contains('/'))
}

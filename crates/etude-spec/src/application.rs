//! Agent Applications: what an `APP.md` says, and what is wrong with it (C-1).
//!
//! [`read`] never fails: also of a file without usable frontmatter there is a [`Contract`], so that a listing can say
//! why a package cannot be used. Nothing here touches a disk: see `etude_packages::applications`.

mod body;
pub mod findings;
mod read;
mod slug;
mod state;

use serde_json::{Map, Value};

use crate::diagnostic::Diagnostic;

pub use body::{Body, sections_missing};
pub use read::read;
pub use slug::{is_slug, slugified};
pub use state::StatePaths;

/// The file that makes a directory a package.
pub const APP_FILE: &str = "APP.md";

/// The schema that is implemented, and that holds where none is named.
pub const SCHEMA: &str = "agentapplications/v1";

/// The frontmatter of an `APP.md` (C-1.4).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Contract {
    /// Which version of the format it follows.
    pub schema: String,
    /// `app`.
    pub kind: String,
    /// The name for programs.
    pub slug: String,
    /// The slug is not in the file.
    pub is_slug_derived: bool,
    /// The name for people.
    pub name: String,
    /// The purpose in the author's words, by which models choose the application.
    pub description: String,
    /// The package's version, as written.
    pub version: String,
    /// The licence in the author's words.
    pub license: Option<String>,
    /// Who made it: texts or mappings.
    pub authors: Vec<Value>,
    /// Words to group packages by.
    pub tags: Vec<String>,
    /// What tools add for themselves.
    pub metadata: Map<String, Value>,
    /// `entry.command`: the program.
    pub entry: String,
    /// The commands, or paths of commands, each once; words are separated by one blank.
    pub commands: Vec<String>,
    /// The short names of its skills.
    pub skills: Vec<String>,
    /// It knows due dates or the like.
    pub is_scheduling_supported: bool,
    /// Commands that a person has to confirm.
    pub confirmation_required: Vec<String>,
}

/// What reading an `APP.md` came to.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What it says, with every part that can be read.
    pub contract: Contract,
    /// Everything that is wrong with it.
    pub diagnostics: Vec<Diagnostic>,
}

impl Reading {
    /// True if the package can be activated and run.
    pub fn is_compatible(&self) -> bool {
        !self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

impl Contract {
    /// The declared command that `words` begin with, and how many of them it has; the longest one wins (C-1.13).
    pub fn command(&self, words: &[String]) -> Option<(&str, usize)> {
        let fits = |command: &&String| {
            let path: Vec<&str> = command.split(' ').collect();
            words.len() >= path.len() && path.iter().zip(words).all(|(part, word)| part == word)
        };
        let longest = self.commands.iter().filter(fits).max_by_key(|command| command.split(' ').count())?;
        Some((longest, longest.split(' ').count()))
    }

    /// True if a person has to confirm the command with these arguments. Exactly the path counts, not its beginning; where the
    /// arguments complete the words of a longer path, declared or only listed, that path counts as well (C-1.14).
    pub fn needs_confirmation(&self, command: &str, args: &[String]) -> bool {
        let words: Vec<&str> = command.split(' ').chain(args.iter().map(String::as_str)).collect();
        let fits = |path: &&String| path.split(' ').enumerate().all(|(at, part)| words.get(at) == Some(&part));
        let paths = self.commands.iter().chain(&self.confirmation_required).filter(fits);
        let longest = paths.max_by_key(|path| path.split(' ').count());
        self.confirmation_required.iter().any(|listed| listed == command || Some(listed) == longest)
    }

    /// Where the package keeps state besides `app/state` and `app/data`, as globs below `app/` (C-1.11).
    pub fn state_paths(&self) -> Vec<String> {
        let listed = self.metadata.get("statePaths").and_then(Value::as_array);
        let listed = listed.into_iter().flatten().filter_map(Value::as_str);
        listed.filter(|pattern| state::base(pattern).is_some()).map(str::to_owned).collect()
    }

    /// A declared command that shows the state, to be run without arguments before a confirmation is asked for.
    pub fn state_command(&self) -> Option<&str> {
        let named = self.metadata.get("stateCommand")?.as_str()?;
        let declared = self.commands.iter().find(|command| *command == named)?;
        (!self.needs_confirmation(declared, &[])).then_some(declared)
    }
}

#[cfg(test)]
mod tests;

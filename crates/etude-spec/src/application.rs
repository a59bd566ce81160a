//! Agent Applications: the contract in an `APP.md`, and its faults (C-1).
//!
//! [`read`] never fails. Even a file without usable frontmatter yields a [`Contract`], so that a listing can say why a
//! package is unusable. This module reads no files: see `etude_packages::applications`.

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

/// The implemented schema, which also applies if a file names none.
pub const SCHEMA: &str = "agentapplications/v1";

/// The frontmatter of an `APP.md` (C-1.4).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Contract {
    /// Version of the format that the file follows.
    pub schema: String,
    /// The name for programs.
    pub slug: String,
    /// True if the slug is not in the file but derived.
    pub is_slug_derived: bool,
    /// The name for people.
    pub name: String,
    /// The purpose in the author's words, by which models choose the application.
    pub description: String,
    /// The package's version, as written.
    pub version: String,
    /// The licence in the author's words.
    pub license: Option<String>,
    /// Authors, as texts or mappings.
    pub authors: Vec<Value>,
    /// Words to group packages by.
    pub tags: Vec<String>,
    /// Fields that tools add for themselves.
    pub metadata: Map<String, Value>,
    /// `entry.command`: the program.
    pub entry: String,
    /// The commands, or paths of commands, each once; words are separated by one blank.
    pub commands: Vec<String>,
    /// Short names of the application's skills.
    pub skills: Vec<String>,
    /// True if the application supports due dates or the like.
    pub is_scheduling_supported: bool,
    /// Commands that a person must confirm.
    pub confirmation_required: Vec<String>,
}

/// Result of reading an `APP.md`.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The contract, with every part that can be read.
    pub contract: Contract,
    /// All faults of the file.
    pub diagnostics: Vec<Diagnostic>,
}

impl Contract {
    /// The declared command that `words` begin with, and its number of words; the longest one wins (C-1.13).
    pub fn command(&self, words: &[String]) -> Option<(&str, usize)> {
        let fits = |command: &&String| {
            let path: Vec<&str> = command.split(' ').collect();
            words.len() >= path.len() && path.iter().zip(words).all(|(part, word)| part == word)
        };
        let longest = self.commands.iter().filter(fits).max_by_key(|command| command.split(' ').count())?;
        Some((longest, longest.split(' ').count()))
    }

    /// True if a person must confirm the command with these arguments. The exact path counts, not its beginning. If the
    /// arguments complete a longer path, declared or only listed, that path counts as well (C-1.14).
    pub fn needs_confirmation(&self, command: &str, args: &[String]) -> bool {
        let words: Vec<&str> = command.split(' ').chain(args.iter().map(String::as_str)).collect();
        let fits = |path: &&String| path.split(' ').enumerate().all(|(at, part)| words.get(at) == Some(&part));
        let paths = self.commands.iter().chain(&self.confirmation_required).filter(fits);
        let longest = paths.max_by_key(|path| path.split(' ').count());
        self.confirmation_required.iter().any(|listed| listed == command || Some(listed) == longest)
    }

    /// State paths of the package besides `app/state` and `app/data`, as globs below `app/` (C-1.11).
    pub fn state_paths(&self) -> Vec<String> {
        let listed = self.metadata.get("statePaths").and_then(Value::as_array);
        let listed = listed.into_iter().flatten().filter_map(Value::as_str);
        listed.filter(|pattern| state::base(pattern).is_some()).map(str::to_owned).collect()
    }

    /// A declared command that shows the state; it runs without arguments before a confirmation is requested.
    pub fn state_command(&self) -> Option<&str> {
        let named = self.metadata.get("stateCommand")?.as_str()?;
        let declared = self.commands.iter().find(|command| *command == named)?;
        (!self.needs_confirmation(declared, &[])).then_some(declared)
    }
}

#[cfg(test)]
mod tests;

//! The stages of the standard pipeline and the directives, as layers (D-10, D-11).
//!
//! All of them read and write the target: the context of the tool that they serve.

mod about;
mod configure;
mod directives;
mod execute;
mod host;
mod trust;
mod validate;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::chain::{Context, Middleware, Resume, Step, Throw, ThrowKind, View};
use etude_files::beneath::{self, Root, Unresolved};
use etude_files::regular;
use etude_spec::cascade::search::{Catalog, absolute};
use etude_spec::cascade::{PathEntry, Strategy, library};
use serde_json::Value;

/// Largest file that stages read, in bytes.
pub(crate) const MAX_SIZE: u64 = 16 << 20;

/// What stages know besides contexts.
pub(crate) struct Shared {
    /// The project's directory.
    pub(crate) dir: PathBuf,
    /// The choices.
    pub(crate) strategy: Strategy,
    /// What can be called.
    pub(crate) catalog: Catalog,
    /// The path that it was found on.
    pub(crate) searched: Vec<PathEntry>,
    /// `locals.config` values that the command line has set, which beat metadata.
    pub(crate) config: Vec<(String, Value)>,
    /// What `:env[…]` sees.
    pub(crate) env: BTreeMap<String, String>,
    /// Calls that trust rules would ask about pass.
    pub(crate) yolo: bool,
    /// Decisions that were made for good.
    pub(crate) decisions: Mutex<trust::Decisions>,
    /// The schemas of arguments and results, by their text.
    pub(crate) schemas: Mutex<BTreeMap<String, validate::Compiled>>,
    /// For patterns, which know paths.
    pub(crate) roots: etude_tools::Roots,
}

pub(crate) use host::{APPROVE, CONFIRM, CONFIRMATION, REDACT};
pub(crate) use trust::{Decisions, GATEWAY};

/// The function of the stage or directive `name`.
pub(crate) fn layer(name: &str, shared: &Arc<Shared>) -> Option<Arc<dyn Middleware>> {
    let shared = Arc::clone(shared);
    Some(match name {
        "cwd" | "workspace" | "mcp" | "gateway" | "event" | "paths" | "model" | "log" | "include" => {
            Arc::new(AtOnce(configure::Configure { name: name.to_owned(), shared }))
        }
        "params" | "returns" | "visibility" | "role" | "tags" | "frontmatter" => {
            Arc::new(about::About { key: name.to_owned(), shared })
        }
        "directives" => Arc::new(directives::Directives { shared }),
        "arg" | "env" | "path" | "context" | "config" | "skill" | "tool" | "inline" | "eval" => {
            Arc::new(AtOnce(directives::Directive { name: name.to_owned(), shared }))
        }
        "trust" => Arc::new(trust::Trust { shared }),
        "validate-args" => Arc::new(AtOnce(validate::Arguments { shared })),
        "validate-returns" => Arc::new(validate::Returns { shared }),
        "validate-allowed-tools" => Arc::new(AtOnce(validate::AllowedTools { shared })),
        REDACT => Arc::new(host::Redact),
        APPROVE => Arc::new(AtOnce(host::Approve)),
        CONFIRM => Arc::new(host::Confirm),
        "execute" => Arc::new(execute::Execute),
        "agent-execute" => Arc::new(execute::AgentExecute),
        _ => return None,
    })
}

/// A stage that does one thing at once.
trait Once {
    /// Does it.
    fn run(&self, view: &mut View<'_>) -> Result<Option<Value>, Throw>;
}

/// The layer of such a stage.
struct AtOnce<T>(T);

impl<T: Once + Send + Sync> Middleware for AtOnce<T> {
    fn step(&self, view: &mut View<'_>, _: Resume) -> Step {
        match self.0.run(view) {
            Ok(value) => Step::Done(value),
            Err(throw) => Step::Throw(throw),
        }
    }
}

impl Shared {
    /// The text of a file, relative to the absolute directory `base`; of the library, too. It goes into a prompt, so it must
    /// lie in the project, on its search path, or beside the skill, whose directory is `own`, links followed: a skill that
    /// somebody else wrote has no business with other files of the user.
    fn read(&self, base: &str, path: &str, own: &str) -> Result<String, String> {
        let whole = absolute(base, path);
        if let Some(text) = library::text(&whole) {
            return Ok(text.to_owned());
        }
        let (file, _) = self.open_inside(&whole, path, own)?;
        let text = regular::read_from(file, MAX_SIZE).and_then(regular::text);
        text.map_err(|error| format!("`{path}` cannot be read: {error}"))
    }

    /// Opens the file `whole`, written as `path`, if it is in the project, on its search path or below `own`, links
    /// followed. Also where it is without links.
    pub(crate) fn open_inside(&self, whole: &str, path: &str, own: &str) -> Result<(File, PathBuf), String> {
        let dirs = self.catalog.roots.iter().map(|root| root.dir.as_str()).chain([own]).map(Path::new);
        // A directory of the search path may be missing.
        let roots: Vec<Root> = dirs.chain([self.dir.as_path()]).filter_map(|dir| Root::open(dir).ok()).collect();
        beneath::open_file(&roots, Path::new(whole)).map_err(|why| match why {
            Unresolved::Outside(_) => format!(
                "`{path}` lies outside the project, the directories on its search path and the skill's own; \
                 copy it there, or add its directory to `paths` of the main skill"
            ),
            why => format!("`{path}` cannot be read: {why}"),
        })
    }

    fn cwd(&self) -> String {
        self.dir.display().to_string()
    }
}

/// The directory of a tool's file; the project's for a tool without one.
pub(crate) fn dir_of(context: &Context, shared: &Shared) -> String {
    let path = context.tool.uri.as_deref().and_then(|uri| uri.strip_prefix("file://"));
    let dir = path.and_then(|path| path.rsplit_once('/')).map(|(dir, _)| dir.to_owned());
    dir.unwrap_or_else(|| shared.cwd())
}

/// A throw of a stage about the tool that it serves.
fn refusal(kind: ThrowKind, stage: &str, message: String) -> Throw {
    Throw::new(kind, stage, message)
}

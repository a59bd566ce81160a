//! The standard pipeline and the directives, as middleware (D-10, D-11).
//!
//! All of it reads and writes the target: the context of the served tool.

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

use crate::chain::{Context, Middleware, Resume, Step, Throw, View};
use etude_files::beneath::{self, Root, Unresolved};
use etude_files::regular;
use etude_spec::cascade::search::{Catalog, absolute};
use etude_spec::cascade::{PathEntry, Strategy, library};
use serde_json::Value;

/// Largest file that middleware reads, in bytes.
pub(crate) const MAX_SIZE: u64 = 16 << 20;

/// State that middleware shares, besides contexts.
pub(crate) struct Shared {
    /// The project's directory.
    pub(crate) dir: PathBuf,
    /// Chosen behaviours where the format leaves a choice.
    pub(crate) strategy: Strategy,
    /// The skills and tools that can be called.
    pub(crate) catalog: Catalog,
    /// The search path of the catalog.
    pub(crate) searched: Vec<PathEntry>,
    /// `locals.config` values that the command line has set, which beat metadata.
    pub(crate) config: Vec<(String, Value)>,
    /// Variables for `:env[…]`.
    pub(crate) env: BTreeMap<String, String>,
    /// Skips the questions of trust rules.
    pub(crate) yolo: bool,
    /// Permanent decisions of trust rules.
    pub(crate) decisions: Mutex<trust::Decisions>,
    /// Compiled schemas of arguments and results, by their JSON text.
    pub(crate) schemas: Mutex<BTreeMap<String, validate::Compiled>>,
    /// Folders for patterns with paths.
    pub(crate) roots: etude_tools::Roots,
}

pub(crate) use host::{APPROVE, CONFIRM, CONFIRMATION, REDACT};
pub(crate) use trust::{Decisions, GATEWAY};

/// The implementation of the middleware or directive `name`.
pub(crate) fn builtin(name: &str, shared: &Arc<Shared>) -> Option<Arc<dyn Middleware>> {
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

/// Middleware that finishes in one step.
trait Once {
    fn run(&self, view: &mut View<'_>) -> Result<Option<Value>, Throw>;
}

/// Adapter from [`Once`] to [`Middleware`].
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
    /// Reads a text file, relative to the absolute directory `base`, or a text of the library. The text goes into a prompt. So
    /// the file must lie in the project, on its search path or in the skill's directory `own`, links followed: a skill by
    /// another author must not read other files of the user.
    fn read(&self, base: &str, path: &str, own: &str) -> Result<String, String> {
        let whole = absolute(base, path);
        if let Some(text) = library::text(&whole) {
            return Ok(text.to_owned());
        }
        let (file, _) = self.open_inside(&whole, path, own)?;
        let text = regular::read_from(file, MAX_SIZE).and_then(regular::text);
        text.map_err(|error| format!("`{path}` cannot be read: {error}"))
    }

    /// Opens the file `whole`, written as `path`, if it lies in the project, on its search path or below `own`, links followed.
    /// Also returns its path without links.
    pub(crate) fn open_inside(&self, whole: &str, path: &str, own: &str) -> Result<(File, PathBuf), String> {
        let dirs = self.catalog.roots.iter().map(|root| root.dir.as_str()).chain([own]).map(Path::new);
        // A directory of the search path may be missing.
        let roots: Vec<Root> = dirs.chain([self.dir.as_path()]).filter_map(|dir| Root::open(dir).ok()).collect();
        beneath::open_file(&roots, Path::new(whole)).map_err(|why| match why {
            Unresolved::Outside(_) => format!(
                "`{path}` is outside the project, its search path and the directory of the skill; \
                 copy it there, or add its directory to `paths` of the main skill"
            ),
            why => format!("`{path}` cannot be read: {why}"),
        })
    }

    fn cwd(&self) -> String {
        self.dir.display().to_string()
    }
}

/// The directory of a tool's file; the project's directory for a tool without a file.
pub(crate) fn dir_of(context: &Context, shared: &Shared) -> String {
    let path = context.tool.uri.as_deref().and_then(|uri| uri.strip_prefix("file://"));
    let dir = path.and_then(|path| path.rsplit_once('/')).map(|(dir, _)| dir.to_owned());
    dir.unwrap_or_else(|| shared.cwd())
}

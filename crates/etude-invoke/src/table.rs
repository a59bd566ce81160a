//! Skills as tools of a chain machine: compiled on their first call, then kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::chain::{Context, Throw, ThrowKind, Tool, ToolHandler, Tools};
use etude_spec::cascade::search::{Cache, Catalog, absolute};
use etude_spec::cascade::skill::{SkillHandler, is_bare_name};
use etude_spec::cascade::strategy::Hooks;
use etude_spec::cascade::{Compiler, Scope, Skill, Skills, project_main};
use etude_spec::source::SourceFile;
use etude_spec::{Diagnostic, render};
use serde_json::{Map, Value, json};

use crate::middleware::{self, CONFIRMATION, Shared};
use crate::roots::{DiskRoots, Modules};

/// The tools of a session.
pub(crate) struct Table {
    pub(crate) shared: Arc<Shared>,
    pub(crate) scope: Arc<Scope>,
    known: BTreeMap<String, Result<Arc<Tool>, Throw>>,
    skills: BTreeMap<String, Arc<Skill>>,
    /// The search path, searched again for later skills.
    late: Option<Catalog>,
}

impl Table {
    pub(crate) fn new(shared: Arc<Shared>, scope: Scope) -> Self {
        Self { shared, scope: Arc::new(scope), known: BTreeMap::new(), skills: BTreeMap::new(), late: None }
    }

    /// The skill of a tool that the table has returned.
    pub(crate) fn skill(&self, tool: &Tool) -> Option<Arc<Skill>> {
        self.skills.get(&*tool.name).cloned()
    }

    fn make(&mut self, reference: &str, from: Option<&Context>) -> Result<Arc<Tool>, Throw> {
        let unknown = || Throw::new(ThrowKind::Unknown, reference, format!("skill not found: `{reference}`"));
        if reference == CONFIRMATION {
            return Ok(Arc::new(Tool::new(reference, ToolHandler::Effect)));
        }
        if self.shared.catalog.is_empty() {
            // Without a search path, only the program's own middleware exists.
            let middleware = middleware::builtin(reference, &self.shared).ok_or_else(unknown)?;
            return Ok(Arc::new(Tool::new(reference, ToolHandler::Middleware(middleware))));
        }
        // The URI of a server's tool has the same parts as its name (D-9.1, D-12).
        let of_server = reference.strip_prefix("mcp://").map(|address| address.replace('/', "-"));
        let reference = of_server.as_deref().unwrap_or(reference);
        let skill = if is_bare_name(reference) {
            let known = self.shared.catalog.find(reference);
            known.or_else(|| self.searched_again(reference)).ok_or_else(unknown)?
        } else {
            self.at_path(reference, from).ok_or_else(unknown)?
        };
        let compiler = Compiler::new(self.late.as_ref().unwrap_or(&self.shared.catalog), &self.scope);
        let mut tool = compiled(&compiler, &skill, self.shared.strategy.hooks)?;
        tool.body = match &skill.body {
            SkillHandler::Prompt => ToolHandler::Nothing,
            SkillHandler::Command(_) | SkillHandler::Module => ToolHandler::Effect,
            SkillHandler::BuiltinTool => {
                middleware::builtin(&skill.name, &self.shared).map_or(ToolHandler::Effect, ToolHandler::Middleware)
            }
        };
        self.skills.insert(skill.name.clone(), skill);
        Ok(Arc::new(tool))
    }

    /// A skill that was written after the search: the path is searched once more (D-9.1).
    fn searched_again(&mut self, name: &str) -> Option<Arc<Skill>> {
        let found = |late: &Option<Catalog>| late.as_ref().and_then(|late| late.find(name));
        if let Some(skill) = found(&self.late) {
            return Some(skill);
        }
        let cwd = self.shared.dir.display().to_string();
        let mut late =
            Catalog::search(&DiskRoots::new(Modules::Run), &cwd, &self.shared.searched, &mut Cache::default());
        late.main.clone_from(&self.shared.catalog.main);
        late.take_registered(&self.shared.catalog);
        self.late = Some(late);
        found(&self.late)
    }

    /// A skill by the path of its file, independent of the search path; `#NAME` selects one of several in the file (D-9.1).
    fn at_path(&self, reference: &str, from: Option<&Context>) -> Option<Arc<Skill>> {
        let path = reference.strip_prefix("file://").unwrap_or(reference);
        let (path, name) = path.split_once('#').map_or((path, None), |(path, name)| (path, Some(name)));
        let base = from.and_then(|from| from.config.get("cwd")?.as_str().map(str::to_owned));
        let whole = absolute(&base.unwrap_or_else(|| self.shared.dir.display().to_string()), path);
        let dir: Arc<str> = whole.rsplit_once('/')?.0.into();
        if std::path::Path::new(&whole).is_dir() {
            let disk = etude_tools::disk::Disk::open(std::path::Path::new(&whole)).ok()?;
            return project_main(&disk, &whole).skill;
        }
        let text = etude_files::regular::read_text(std::path::Path::new(&whole), crate::middleware::MAX_SIZE).ok()?;
        let mut skills = Skill::read_all(&SourceFile::new(whole.as_str(), text), &dir).0.into_iter();
        skills.find(|skill| name.is_none_or(|name| skill.name == name)).map(Arc::new)
    }
}

impl Tools for Table {
    fn find(&mut self, reference: &str, from: Option<&Context>) -> Result<Arc<Tool>, Throw> {
        if let Some(known) = self.known.get(reference) {
            return known.clone();
        }
        let made = self.make(reference, from);
        // A missing skill may exist later.
        if made.as_ref().err().is_none_or(|throw| throw.kind != ThrowKind::Unknown) {
            self.known.insert(reference.to_owned(), made.clone());
        }
        made
    }
}

/// A skill as a tool. The caller sets its handler.
///
/// # Errors
/// The definition is invalid.
pub(crate) fn compiled(compiler: &Compiler<'_>, skill: &Arc<Skill>, hooks: Hooks) -> Result<Tool, Throw> {
    let (compiled, found) = compiler.compile(skill);
    let Some(compiled) = compiled else {
        return Err(Throw::new(ThrowKind::Definition, &skill.name, faults(&found)));
    };
    let about = Map::from_iter([("description".to_owned(), json!(skill.description))]);
    // A file that only declares metadata has no prompt for an agent (D-10).
    let is_prompt = skill.body == SkillHandler::Prompt && !skill.content().trim().is_empty();
    Ok(Tool {
        name: skill.name.as_str().into(),
        chain: compiled.chain.iter().map(|name| Arc::from(name.as_str())).collect(),
        hooks: match hooks {
            Hooks::Entries => compiled.hooks.iter().map(|name| Arc::from(name.as_str())).collect(),
            Hooks::Nothing => Arc::new([]),
        },
        metadata: Arc::new(Value::Object(compiled.merged)),
        about: Arc::new(about),
        uri: skill.uri().map(Arc::from),
        frontmatter: Arc::new(skill.frontmatter()),
        prompt: is_prompt.then(|| Arc::from(skill.content())),
        allowed_tools: skill.allowed_tools.as_deref().map(Arc::from),
        body: ToolHandler::Nothing,
    })
}

fn faults(found: &[Diagnostic]) -> String {
    let texts: Vec<String> =
        found.iter().filter(|fault| fault.is_error()).map(|fault| render::text(fault, false)).collect();
    texts.join("\n")
}

//! Skills as tools of a chain machine: compiled when they are first called, then kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_chain::{Body, Context, Kind, Throw, Tool, Tools};
use etude_spec::cascade::search::absolute;
use etude_spec::cascade::skill::{Body as SkillBody, is_bare_name};
use etude_spec::cascade::{Compiler, Scope, Skill, Skills, project_main};
use etude_spec::source::SourceFile;
use etude_spec::{Diagnostic, render};
use serde_json::{Map, Value, json};

use crate::cascade::stages::{self, CONFIRMATION, Shared};

/// The tools of a session.
pub(crate) struct Table {
    pub(crate) shared: Arc<Shared>,
    pub(crate) scope: Arc<Scope>,
    known: BTreeMap<String, Result<Arc<Tool>, Throw>>,
    skills: BTreeMap<String, Arc<Skill>>,
}

impl Table {
    pub(crate) fn new(shared: Arc<Shared>, scope: Scope) -> Self {
        Self { shared, scope: Arc::new(scope), known: BTreeMap::new(), skills: BTreeMap::new() }
    }

    /// The skill behind a tool that was found.
    pub(crate) fn skill(&self, tool: &Tool) -> Option<Arc<Skill>> {
        self.skills.get(&*tool.name).cloned()
    }

    fn make(&mut self, reference: &str, from: Option<&Context>) -> Result<Arc<Tool>, Throw> {
        let unknown = || Throw::new(Kind::Unknown, reference, format!("skill not found: `{reference}`"));
        if reference == CONFIRMATION {
            return Ok(Arc::new(Tool::new(reference, Body::Effect)));
        }
        let skill = if !is_bare_name(reference) {
            self.at_path(reference, from).ok_or_else(unknown)?
        } else if let Some(skill) = self.shared.catalog.find(reference) {
            skill
        } else {
            // Without a search path there are the layers of the program and nothing else.
            let layer = stages::layer(reference, &self.shared).filter(|_| self.shared.catalog.is_empty());
            return Ok(Arc::new(Tool::new(reference, Body::Layer(layer.ok_or_else(unknown)?))));
        };
        let mut tool = compiled(&Compiler::new(&self.shared.catalog, &self.scope), &skill)?;
        tool.body = match &skill.body {
            SkillBody::Prompt => Body::Nothing,
            SkillBody::Command(_) | SkillBody::Module => Body::Effect,
            SkillBody::Native => stages::layer(&skill.name, &self.shared).map_or(Body::Effect, Body::Layer),
        };
        self.skills.insert(skill.name.clone(), skill);
        Ok(Arc::new(tool))
    }

    /// A skill by the path of its file, whatever the search path says (D-9.1).
    fn at_path(&self, reference: &str, from: Option<&Context>) -> Option<Arc<Skill>> {
        let path = reference.strip_prefix("file://").unwrap_or(reference);
        let base = from.and_then(|from| from.config.get("cwd")?.as_str().map(str::to_owned));
        let whole = absolute(&base.unwrap_or_else(|| self.shared.dir.display().to_string()), path);
        let dir = whole.rsplit_once('/').map(|(dir, _)| dir)?;
        if std::path::Path::new(&whole).is_dir() {
            let disk = crate::disk::Disk::open(std::path::Path::new(&whole)).ok()?;
            return project_main(&disk, &whole).skill;
        }
        let text = std::fs::read_to_string(&whole).ok()?;
        Skill::read(&SourceFile::new(whole.as_str(), text), dir).0.map(Arc::new)
    }
}

impl Tools for Table {
    fn find(&mut self, reference: &str, from: Option<&Context>) -> Result<Arc<Tool>, Throw> {
        if let Some(known) = self.known.get(reference) {
            return known.clone();
        }
        let made = self.make(reference, from);
        self.known.insert(reference.to_owned(), made.clone());
        made
    }
}

/// A skill as a tool whose function is for whoever calls this to say.
///
/// # Errors
/// Its definition does not hold.
pub(crate) fn compiled(compiler: &Compiler<'_>, skill: &Arc<Skill>) -> Result<Tool, Throw> {
    let (compiled, found) = compiler.compile(skill);
    let Some(compiled) = compiled else {
        return Err(Throw::new(Kind::Definition, &skill.name, faults(&found)));
    };
    let about = Map::from_iter([("description".to_owned(), json!(skill.description))]);
    Ok(Tool {
        name: skill.name.as_str().into(),
        chain: compiled.chain.iter().map(|name| Arc::from(name.as_str())).collect(),
        metadata: Arc::new(Value::Object(compiled.merged)),
        about: Arc::new(about),
        uri: skill.uri().map(Arc::from),
        frontmatter: Arc::new(skill.frontmatter.clone()),
        prompt: (skill.body == SkillBody::Prompt).then(|| Arc::from(skill.content.as_str())),
        allowed_tools: skill.allowed_tools.as_deref().map(Arc::from),
        body: Body::Nothing,
    })
}

fn faults(found: &[Diagnostic]) -> String {
    let texts: Vec<String> =
        found.iter().filter(|fault| fault.is_error()).map(|fault| render::text(fault, false)).collect();
    texts.join("\n")
}

//! The kinds of invocations by the host, each with one compiled chain.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::chain::{Throw, Tool, ToolHandler};
use etude_spec::cascade::skill::SkillHandler;
use etude_spec::cascade::{Compiler, LIBRARY, Skill, Skills};
use serde_json::{Map, Value, json};

use crate::call::Checks;
use crate::middleware::{APPROVE, CONFIRM, REDACT};
use crate::project::Project;
use crate::table;

/// The kind of an invocation by the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InvocationKind {
    /// A process of a run: a code step, a validator, a hook or guard of a stage.
    Process,
    /// A model call of a step.
    Model,
    /// A tool call of an agent or a stage, or a command of an application.
    Call,
}

impl InvocationKind {
    const ALL: [Self; 3] = [Self::Process, Self::Model, Self::Call];

    /// Middleware of the host besides that of the standard pipeline, as keys of the host's metadata.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Process | Self::Model => &[],
            Self::Call => &[REDACT, APPROVE, CONFIRM],
        }
    }

    /// The chain without a main skill: the chain that the library compiles from [`InvocationKind::keys`], without middleware that does
    /// nothing for a tool without prompt and search path. A test compares the two.
    const fn standard(self) -> &'static [&'static str] {
        match self {
            Self::Process | Self::Model => &["execute"],
            Self::Call => {
                &[REDACT, "validate-args", "validate-allowed-tools", APPROVE, CONFIRM, "execute", "validate-returns"]
            }
        }
    }
}

/// Middleware that does nothing for a tool of the host, because the tool lacks what it configures.
const IDLE: &[&str] = &[
    "cwd", "workspace", "mcp", "gateway", "event", "paths", "params", "visibility", "returns", "model", "include",
    "role", "tags", "frontmatter", "log", "directives", "agent-execute", "execute",
];

/// Middleware that does nothing for a process, which has no arguments to check and no caller.
const IDLE_FOR_PROCESSES: &[&str] = &["validate-args", "validate-allowed-tools", "validate-returns"];

/// The chain of a kind.
#[derive(Debug)]
pub(crate) struct Chain {
    /// A tool of that kind, still without its name.
    tool: Tool,
    /// True if no entry of the chain has an effect.
    pub(crate) is_idle: bool,
    /// True if an entry may look at arguments and results.
    pub(crate) is_seen: bool,
}

impl Chain {
    /// The tool `name` of this kind. Its description is built only if an entry may look at it.
    pub(crate) fn named(&self, name: &str, checks: &Checks) -> Arc<Tool> {
        let mut tool = Tool { name: name.into(), ..self.tool.clone() };
        if let Some(described) = checks.tool.as_ref().filter(|_| self.is_seen) {
            let about = [
                ("description", json!(described.description)),
                ("params", (*described.input_schema).clone()),
                ("tags", json!(described.tags)),
            ];
            tool.about = Arc::new(about.map(|(key, value)| (key.to_owned(), value)).into_iter().collect());
        }
        Arc::new(tool)
    }
}

/// The chains of all kinds.
#[derive(Debug)]
pub(crate) struct Chains(BTreeMap<InvocationKind, Result<Chain, Throw>>);

impl Chains {
    /// The chains of the program alone.
    pub(crate) fn standard() -> Self {
        let chain = |kind: InvocationKind| Chain {
            tool: Tool::new("", ToolHandler::Effect).with_chain(kind.standard()),
            is_idle: kind != InvocationKind::Call,
            is_seen: false,
        };
        Self(InvocationKind::ALL.into_iter().map(|kind| (kind, Ok(chain(kind)))).collect())
    }

    /// The chains of a project with a main skill.
    pub(crate) fn compile(project: &mut Project) -> Self {
        for middleware in [
            middleware(REDACT, json!({"before": ["$pre-configure"]})),
            middleware(APPROVE, json!({"after": ["validate-allowed-tools"], "before": ["$execute"]})),
            middleware(CONFIRM, json!({"after": [APPROVE], "before": ["$execute"]})),
        ] {
            project.catalog.register(middleware);
        }
        let project = &*project;
        Self(InvocationKind::ALL.into_iter().map(|kind| (kind, compile(project, kind))).collect())
    }

    pub(crate) fn of(&self, kind: InvocationKind) -> Result<&Chain, &Throw> {
        // Both constructors have every kind.
        self.0[&kind].as_ref()
    }
}

/// Middleware of the host, as a tool without a pipeline.
fn middleware(name: &str, place: Value) -> Skill {
    let mut metadata = Map::from_iter([
        ("$inherit".to_owned(), json!(false)),
        ("role".to_owned(), json!("middleware")),
        ("visibility".to_owned(), json!("hidden")),
    ]);
    metadata.insert("$order".to_owned(), json!({ name: place }));
    Skill::programmatic(name, "Middleware of etude.", metadata)
}

fn compile(project: &Project, kind: InvocationKind) -> Result<Chain, Throw> {
    let metadata = kind.keys().iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
    let skill = Arc::new(Skill::programmatic("host", "", metadata));
    let compiler = Compiler::new(&project.catalog, &project.scope);
    let mut tool = table::compiled(&compiler, &skill, project.scope.strategy.hooks)?;
    tool.body = ToolHandler::Effect;
    let is_built_in = |name: &str| {
        let skill = project.catalog.find(name);
        skill.is_some_and(|skill| {
            skill.body == SkillHandler::BuiltinTool && (skill.dir.is_empty() || skill.dir.starts_with(LIBRARY))
        })
    };
    let is_idle = |name: &str| {
        is_built_in(name)
            && (IDLE.contains(&name) || (kind != InvocationKind::Call && IDLE_FOR_PROCESSES.contains(&name)))
    };
    let has = |key: &str| tool.metadata.get(key).is_some_and(|value| !value.is_null());
    // Trust rules look at arguments as well: without them, a denial by an argument would never match.
    let looks = |name: &str| name == "trust" || !is_built_in(name);
    let is_seen = has("returns") || !tool.hooks.is_empty() || tool.chain.iter().any(|name| looks(name));
    let is_idle = !is_seen && tool.chain.iter().all(|name| is_idle(name));
    Ok(Chain { tool, is_idle, is_seen })
}

/// A name for patterns and skills: the path without the numbers of elements and attempts. `code-review/each[3]/analyze#2`
/// becomes `code-review-each-analyze`.
pub(crate) fn tool_name(text: &str) -> String {
    let mut name = String::new();
    let mut number = None;
    for c in text.chars() {
        match (number, c) {
            (Some('['), ']') => number = None,
            // The number of an attempt ends with its segment, or where that of an element begins.
            (Some('#'), '/') => number = None,
            (Some('#'), '[') | (None, '[' | '#') => number = Some(c),
            _ => {}
        }
        if number.is_some() || c == ']' {
            continue;
        }
        if c.is_ascii_alphanumeric() {
            name.extend(c.to_lowercase());
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    name.truncate(64);
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Setup;

    /// D-2.4: steps and tools have names that patterns can match.
    #[test]
    fn names_of_steps_are_names_of_tools() {
        assert_eq!(tool_name("code-review/analyze_files[3]#2"), "code-review-analyze-files");
        assert_eq!(tool_name("release/each[3]/publish"), "release-each-publish");
        assert_eq!(tool_name("p/step#2/validate"), "p-step-validate");
        assert_eq!(tool_name("p/m/outline#1/setup"), "p-m-outline-setup");
        assert_eq!(tool_name("p/a#2[4]/b"), "p-a-b");
        assert_eq!(tool_name("mcp__github__get_issue"), "mcp-github-get-issue");
        assert_eq!(tool_name("Bash"), "bash");
    }

    /// D-6, D-7: the chain of an app without a main skill equals the library's chain without idle middleware.
    #[test]
    fn standard_chains_are_those_of_the_library() {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup { start: dir.path().to_owned(), dir: Some(dir.path().to_owned()), ..Setup::default() };
        let compiled = Chains::compile(&mut Project::open(setup).unwrap());
        let standard = Chains::standard();
        for kind in InvocationKind::ALL {
            let (compiled, standard) = (compiled.of(kind).unwrap(), standard.of(kind).unwrap());
            let acts = |name: &&str| {
                *name == "execute"
                    || !(IDLE.contains(name) || kind != InvocationKind::Call && IDLE_FOR_PROCESSES.contains(name))
            };
            let names: Vec<&str> = compiled.tool.chain.iter().map(|name| &**name).filter(acts).collect();
            assert_eq!(names, kind.standard(), "{kind:?}");
            assert_eq!((compiled.is_idle, compiled.is_seen), (standard.is_idle, standard.is_seen), "{kind:?}");
        }
    }
}

//! The app as the learner sees it.

use std::collections::{BTreeMap, BTreeSet};

use etude::Disk;
use etude_core::shell::LineWord;
use etude_evidence::trace::effect_class;
use etude_learn::{Class, Tool};
use etude_spec::config::learn::{Learning, redacted_name};
use etude_spec::discover::{LEARNED, PIPELINES};
use etude_spec::learned;
use etude_spec::skill::{Instructions, SKILL_FILE};
use etude_spec::source::Sources;
use etude_spec::tool::AppTool;
use etude_tools::pattern::AllowedTools;
use serde_json::Value;

use crate::context::Context;
use crate::problem::Problem;

/// Tools that every agent has.
const BUILTIN: [&str; 8] = ["Read", "Write", "Edit", "Glob", "Grep", "List", "Bash", "activate_skill"];

/// Predicate for the names of redacted fields.
type Pattern = Box<dyn Fn(&str) -> bool>;

/// Facts about the app that the learner asks for.
pub(super) struct World {
    pub(super) tools: Vec<AppTool>,
    pub(super) learning: Learning,
    servers: BTreeSet<String>,
    skill: Option<String>,
    excluded: AllowedTools,
    redacted: Vec<Pattern>,
    /// Families of pipelines by name; `None` if a pipeline was not learned.
    families: BTreeMap<String, Option<String>>,
}

impl World {
    pub(super) fn of(context: &Context, disk: &Disk) -> Result<Self, Problem> {
        let resolved = context.settings(disk.root())?;
        let mut families = BTreeMap::new();
        for base in [LEARNED, PIPELINES] {
            for entry in disk.list(base).unwrap_or_default() {
                let found = learned::find(disk, base, &entry.name).and_then(|located| located.learned);
                families.insert(entry.name, found.map(|learned| learned.family));
            }
        }
        let learning = resolved.learning;
        Ok(Self {
            tools: etude_spec::tool::load(disk).0,
            servers: resolved.grants.servers.keys().cloned().collect(),
            skill: Instructions::read(disk, SKILL_FILE).ok().map(|skill| skill.body),
            excluded: AllowedTools::from_list(&learning.exclude),
            redacted: learning.redact.iter().filter_map(|entry| pattern(entry)).collect(),
            families,
            learning,
        })
    }

    /// True if a pipeline of the app was learned from that family.
    pub(super) fn has_family(&self, name: &str) -> bool {
        self.families.values().flatten().any(|family| family == name)
    }

    pub(super) fn skill(&self) -> Option<&str> {
        self.skill.as_deref()
    }

    fn own(&self, name: &str) -> Option<&AppTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// Compiles an entry of `learn.redact`; `None` if it is not a regular expression, which the configuration reports.
fn pattern(entry: &str) -> Option<Pattern> {
    let name = redacted_name(entry)?;
    Some(Box::new(move |field| name.is_match(field)))
}

impl etude_learn::World for World {
    fn tool(&self, name: &str) -> Option<Tool> {
        let own = self.own(name);
        let server = name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__"));
        let is_there =
            own.is_some() || BUILTIN.contains(&name) || server.is_some_and(|(server, _)| self.servers.contains(server));
        let class = if effect_class(name, &self.tools) == "reads" { Class::Reads } else { Class::Writes };
        let schema = own.map_or(Value::Null, |tool| tool.input_schema.clone());
        is_there.then(|| Tool { name: name.to_owned(), class, schema })
    }

    fn is_excluded(&self, tool: &str) -> bool {
        let own = self.own(tool);
        let tags = own.map(|own| own.tags.clone()).unwrap_or_default();
        let schema = own.map_or(Value::Null, |own| own.input_schema.clone());
        self.excluded.lists(&etude_tools::tool::Tool::named(tool, tags, schema))
    }

    fn is_redacted(&self, field: &str) -> bool {
        self.redacted.iter().any(|is_it| is_it(field))
    }

    fn has_skill(&self) -> bool {
        self.skill.is_some()
    }

    fn rules(&self, tools: &[&str]) -> String {
        self.skill.as_deref().map(|body| learned::rules_of(body, tools)).unwrap_or_default()
    }

    fn words(&self, line: &str) -> Option<Vec<LineWord>> {
        etude_tools::pattern::words::words(line)
    }

    fn min_requests(&self) -> usize {
        self.learning.min_requests
    }

    fn is_own(&self, name: &str, family: &str) -> bool {
        self.families.get(name).is_some_and(|known| known.as_deref() == Some(family))
    }

    fn is_taken(&self, name: &str, family: &str) -> bool {
        self.families.get(name).is_some_and(|known| known.as_deref() != Some(family))
    }
}

//! From a tool to its chain (D-4, D-6): levels, values, keys that are tools, and their order.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::cascade::fold::{self, Folded, Ground};
use crate::cascade::levels;
use crate::cascade::order::Order;
use crate::cascade::overrides::Overrides;
use crate::cascade::skill::{Role, Skill};
use crate::cascade::strategy::Strategy;
use crate::diagnose::cascade as diagnose;
use crate::diagnostic::{self, Diagnostic};

/// The tools that can be found by name.
pub trait Skills {
    /// The tool `name`: the first one on the search path.
    fn find(&self, name: &str) -> Option<Arc<Skill>>;

    /// The main skill that `skill` belongs to (D-4.1).
    fn authority(&self, skill: &Skill) -> Option<Arc<Skill>>;

    /// All names, for hints.
    fn names(&self) -> Vec<String>;
}

/// In what surroundings a cascade is computed.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Where paths in `${…}` begin: the invocation's context.
    pub context: Value,
    /// The choices.
    pub strategy: Strategy,
    /// What is laid over the metadata.
    pub overrides: Overrides,
    /// The tool that is called from outside.
    pub entry: String,
}

impl Scope {
    /// Surroundings with `locals.config` and nothing else: what a call from outside begins with. The values of
    /// `overrides.config` are laid over `config`.
    pub fn new(mut config: Value, strategy: Strategy, overrides: Overrides, entry: &str) -> Self {
        for (path, value) in &overrides.config {
            super::path::set(&mut config, path, value.clone());
        }
        let context = json!({"locals": {"config": config}, "globals": {"config": config}});
        Self { context, strategy, overrides, entry: entry.to_owned() }
    }
}

/// A tool with everything that its invocation needs.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The tool.
    pub skill: Arc<Skill>,
    /// The skills whose metadata it has, nearest first.
    pub levels: Vec<String>,
    /// The merged metadata.
    pub merged: Map<String, Value>,
    /// The merged `$order`.
    pub order: Order,
    /// The keys that would be entries but are not, sorted.
    pub statics: Vec<String>,
    /// The entries, in order.
    pub chain: Vec<String>,
    /// The tools around every entry.
    pub hooks: Vec<String>,
    /// What `$self` adds to the layer for every skill.
    pub self_defaults: Map<String, Value>,
}

/// Computes chains, and remembers what it has seen of each tool.
pub struct Compiler<'a> {
    skills: &'a dyn Skills,
    scope: &'a Scope,
    known: RefCell<BTreeMap<String, Rc<Known>>>,
}

/// A tool before its chain is sorted.
struct Known {
    skill: Arc<Skill>,
    levels: Vec<Arc<Skill>>,
    folded: Folded,
    /// Keys that are tools and that nothing declares static.
    keys: Vec<String>,
    /// Keys that are tools and that are declared static.
    declared: Vec<String>,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Compiler<'a> {
    /// A compiler for one search path and one scope.
    pub fn new(skills: &'a dyn Skills, scope: &'a Scope) -> Self {
        Self { skills, scope, known: RefCell::default() }
    }

    /// The tool `skill` with its chain, if nothing is wrong with it, and everything that is.
    pub fn compile(&self, skill: &Arc<Skill>) -> (Option<Compiled>, Vec<Diagnostic>) {
        let known = self.known(skill);
        let mut found = known.diagnostics.clone();
        let component = self.component(skill, &mut found);
        let (mut live, mut statics) = (Vec::new(), known.declared.clone());
        for key in &known.keys {
            if component.contains(key) { statics.push(key.clone()) } else { live.push(key.clone()) }
        }
        let mut order = known.folded.order.clone();
        for key in &live {
            if let Some(tool) = self.skills.find(key) {
                order.suggest(key, &tool.metadata);
            }
        }
        let chain = order.sort(&live, self.scope.strategy.tie_break).unwrap_or_else(|cycle| {
            found.push(diagnose::order_cycle(&known.levels, &cycle));
            Vec::new()
        });
        diagnostic::sort(&mut found);
        if found.iter().any(Diagnostic::is_error) {
            return (None, found);
        }
        statics.sort_unstable();
        let compiled = Compiled {
            skill: Arc::clone(skill),
            levels: known.levels.iter().map(|level| level.name.clone()).collect(),
            merged: known.folded.merged.clone(),
            order,
            statics,
            chain,
            hooks: known.folded.hooks.clone(),
            self_defaults: known.folded.self_defaults.clone(),
        };
        (Some(compiled), found)
    }

    fn known(&self, skill: &Arc<Skill>) -> Rc<Known> {
        if let Some(known) = self.known.borrow().get(&skill.name) {
            return Rc::clone(known);
        }
        let mut diagnostics = Vec::new();
        let levels = levels::of(self.skills, skill, &self.scope.strategy).unwrap_or_else(|fault| {
            diagnostics.push(*fault);
            Vec::new()
        });
        let ground = Ground {
            context: &self.scope.context,
            strategy: &self.scope.strategy,
            overrides: &self.scope.overrides,
            is_entry: skill.name == self.scope.entry,
        };
        let folded = fold::fold(&levels, &ground, &mut diagnostics);
        let (mut keys, mut declared) = (Vec::new(), Vec::new());
        for key in folded.merged.keys().filter(|key| self.is_entry(key)) {
            let is_static = folded.statics.as_ref().is_none_or(|keys| keys.contains(key));
            let is_static = is_static && !folded.dynamics.contains(key);
            if is_static { declared.push(key.clone()) } else { keys.push(key.clone()) }
        }
        let known = Rc::new(Known { skill: Arc::clone(skill), levels, folded, keys, declared, diagnostics });
        self.known.borrow_mut().insert(skill.name.clone(), Rc::clone(&known));
        known
    }

    /// True if a key of metadata is the name of a tool that can be an entry.
    fn is_entry(&self, key: &str) -> bool {
        self.skills.find(key).is_some_and(|tool| tool.role() != Role::Directive)
    }

    /// The tools that `skill` needs for its chain and that need it for theirs, itself included if it does (D-4.7).
    /// Faults of the tools that it needs are its faults.
    fn component(&self, skill: &Arc<Skill>, found: &mut Vec<Diagnostic>) -> BTreeSet<String> {
        let mut needs: BTreeMap<String, Rc<Known>> = BTreeMap::new();
        let mut open = vec![self.known(skill)];
        while let Some(known) = open.pop() {
            let name = known.skill.name.clone();
            if needs.contains_key(&name) {
                continue;
            }
            found.extend(known.diagnostics.iter().filter(|fault| fault.is_error()).cloned());
            open.extend(known.keys.iter().filter_map(|key| self.skills.find(key)).map(|tool| self.known(&tool)));
            needs.insert(name, known);
        }
        // What can reach the tool, from the tools that it reaches: its strongly connected component.
        let mut reaching = BTreeSet::new();
        loop {
            let before = reaching.len();
            for (name, known) in &needs {
                if known.keys.iter().any(|key| *key == skill.name || reaching.contains(key)) {
                    reaching.insert(name.clone());
                }
            }
            if reaching.len() == before {
                return reaching;
            }
        }
    }
}

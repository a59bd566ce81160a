//! From a tool to its chain (D-4, D-6): levels, values, keys that are tools, and their order.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::cascade::fold::{self, Base, Folded, Ground};
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
    pub order: Arc<Order>,
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
    /// What levels add up to, by their names.
    bases: RefCell<BTreeMap<String, Rc<Base>>>,
    /// Whether a key can be an entry.
    entries: RefCell<BTreeMap<String, bool>>,
    /// What tools with these keys need.
    closures: RefCell<BTreeMap<String, Rc<Closure>>>,
    /// Sorted chains, by the place of their order and their keys.
    chains: RefCell<BTreeMap<(usize, String), Rc<Sorted>>>,
}

/// All tools that some keys need, directly or not.
#[derive(Default)]
struct Closure {
    needs: BTreeMap<String, Rc<Known>>,
    faults: Vec<Diagnostic>,
}

/// A chain, or the names of a cycle.
struct Sorted {
    order: Arc<Order>,
    chain: Result<Vec<String>, Vec<String>>,
}

/// A tool before its chain is sorted.
struct Known {
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
        Self {
            skills,
            scope,
            known: RefCell::default(),
            bases: RefCell::default(),
            entries: RefCell::default(),
            closures: RefCell::default(),
            chains: RefCell::default(),
        }
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
        let sorted = self.sorted(&known.folded.order, &live);
        let chain = sorted.chain.clone().unwrap_or_else(|cycle| {
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
            order: Arc::clone(&sorted.order),
            statics,
            chain,
            hooks: known.folded.hooks.clone(),
            self_defaults: known.folded.self_defaults.clone(),
        };
        (Some(compiled), found)
    }

    /// The chain of `live`, with what those tools say about their places themselves.
    fn sorted(&self, order: &Arc<Order>, live: &[String]) -> Rc<Sorted> {
        // An order is kept by the tool that has it, so its place is its own.
        let key = (Arc::as_ptr(order).addr(), live.join(" "));
        if let Some(sorted) = self.chains.borrow().get(&key) {
            return Rc::clone(sorted);
        }
        let mut order = Arc::clone(order);
        for name in live {
            if let Some(tool) = self.skills.find(name) {
                Arc::make_mut(&mut order).suggest(name, &tool.metadata);
            }
        }
        let chain = order.sort(live, self.scope.strategy.tie_break);
        let sorted = Rc::new(Sorted { order, chain });
        self.chains.borrow_mut().insert(key, Rc::clone(&sorted));
        sorted
    }

    fn base(&self, levels: &[Arc<Skill>], ground: &Ground<'_>) -> Rc<Base> {
        let key = levels.iter().map(|level| level.name.as_str()).collect::<Vec<_>>().join(" ");
        if let Some(base) = self.bases.borrow().get(&key) {
            return Rc::clone(base);
        }
        let base = Rc::new(fold::base(levels, ground));
        self.bases.borrow_mut().insert(key, Rc::clone(&base));
        base
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
        let base = self.base(levels.get(1..).unwrap_or_default(), &ground);
        let folded = fold::fold(&levels, &base, &ground, &mut diagnostics);
        let (mut keys, mut declared) = (Vec::new(), Vec::new());
        for key in folded.merged.keys().filter(|key| self.is_entry(key)) {
            let is_static = folded.statics.as_ref().is_none_or(|keys| keys.contains(key));
            let is_static = is_static && !folded.dynamics.contains(key);
            if is_static { declared.push(key.clone()) } else { keys.push(key.clone()) }
        }
        let known = Rc::new(Known { levels, folded, keys, declared, diagnostics });
        self.known.borrow_mut().insert(skill.name.clone(), Rc::clone(&known));
        known
    }

    /// True if a key of metadata is the name of a tool that can be an entry.
    fn is_entry(&self, key: &str) -> bool {
        if let Some(known) = self.entries.borrow().get(key) {
            return *known;
        }
        let is_entry = self.skills.find(key).is_some_and(|tool| tool.role() != Role::Directive);
        self.entries.borrow_mut().insert(key.to_owned(), is_entry);
        is_entry
    }

    /// Everything that tools with these keys need.
    fn closure(&self, keys: &[String]) -> Rc<Closure> {
        let key = keys.join(" ");
        if let Some(known) = self.closures.borrow().get(&key) {
            return Rc::clone(known);
        }
        let mut closure = Closure::default();
        let mut open: Vec<Arc<Skill>> = keys.iter().filter_map(|key| self.skills.find(key)).collect();
        while let Some(skill) = open.pop() {
            if closure.needs.contains_key(&skill.name) {
                continue;
            }
            let known = self.known(&skill);
            closure.faults.extend(known.diagnostics.iter().filter(|fault| fault.is_error()).cloned());
            open.extend(known.keys.iter().filter_map(|key| self.skills.find(key)));
            closure.needs.insert(skill.name.clone(), known);
        }
        let closure = Rc::new(closure);
        self.closures.borrow_mut().insert(key, Rc::clone(&closure));
        closure
    }

    /// The tools that `skill` needs for its chain and that need it for theirs, itself included if it does (D-4.7).
    /// Faults of the tools that it needs are its faults.
    fn component(&self, skill: &Arc<Skill>, found: &mut Vec<Diagnostic>) -> BTreeSet<String> {
        let closure = self.closure(&self.known(skill).keys);
        found.extend(closure.faults.iter().cloned());
        let needs = &closure.needs;
        if !needs.contains_key(&skill.name) {
            return BTreeSet::new();
        }
        // What can reach the tool, from the tools that it reaches: its strongly connected component.
        let mut reaching = BTreeSet::new();
        loop {
            let before = reaching.len();
            for (name, known) in needs {
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

//! Compilation of a tool's chain (D-4, D-6): levels, values, keys that are tools, and their order.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::cascade::fold::{self, Base, Folded, MergeContext, Wanted};
use crate::cascade::levels::{self, Lines};
use crate::cascade::order::Order;
use crate::cascade::overrides::Overrides;
use crate::cascade::own_faults::Checks;
use crate::cascade::parallel;
use crate::cascade::skill::{Role, Skill, is_bare_name, names};
use crate::cascade::strategy::{Hooks, Strategy};
use crate::diagnose::cascade as diagnose;
use crate::diagnostic::{self, Diagnostic};

/// Lookup of tools by name.
pub trait Skills {
    /// Looks up a tool: the first one of that name on the search path.
    fn find(&self, name: &str) -> Option<Arc<Skill>>;

    /// The main skill that `skill` belongs to (D-4.1).
    fn authority(&self, skill: &Skill) -> Option<Arc<Skill>>;

    /// Names of all tools, for hints.
    fn names(&self) -> Vec<String>;
}

/// Context of the computation of a cascade.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The invocation's context, where paths in `${…}` begin.
    pub context: Value,
    /// Choices where the format leaves one open.
    pub strategy: Strategy,
    /// Values that override the metadata.
    pub overrides: Overrides,
    /// Name of the tool that is called from outside.
    pub entry: String,
}

impl Scope {
    /// A context with nothing but `locals.config`, for a call from outside. The values of `overrides.config` override
    /// `config`.
    pub fn new(mut config: Value, strategy: Strategy, overrides: Overrides, entry: &str) -> Self {
        for (path, value) in &overrides.config {
            super::path::set(&mut config, path, value.clone());
        }
        let context = json!({"locals": {"config": config}, "globals": {"config": config}});
        Self { context, strategy, overrides, entry: entry.to_owned() }
    }
}

/// A compiled tool with everything that its invocation needs.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The tool that is invoked.
    pub skill: Arc<Skill>,
    /// Names of the skills whose metadata it has, nearest first.
    pub levels: Vec<String>,
    /// The merged metadata.
    pub merged: Map<String, Value>,
    /// The merged `$order`.
    pub order: Arc<Order>,
    /// Keys that would be entries but are declared static, sorted.
    pub statics: Vec<String>,
    /// Names of the entries, in order.
    pub chain: Vec<String>,
    /// Tools that run around every entry.
    pub hooks: Vec<String>,
    /// Values of its `$self`, which are defaults for every skill if this is the entry skill.
    pub self_defaults: Map<String, Value>,
}

/// Compiler of chains with caches for all tools.
pub struct Compiler<'a> {
    skills: &'a dyn Skills,
    scope: &'a Scope,
    known: RefCell<BTreeMap<String, Rc<Known>>>,
    lines: RefCell<Lines>,
    /// Merged levels, by their names.
    bases: RefCell<BTreeMap<String, Rc<Above>>>,
    sound: RefCell<BTreeMap<Arc<str>, OfParents>>,
    /// Keys that can be entries, and `None` for all others.
    entries: RefCell<BTreeMap<String, Option<Rc<str>>>>,
    /// Closures of tools, by their keys.
    closures: RefCell<BTreeMap<String, Rc<Closure>>>,
    /// Sorted chains, by the address of their order and their keys.
    chains: RefCell<BTreeMap<(usize, String), Rc<Sorted>>>,
    checks: RefCell<Checks>,
}

/// Merged levels above a tool.
struct Above {
    base: Base,
    /// Keys of the merged levels that are tools.
    keys: Vec<Rc<str>>,
}

/// Fault-free levels above the tools of one directory with one parent.
struct Sound {
    levels: Vec<Arc<Skill>>,
    above: Rc<Above>,
    /// Result for a tool without metadata of its own.
    plain: Folded,
    /// Closure of the chain after a tool has added these keys; `None` if there are faults.
    chains: RefCell<BTreeMap<String, Option<Rc<Closure>>>>,
}

/// Levels above the tools of one directory, by the parent that they name.
type OfParents = BTreeMap<String, Option<Rc<Sound>>>;

/// All tools that some keys need, directly or indirectly.
#[derive(Default)]
struct Closure {
    needs: BTreeMap<String, Rc<Known>>,
    faults: Vec<Diagnostic>,
}

/// A sorted chain, or the names of a cycle.
struct Sorted {
    /// Keeps the order alive that the chain is cached under.
    #[expect(dead_code, reason = "it is there so that no other order gets its address")]
    before: Arc<Order>,
    order: Arc<Order>,
    chain: Result<Vec<String>, Vec<String>>,
}

/// A tool before its chain is sorted.
struct Known {
    levels: Vec<Arc<Skill>>,
    above: Rc<Above>,
    folded: Folded,
    /// Keys that are tools and not declared static.
    keys: Vec<Rc<str>>,
    /// Keys that are tools and declared static.
    declared: Vec<Rc<str>>,
    diagnostics: Vec<Diagnostic>,
}

/// Minimum number of tools that several threads check. Nearly all tools are plain, and for fewer of them starting a
/// thread costs more than it saves.
const MANY: usize = 5_000;

/// Checks the tools `all`; findings are in their order.
pub fn check(skills: &(dyn Skills + Sync), scope: &Scope, all: &[Arc<Skill>]) -> Vec<Diagnostic> {
    parallel::parts(all, MANY, |part| {
        let compiler = Compiler::new(skills, scope);
        part.iter().flat_map(|skill| compiler.check(skill)).collect()
    })
}

impl<'a> Compiler<'a> {
    /// A compiler for one search path and one scope.
    pub fn new(skills: &'a dyn Skills, scope: &'a Scope) -> Self {
        Self {
            skills,
            scope,
            known: RefCell::default(),
            lines: RefCell::default(),
            bases: RefCell::default(),
            sound: RefCell::default(),
            entries: RefCell::default(),
            closures: RefCell::default(),
            chains: RefCell::default(),
            checks: RefCell::default(),
        }
    }

    /// Compiles the tool `skill`: its chain, unless there are errors, and all diagnostics.
    pub fn compile(&self, skill: &Arc<Skill>) -> (Option<Compiled>, Vec<Diagnostic>) {
        let known = self.schemas_of(skill);
        let mut found = skill.own_faults(&mut self.checks.borrow_mut());
        let (sorted, statics) = self.examine(skill, &known, &mut found);
        let mut statics: Vec<String> = statics.iter().map(|key| key.as_ref().to_owned()).collect();
        diagnostic::sort(&mut found);
        let Some(chain) = sorted.chain.as_ref().ok().filter(|_| !found.iter().any(Diagnostic::is_error)) else {
            return (None, found);
        };
        statics.sort_unstable();
        let compiled = Compiled {
            skill: Arc::clone(skill),
            levels: known.levels.iter().map(|level| level.name.clone()).collect(),
            merged: self.merged(&known),
            order: Arc::clone(&sorted.order),
            statics,
            chain: chain.clone(),
            hooks: known.folded.hooks.clone(),
            self_defaults: known.folded.self_defaults.clone(),
        };
        (Some(compiled), found)
    }

    /// Checks the tool `skill`: the diagnostics of [`Compiler::compile`], for less work.
    pub fn check(&self, skill: &Arc<Skill>) -> Vec<Diagnostic> {
        let mut found = skill.own_faults(&mut self.checks.borrow_mut());
        if self.is_plainly_sound(skill) {
            return found;
        }
        let known = self.known.borrow().get(&skill.name).cloned();
        // Most checked tools are not needed by any other, so they are not cached.
        self.examine(skill, &known.unwrap_or_else(|| Rc::new(self.look(skill))), &mut found);
        diagnostic::sort(&mut found);
        found
    }

    /// True for nearly every tool: it changes neither chain nor order, and the levels above it have no fault.
    fn is_plainly_sound(&self, skill: &Arc<Skill>) -> bool {
        let Some((keys, inherit)) = skill.outline().filter(|_| !skill.is_main()) else { return false };
        let known = self.sound.borrow().get(&skill.dir).and_then(|parents| parents.get(inherit).cloned());
        let sound = known.unwrap_or_else(|| {
            let sound = self.sound_above(skill).map(Rc::new);
            let mut all = self.sound.borrow_mut();
            all.entry(Arc::clone(&skill.dir)).or_default().insert(inherit.to_owned(), sound.clone());
            sound
        });
        let Some(sound) = sound else { return false };
        let mut added = Vec::new();
        for key in keys.filter(|key| *key != "$inherit") {
            if key.contains('$') || sound.above.base.orders(key) {
                return false;
            }
            added.extend(self.entry(key).filter(|entry| !sound.above.keys.contains(entry)));
        }
        let is_above = |level: &Arc<Skill>| level.name == skill.name;
        let needs = self.sound_chain(&sound, &added);
        needs.is_some_and(|closure| !closure.needs.contains_key(&skill.name)) && !sound.levels.iter().any(is_above)
    }

    /// The levels above a tool, if they have no fault.
    fn sound_above(&self, skill: &Arc<Skill>) -> Option<Sound> {
        let overrides = &self.scope.overrides;
        if !overrides.local.is_empty() || !overrides.global.is_empty() {
            return None;
        }
        let mut levels =
            levels::resolve(self.skills, skill, &self.scope.strategy, &mut self.lines.borrow_mut()).ok()?;
        levels.remove(0);
        let merge_context = self.merge_context(false);
        let above = self.above(&levels, &merge_context);
        // A tool without a name and without metadata stands for all plain tools.
        let no_one = Arc::new(Skill::programmatic("", "", Map::new()));
        let all: Vec<Arc<Skill>> = [no_one].into_iter().chain(levels.iter().cloned()).collect();
        let mut found = Vec::new();
        let plain = fold::fold(&all, &above.base, &merge_context, Wanted::Keys, &mut found);
        let is_sound = plain.is_outline && found.is_empty() && self.missing_hooks(&levels, &plain.hooks).is_empty();
        is_sound.then(|| Sound { levels, above, plain, chains: RefCell::default() })
    }

    /// Closure of the chain of a tool that adds only these keys; `None` if there are faults.
    fn sound_chain(&self, sound: &Sound, added: &[Rc<str>]) -> Option<Rc<Closure>> {
        let key = added.join(" ");
        if let Some(known) = sound.chains.borrow().get(&key) {
            return known.clone();
        }
        let plain = &sound.plain;
        let is_static = |key: &str| plain.statics.as_ref().is_none_or(|keys| keys.contains(key));
        let is_live = |key: &&Rc<str>| !is_static(key) || plain.dynamics.contains(&***key);
        let keys: Vec<Rc<str>> = sound.above.keys.iter().chain(added).filter(is_live).cloned().collect();
        let closure = self.closure(&keys);
        let is_sound = closure.faults.is_empty() && self.sorted(&plain.order, &keys).chain.is_ok();
        let found = is_sound.then_some(closure);
        sound.chains.borrow_mut().insert(key, found.clone());
        found
    }

    fn merged(&self, known: &Known) -> Map<String, Value> {
        if !known.folded.is_outline {
            return known.folded.merged.clone();
        }
        let merge_context = self.merge_context(known.levels.first().is_some_and(|tool| tool.name == self.scope.entry));
        fold::fold(&known.levels, &known.above.base, &merge_context, Wanted::Values, &mut Vec::new()).merged
    }

    fn merge_context(&self, is_entry: bool) -> MergeContext<'_> {
        let scope = self.scope;
        MergeContext { context: &scope.context, strategy: &scope.strategy, overrides: &scope.overrides, is_entry }
    }

    /// Sorts the chain, and returns it with the keys that are tools but not in it. Faults go to `found`.
    fn examine(&self, skill: &Skill, known: &Known, found: &mut Vec<Diagnostic>) -> (Rc<Sorted>, Vec<Rc<str>>) {
        found.extend(known.diagnostics.iter().cloned());
        found.extend(self.missing_hooks(&known.levels, &known.folded.hooks));
        let component = self.component(skill, known, found);
        let (mut live, mut statics) = (Vec::new(), known.declared.clone());
        for key in &known.keys {
            let to = if component.contains(&**key) { &mut statics } else { &mut live };
            to.push(Rc::clone(key));
        }
        let sorted = self.sorted(&known.folded.order, &live);
        if let Err(cycle) = &sorted.chain {
            found.push(fold::order_cycle(&known.levels, cycle));
        }
        (sorted, statics)
    }

    /// Reports hooks that do not exist: their tools could not run (D-4.7). A hook that is not a bare name is a path,
    /// and a server that the levels declare may have the hook as a tool.
    fn missing_hooks(&self, levels: &[Arc<Skill>], hooks: &[String]) -> Vec<Diagnostic> {
        if self.scope.strategy.hooks == Hooks::Nothing {
            return Vec::new();
        }
        let is_of_server = |hook: &str| {
            let servers = levels.iter().filter_map(|level| level.metadata().get("mcp")?.as_object());
            servers.flat_map(Map::keys).any(|server| hook.starts_with(&format!("{server}-")))
        };
        let is_missing = |hook: &&String| is_bare_name(hook) && self.skills.find(hook).is_none() && !is_of_server(hook);
        let fault = |hook: &String| {
            let level = levels
                .iter()
                .find(|level| level.metadata().get("$hook").is_some_and(|all| names(all).contains(hook)))?;
            Some(diagnose::unknown_hook(&level.file, level.place("/$hook"), &level.name, hook, &self.skills.names()))
        };
        hooks.iter().filter(is_missing).filter_map(fault).collect()
    }

    /// Sorts the entries `live`, with the order that those tools declare for themselves.
    fn sorted(&self, order: &Arc<Order>, live: &[Rc<str>]) -> Rc<Sorted> {
        // The tool that has an order keeps it alive, so its address is unique.
        let key = (Arc::as_ptr(order).addr(), live.join(" "));
        if let Some(sorted) = self.chains.borrow().get(&key) {
            return Rc::clone(sorted);
        }
        let before = Arc::clone(order);
        let mut order = Arc::clone(order);
        let live: Vec<String> = live.iter().map(|name| name.as_ref().to_owned()).collect();
        for name in &live {
            if let Some(tool) = self.skills.find(name) {
                Arc::make_mut(&mut order).suggest(name, tool.metadata());
            }
        }
        let chain = order.sort(&live, self.scope.strategy.tie_break);
        let sorted = Rc::new(Sorted { before, order, chain });
        self.chains.borrow_mut().insert(key, Rc::clone(&sorted));
        sorted
    }

    fn above(&self, levels: &[Arc<Skill>], merge_context: &MergeContext<'_>) -> Rc<Above> {
        let mut key = String::new();
        for level in levels {
            key.push_str(&level.name);
            key.push(' ');
        }
        if let Some(above) = self.bases.borrow().get(&key) {
            return Rc::clone(above);
        }
        let base = fold::base(levels, merge_context);
        let keys = base.keys().filter_map(|key| self.entry(key)).collect();
        let above = Rc::new(Above { base, keys });
        self.bases.borrow_mut().insert(key, Rc::clone(&above));
        above
    }

    fn schemas_of(&self, skill: &Arc<Skill>) -> Rc<Known> {
        if let Some(known) = self.known.borrow().get(&skill.name) {
            return Rc::clone(known);
        }
        let known = Rc::new(self.look(skill));
        self.known.borrow_mut().insert(skill.name.clone(), Rc::clone(&known));
        known
    }

    fn look(&self, skill: &Arc<Skill>) -> Known {
        let mut diagnostics = Vec::new();
        let lines = &mut self.lines.borrow_mut();
        let levels = levels::resolve(self.skills, skill, &self.scope.strategy, lines).unwrap_or_else(|fault| {
            diagnostics.push(*fault);
            Vec::new()
        });
        let merge_context = self.merge_context(skill.name == self.scope.entry);
        let above = self.above(levels.get(1..).unwrap_or_default(), &merge_context);
        let folded = fold::fold(&levels, &above.base, &merge_context, Wanted::Keys, &mut diagnostics);
        let own = folded.merged.keys().filter_map(|key| self.entry(key));
        let all: Vec<Rc<str>> = if folded.is_outline {
            // The keys from above come first, as in the merged values.
            let own: Vec<Rc<str>> = own.filter(|key| !above.keys.contains(key)).collect();
            above.keys.iter().cloned().chain(own).collect()
        } else {
            own.collect()
        };
        let is_static = |key: &str| folded.statics.as_ref().is_none_or(|keys| keys.contains(key));
        let (declared, keys) = all.into_iter().partition(|key| is_static(key) && !folded.dynamics.contains(&**key));
        Known { levels, above, folded, keys, declared, diagnostics }
    }

    /// A metadata key that is the name of a tool and can be an entry.
    fn entry(&self, key: &str) -> Option<Rc<str>> {
        if let Some(known) = self.entries.borrow().get(key) {
            return known.clone();
        }
        let is_entry = self.skills.find(key).is_some_and(|tool| tool.role() != Role::Directive);
        let entry = is_entry.then(|| Rc::from(key));
        self.entries.borrow_mut().insert(key.to_owned(), entry.clone());
        entry
    }

    /// Collects all tools that tools with these keys need.
    fn closure(&self, keys: &[Rc<str>]) -> Rc<Closure> {
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
            let known = self.schemas_of(&skill);
            closure.faults.extend(known.diagnostics.iter().filter(|fault| fault.is_error()).cloned());
            open.extend(known.keys.iter().filter_map(|key| self.skills.find(key)));
            closure.needs.insert(skill.name.clone(), known);
        }
        let closure = Rc::new(closure);
        self.closures.borrow_mut().insert(key, Rc::clone(&closure));
        closure
    }

    /// Tools that `skill` needs for its chain and that need it for theirs, including itself if it does (D-4.7). Faults
    /// of the tools that it needs count as its own.
    fn component(&self, skill: &Skill, known: &Known, found: &mut Vec<Diagnostic>) -> BTreeSet<String> {
        let closure = self.closure(&known.keys);
        found.extend(closure.faults.iter().cloned());
        let needs = &closure.needs;
        if !needs.contains_key(&skill.name) {
            return BTreeSet::new();
        }
        // The tools that can reach this tool, among those that it reaches: its strongly connected component.
        let mut reaching = BTreeSet::new();
        loop {
            let before = reaching.len();
            for (name, known) in needs {
                if known.keys.iter().any(|key| **key == *skill.name || reaching.contains(&**key)) {
                    reaching.insert(name.clone());
                }
            }
            if reaching.len() == before {
                return reaching;
            }
        }
    }
}

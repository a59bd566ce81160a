//! Assembly of steps from bindings: the steps that the write needs and the reads that must stay, in an order that respects
//! both.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Bound, Choice, NodeKind, Synth};
use crate::program::{Condition, Param, Program, Question, Step, StepKind};
use crate::term::{Func, List, Ref, Source, Term};
use crate::value::{Collection, Kind, Path};

/// The step of arguments that nothing determines.
pub(crate) const OPEN_HOLE: &str = "open_hole";
/// The question of 2.7.
pub(crate) const ALLOWED: &str = "allowed";
/// The step that answers a run without writes.
pub(crate) const ANSWER: &str = "answer";
/// Names that a step cannot have.
const RESERVED: [&str; 7] = ["input", "item", "index", "run", OPEN_HOLE, ALLOWED, ANSWER];

/// Program under construction: steps are added when they are needed.
pub(crate) struct Assembly<'s, 'a, 't> {
    pub(crate) synth: &'s Synth<'a, 't>,
    pub(crate) program: Program,
    names: BTreeSet<String>,
    pub(crate) of_node: BTreeMap<usize, Ref>,
    pub(super) of_var: BTreeMap<usize, Term>,
    lists: BTreeMap<(Ref, Kind), Ref>,
    records: Vec<(Choice, usize, String)>,
    pub(super) open: Vec<String>,
}

impl Synth<'_, '_> {
    pub(super) fn assemble(&self, write: Option<&str>) -> Option<Program> {
        let mut assembly = Assembly {
            synth: self,
            program: Program::default(),
            names: RESERVED.iter().map(|name| (*name).to_owned()).collect(),
            of_node: BTreeMap::new(),
            of_var: BTreeMap::new(),
            lists: BTreeMap::new(),
            records: Vec::new(),
            open: Vec::new(),
        };
        for node in &self.roles {
            assembly.node(*node);
        }
        match write {
            Some(tool) => assembly.write(tool)?,
            None => assembly.program.steps.push(Step::new(ANSWER, StepKind::Answer)),
        }
        assembly.close();
        assembly.order();
        Some(assembly.program)
    }
}

impl Assembly<'_, '_, '_> {
    /// Unused step name: `name`, `name_2`, …
    pub(super) fn name(&mut self, wanted: &str) -> String {
        let base: String = wanted.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let base = base.trim_matches('_').to_owned();
        let base =
            if base.is_empty() || base.starts_with(|c: char| c.is_ascii_digit()) { "value".to_owned() } else { base };
        let mut name = base.clone();
        let mut n = 2;
        while !self.names.insert(name.clone()) {
            name = format!("{base}_{n}");
            n += 1;
        }
        name
    }

    pub(super) fn term(&mut self, term: &Term) -> Term {
        let refs: Vec<Ref> = term.refs().into_iter().cloned().collect();
        let resolved: BTreeMap<Ref, Term> = refs.into_iter().map(|of| (of.clone(), self.resolve(&of))).collect();
        term.map(&|of| resolved.get(of).cloned().unwrap_or_else(|| Term::Ref(of.clone())))
    }

    fn func(&mut self, func: &Func) -> Func {
        let refs: Vec<Ref> = func.refs().into_iter().cloned().collect();
        let resolved: BTreeMap<Ref, Term> = refs.into_iter().map(|of| (of.clone(), self.resolve(&of))).collect();
        func.map(&|of| resolved.get(of).cloned().unwrap_or_else(|| Term::Ref(of.clone())))
    }

    fn resolve(&mut self, of: &Ref) -> Term {
        let below = |base: Ref| {
            let path = base.path.iter().chain(&of.path).cloned().collect();
            Term::Ref(Ref::new(base.source, path))
        };
        match of.source {
            Source::Node(n) => below(self.node(n)),
            Source::Var(n) => match self.var(n) {
                Term::Ref(base) => below(base),
                other => other,
            },
            _ => Term::Ref(of.clone()),
        }
    }

    /// Reference to the output of a node. Adds its step if it is missing.
    pub(crate) fn node(&mut self, n: usize) -> Ref {
        if let Some(known) = self.of_node.get(&n) {
            return known.clone();
        }
        // A read of a role stands for the role, because any of its reads may be made.
        if let Some(role) = self.synth.role_of(n) {
            return self.node(role);
        }
        let output = match self.synth.nodes[n].kind.clone() {
            NodeKind::Read { tool, args } => self.call(&tool, &args, None, Vec::new()),
            NodeKind::Loop { tool, of, list, args } => {
                let over = self.list(of, &list);
                self.call(&tool, &args, Some(over), Vec::new())
            }
            NodeKind::Role(members) => self.role(&members),
            NodeKind::Record { var, of, list, key } => self.record(var, of, &list, &key),
            NodeKind::Elements { var, of, list, key } => self.elements(var, of, &list, &key),
        };
        self.of_node.insert(n, output.clone());
        output
    }

    fn call(&mut self, tool: &str, unresolved: &Term, for_each: Option<Ref>, when: Vec<Condition>) -> Ref {
        let args = self.term(unresolved);
        let name = self.name(tool);
        self.rows(&name, unresolved, &args);
        let mut step = Step::new(&name, StepKind::Call { tool: tool.to_owned(), args, for_each, is_write: false });
        self.build(&mut step);
        step.require = self.computed(&step);
        step.when = when;
        self.program.steps.push(step);
        Ref::step(&name)
    }

    /// Reference to an open hole.
    pub(super) fn open(&mut self, key: String) -> Term {
        if !self.open.contains(&key) {
            self.open.push(key.clone());
        }
        Term::Ref(Ref::new(Source::Step(OPEN_HOLE.to_owned()), vec![key]))
    }

    /// Conditions on the code outputs that a step reads: code that found nothing outputs `null`.
    pub(super) fn computed(&self, step: &Step) -> Vec<Condition> {
        let is_code = |name: &&str| {
            let found = self.program.steps.iter().find(|step| step.name == *name);
            found.is_some_and(|step| matches!(step.kind, StepKind::Code { .. }))
        };
        let mut names: Vec<&str> = step.reads().into_iter().filter(is_code).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| Condition::NotNull(Ref::step(name))).collect()
    }

    /// Adds one step per read of a role (2.2). The first read whose parameters are all present is made.
    fn role(&mut self, members: &[usize]) -> Ref {
        let mut outputs: Vec<Ref> = Vec::new();
        for member in members {
            let NodeKind::Read { tool, args } = self.synth.nodes[*member].kind.clone() else { continue };
            let params: Vec<Ref> = self.term(&args).refs().into_iter().cloned().collect();
            let is_last = outputs.len() + 1 == members.len();
            let is_not_made = |output: &Ref| Condition::Equals(output.clone(), Value::Null);
            let mut when: Vec<Condition> = outputs.iter().map(is_not_made).collect();
            if !is_last {
                when.extend(params.into_iter().map(Condition::Exists));
            }
            outputs.push(self.call(&tool, &args, None, when));
        }
        self.code("found", Func::FirstOf(outputs), "the first of several equivalent reads")
    }

    pub(crate) fn code(&mut self, wanted: &str, func: Func, provenance: &str) -> Ref {
        let same = self
            .program
            .steps
            .iter()
            .find(|step| matches!(&step.kind, StepKind::Code { func: known, .. } if *known == func));
        if let Some(known) = same {
            return Ref::step(&known.name);
        }
        let name = self.name(wanted);
        let provenance = provenance.to_owned();
        let step = Step::new(&name, StepKind::Code { func, provenance });
        self.program.steps.push(step);
        Ref::step(&name)
    }

    /// A list of a node's value, as an array.
    fn list(&mut self, of: usize, list: &Collection) -> Ref {
        let base = self.node(of);
        let path: Path = base.path.iter().chain(&list.path).cloned().collect();
        let place = Ref::new(base.source, path);
        if list.kind == Kind::List {
            return place;
        }
        if let Some(known) = self.lists.get(&(place.clone(), list.kind)) {
            return known.clone();
        }
        let wanted = list.path.last().map_or("records", String::as_str).to_owned();
        let func = Func::Records(List { of: place.clone(), kind: list.kind });
        let output = self.code(&wanted, func, "the members of an object as a list");
        self.lists.insert((place, list.kind), output.clone());
        output
    }

    pub(crate) fn place(&mut self, of: usize, list: &Collection) -> List {
        let base = self.node(of);
        let path = base.path.iter().chain(&list.path).cloned().collect();
        List { of: Ref::new(base.source, path), kind: list.kind }
    }

    fn choice_of(&self, var: usize) -> Option<&Choice> {
        match &self.synth.bindings.get(&var)?.bound {
            Bound::Choose(choice) => Some(choice),
            _ => None,
        }
    }

    fn record(&mut self, var: usize, of: usize, list: &Collection, key: &Path) -> Ref {
        let chosen =
            self.choice_of(var).filter(|choice| choice.of == of && choice.list == *list && !choice.many).cloned();
        if let Some(choice) = chosen {
            return Ref::step(&self.question(var, &choice));
        }
        let is = self.term(&Term::Ref(Ref::new(Source::Var(var), Path::new())));
        let func = Func::Lookup { list: self.place(of, list), key: key.clone(), is };
        let wanted = format!("{}_record", self.synth.vars[var].name);
        self.code(&wanted, func, "the element that the argument names")
    }

    fn elements(&mut self, var: usize, of: usize, list: &Collection, key: &Path) -> Ref {
        let chosen =
            self.choice_of(var).filter(|choice| choice.of == of && choice.list == *list && choice.many).cloned();
        if let Some(choice) = chosen {
            return Ref::step(&self.question(var, &choice));
        }
        let are = self.term(&Term::Ref(Ref::new(Source::Var(var), Path::new())));
        let func = Func::LookupAll { list: self.place(of, list), key: key.clone(), are };
        let wanted = format!("{}_records", self.synth.vars[var].name);
        self.code(&wanted, func, "the elements that the argument names")
    }

    /// Term for the value of a variable.
    pub(super) fn var(&mut self, n: usize) -> Term {
        if let Some(known) = self.of_var.get(&n) {
            return known.clone();
        }
        let bound = self.synth.bindings.get(&n).map_or(Bound::Open, |binding| binding.bound.clone());
        let name = self.synth.vars[n].name.clone();
        let value = match bound {
            Bound::Param => Term::Ref(Ref::new(Source::Param(self.param(n)), Path::new())),
            Bound::Term(term) => self.term(&term),
            Bound::Code(func) => {
                let func = self.func(&func);
                Term::Ref(self.code(&name, func, "computed in the same way in every run"))
            }
            Bound::Choose(choice) => Term::Ref(self.chosen(n, &choice)),
            Bound::Enumerate { values, always } => {
                let from = self.code(&format!("{name}_values"), Func::Values(values), "the values seen in runs");
                let truth = (self.synth.vars[n].argument.clone(), Path::new());
                let question = Question { from, by: None, many: false, always, for_each: None, truth, of_each: None };
                let step = self.name(&name);
                self.program.steps.push(Step::new(&step, StepKind::Choose(question)));
                Term::Ref(Ref::step(&step))
            }
            Bound::Open => self.open(self.synth.vars[n].argument.path.join("_")),
        };
        self.of_var.insert(n, value.clone());
        value
    }

    fn param(&mut self, n: usize) -> String {
        let var = &self.synth.vars[n];
        let known = self.program.params.iter().find(|param| param.argument == var.argument);
        if let Some(known) = known {
            return known.name.clone();
        }
        let is_free = |name: &str| !self.program.params.iter().any(|param| param.name == name);
        let long = format!("{}_{}", var.argument.tool, var.name);
        let names = [var.name.clone(), long.clone()].into_iter().chain((2..).map(|n| format!("{long}_{n}")));
        let name = names.into_iter().find(|name| is_free(name)).unwrap_or(long);
        let example = var.values.iter().flatten().next().cloned().unwrap_or_default();
        self.program.params.push(Param { name: name.clone(), argument: var.argument.clone(), example });
        name
    }

    /// Reference to the value that the answer to a question gives.
    fn chosen(&mut self, var: usize, choice: &Choice) -> Ref {
        let step = self.question(var, choice);
        if choice.many || choice.each.is_some() {
            if choice.field.is_empty() {
                return Ref::step(&step);
            }
            let list = List { of: Ref::step(&step), kind: Kind::List };
            let func = Func::Column { list, field: choice.field.clone() };
            let wanted = format!("{}_list", self.synth.vars[var].name);
            return self.code(&wanted, func, "a field of each chosen element");
        }
        Ref::new(Source::Step(step), choice.field.clone())
    }

    /// Name of the step that asks; variables that name the same element share it (rule 4).
    pub(super) fn question(&mut self, var: usize, choice: &Choice) -> String {
        let is_it = |(known, of, _): &&(Choice, usize, String)| {
            let is_same_list = known.of == choice.of && known.list == choice.list && known.each == choice.each;
            *of == var
                || is_same_list
                    && !known.many
                    && !choice.many
                    && choice.each.is_none()
                    && self.synth.is_same_element(known, *of, (var, &choice.field))
        };
        if let Some((_, _, step)) = self.records.iter().find(is_it) {
            return step.clone();
        }
        let argument = |var: usize| self.synth.vars[var].argument.clone();
        let (from, for_each, of_each) = match choice.each.map(|each| (each, self.synth.nodes[each].kind.clone())) {
            Some((each, NodeKind::Loop { of, .. })) => {
                let (over, results) = (self.node(of), self.node(each));
                let func = Func::Options { over, results, list: choice.list.clone() };
                let wanted = format!("{}_options", self.synth.vars[var].name);
                let options = self.code(&wanted, func, "for each element, the list to choose from");
                let of_each = match &self.synth.nodes[of].kind {
                    NodeKind::Elements { var, key, .. } => Some((argument(*var), key.clone())),
                    _ => None,
                };
                (Ref::new(Source::Item, vec!["options".to_owned()]), Some(options), of_each)
            }
            _ => (self.list(choice.of, &choice.list), None, None),
        };
        let step = self.name(&self.synth.vars[var].name.clone());
        let question = Question {
            from,
            by: choice.by.first().cloned(),
            many: choice.many,
            always: choice.always,
            for_each,
            truth: (argument(var), choice.field.clone()),
            of_each,
        };
        self.program.steps.push(Step::new(&step, StepKind::Choose(question)));
        self.records.push((choice.clone(), var, step.clone()));
        step
    }
}

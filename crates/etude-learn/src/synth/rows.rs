//! Sources of arguments, as `learn show` lists them (1.8).

use std::collections::BTreeSet;

use etude_core::data::bare;
use serde_json::Value;

use super::assemble::Assembly;
use super::{Binding, Bound};
use crate::program::{Argument, Hole, Row, StepKind};
use crate::term::{Func, Part, Ref, Source, Term, escape};
use crate::value::{Path, pointer};

/// Maximum number of alternatives that are named.
const MAX_ALTERNATIVES: usize = 5;

/// The terms of arguments with their paths.
pub(crate) fn leaves_of(args: &Term) -> Vec<(Path, &Term)> {
    fn walk<'t>(term: &'t Term, path: &mut Path, found: &mut Vec<(Path, &'t Term)>) {
        let mut below = |name: String, inner: &'t Term, path: &mut Path| {
            path.push(name);
            walk(inner, path, found);
            path.pop();
        };
        match term {
            Term::Object(members) => members.iter().for_each(|(name, inner)| below(name.clone(), inner, path)),
            Term::List(items) => items.iter().enumerate().for_each(|(n, inner)| below(n.to_string(), inner, path)),
            leaf => found.push((path.clone(), leaf)),
        }
    }
    let mut found = Vec::new();
    walk(args, &mut Path::new(), &mut found);
    found
}

impl Assembly<'_, '_, '_> {
    /// Adds one row for each argument of a call; `unresolved` are its arguments before variables were resolved.
    pub(super) fn rows(&mut self, step: &str, unresolved: &Term, resolved: &Term) {
        for (path, term) in leaves_of(unresolved) {
            let written = leaves_of(resolved).into_iter().find(|(known, _)| *known == path);
            let expression = written.map_or(Value::Null, |(_, term)| term.to_json());
            let var = match term {
                Term::Ref(Ref { source: Source::Var(n), path }) if path.is_empty() => Some(*n),
                _ => None,
            };
            let argument = pointer(&path);
            match var {
                Some(var) => self.var_row(step, argument, var, &expression),
                None => self.plain_row(step, argument, term, &expression),
            }
        }
    }

    fn plain_row(&mut self, step: &str, argument: String, term: &Term, expression: &Value) {
        let of = self.synth.episodes.len();
        let source = match term {
            Term::Const(_) => "constant",
            Term::Ref(of) if of.source == Source::Item => "element",
            _ => "result",
        };
        let (held, alternatives, why) = (of, Vec::new(), "only_alternative");
        let (step, expression) = (step.to_owned(), bare(expression).into_owned());
        self.program.rows.push(Row { step, argument, source, expression, held, of, alternatives, why });
    }

    fn var_row(&mut self, step: &str, argument: String, var: usize, expression: &Value) {
        let Some(binding) = self.synth.bindings.get(&var) else { return };
        let of = self.synth.episodes.len();
        let there = self.synth.vars[var].values.iter().flatten().count();
        let held = match &binding.bound {
            _ if self.synth.is_of_element(var) => there,
            Bound::Term(_) | Bound::Code(_) => self.synth.held_of(var, &binding.bound),
            Bound::Open => 0,
            _ => there,
        };
        let expression = bare(expression).into_owned();
        let mut alternatives: Vec<String> = Vec::new();
        let earlier = binding.alternatives.iter().filter(|one| self.is_earlier(one, var));
        for other in earlier.map(|one| self.describe(one)) {
            if alternatives.len() < MAX_ALTERNATIVES && other != expression && !alternatives.contains(&other) {
                alternatives.push(other);
            }
        }
        self.hole(step, &argument, var, binding);
        let is_element = self.synth.is_of_element(var) && matches!(binding.bound, Bound::Code(_));
        self.program.rows.push(Row {
            step: step.to_owned(),
            argument,
            source: if is_element { "element" } else { source(&binding.bound) },
            expression,
            held,
            of,
            alternatives,
            why: binding.why,
        });
    }

    /// True if an expression has its value without the variable, or from a step that comes before the call of the row.
    fn is_earlier(&self, bound: &Bound, var: usize) -> bool {
        let needs = |node: usize| !self.of_node.contains_key(&node) && self.synth.needs(node, var);
        let refs = match bound {
            Bound::Term(term) => term.refs(),
            Bound::Code(func) => func.refs(),
            _ => Vec::new(),
        };
        !refs.into_iter().any(|of| matches!(of.source, Source::Node(n) if needs(n)))
    }

    fn hole(&mut self, step: &str, argument: &str, var: usize, binding: &Binding) {
        let is_said = (0..self.synth.episodes.len()).any(|n| self.synth.is_said(var, n));
        let (why, set, by) = match &binding.bound {
            Bound::Choose(choice) => {
                let why = if is_said { "default_not_universal" } else { "choice" };
                let key = &self.synth.vars[var].argument;
                let asked = self.program.steps.iter().find_map(|step| match &step.kind {
                    StepKind::Choose(question) if question.truth.0 == *key => Some(question),
                    StepKind::Choose(question) if Some(&step.name) == self.step_of(var).as_ref() => Some(question),
                    StepKind::Choose(question) if self.synth.names_element_of(var, &question.truth.0) => Some(question),
                    _ => None,
                });
                let set = asked.map_or(Value::Null, |question| question.from.template().into());
                (why, set, choice.by.first().cloned())
            }
            Bound::Enumerate { values, .. } => ("no_expression", Value::from(values.clone()), None),
            Bound::Open => ("no_expression", Value::Null, None),
            _ => return,
        };
        let (step, argument) = (step.to_owned(), argument.to_owned());
        self.program.holes.push(Hole { step, argument, why, set, by });
    }

    /// Name of the step whose output a variable is.
    fn step_of(&self, var: usize) -> Option<String> {
        match self.of_var.get(&var)? {
            Term::Ref(Ref { source: Source::Step(name), .. }) => Some(name.clone()),
            _ => None,
        }
    }

    /// Expression in words, with the tools of reads that are not steps.
    fn describe(&self, bound: &Bound) -> String {
        let of_func = |func: &Func| match func {
            Func::Column { list, field } => format!("{} of each of {}", field.join("."), self.named(&list.of)),
            Func::Only { list, field, .. } => {
                format!("{} of the only one of {}", field.join("."), self.named(&list.of))
            }
            Func::Sum { list, field } => format!("sum of {} over {}", field.join("."), self.named(&list.of)),
            Func::Arithmetic { op, left, right } => format!("{} {} {}", self.named(left), op.sign(), self.named(right)),
            other => other.refs().into_iter().map(|of| self.named(of)).collect::<Vec<_>>().join(", "),
        };
        match bound {
            // The template as it is written, with the names of steps.
            Bound::Term(Term::Text(parts)) => {
                let text = parts.iter().map(|part| match part {
                    Part::Plain(text) => escape(text),
                    Part::Ref(of) => self.named(of),
                });
                text.collect()
            }
            Bound::Term(term) => {
                let named = term.map(&|of| Term::Const(self.named(of).into()));
                let value = match named {
                    Term::Const(value) => value,
                    other => other.to_json(),
                };
                bare(&value).into_owned()
            }
            Bound::Code(func) => of_func(func),
            _ => String::new(),
        }
    }

    fn named(&self, of: &Ref) -> String {
        let base = match &of.source {
            Source::Node(n) => self.of_node.get(n).cloned().unwrap_or_else(|| Ref::step(&self.synth.tool_of(*n))),
            Source::Var(n) => match self.of_var.get(n) {
                Some(Term::Ref(base)) => base.clone(),
                _ => Ref::new(Source::Param(self.synth.vars[*n].name.clone()), Path::new()),
            },
            _ => Ref::new(of.source.clone(), Path::new()),
        };
        let path = base.path.iter().chain(&of.path).cloned().collect();
        Ref::new(base.source, path).template()
    }
}

fn source(bound: &Bound) -> &'static str {
    match bound {
        Bound::Param => "input",
        Bound::Term(Term::Const(_)) => "constant",
        Bound::Term(Term::Ref(Ref { source: Source::Var(_), .. })) => "argument",
        Bound::Term(Term::Ref(_)) => "result",
        Bound::Code(Func::Only { .. } | Func::Lookup { .. }) => "element",
        Bound::Term(_) | Bound::Code(_) => "computed",
        Bound::Choose(_) | Bound::Enumerate { .. } | Bound::Open => "question",
    }
}

impl super::Synth<'_, '_> {
    fn held_of(&self, var: usize, bound: &Bound) -> usize {
        self.held(var, bound).unwrap_or(0)
    }

    /// True if an argument names the elements that another one is a field of.
    fn names_element_of(&self, var: usize, argument: &Argument) -> bool {
        let asked = self.spread.as_ref().filter(|spread| spread.fields.contains_key(&var));
        let key = asked.and_then(|spread| spread.asked.as_ref()).map(|(key, _)| *key);
        key.is_some_and(|key| self.vars[key].argument == *argument)
    }

    /// True if a node can be read only after a variable is known.
    fn needs(&self, node: usize, var: usize) -> bool {
        let (mut open, mut seen) = (vec![node], BTreeSet::new());
        while let Some(node) = open.pop() {
            for dep in self.nodes[node].deps.iter().filter(|dep| seen.insert(**dep)) {
                if *dep == var {
                    return true;
                }
                let refs = match self.bindings.get(dep).map(|binding| &binding.bound) {
                    Some(Bound::Term(term)) => term.refs(),
                    Some(Bound::Code(func)) => func.refs(),
                    _ => Vec::new(),
                };
                open.extend(refs.into_iter().filter_map(|of| match of.source {
                    Source::Node(n) => Some(n),
                    _ => None,
                }));
            }
        }
        false
    }

    /// The tool whose results a node has.
    pub(crate) fn tool_of(&self, node: usize) -> String {
        match &self.nodes[node].kind {
            super::NodeKind::Read { tool, .. } | super::NodeKind::Loop { tool, .. } => tool.clone(),
            super::NodeKind::Role(members) => members.first().map_or_else(String::new, |n| self.tool_of(*n)),
            super::NodeKind::Record { of, .. } | super::NodeKind::Elements { of, .. } => self.tool_of(*of),
        }
    }
}

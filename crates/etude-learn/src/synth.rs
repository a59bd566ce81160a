//! Synthesis of a program from episodes (2.2 to 2.6). Reads are aligned across episodes, arguments are bound to sources, and
//! the needed reads become steps.

mod assemble;
mod bind;
mod choice;
mod expressions;
mod loops;
mod order;
mod reads;
mod rows;
mod spread;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use etude_core::shell;
use serde_json::Value;

use crate::commands;
use crate::contrast::Contrast;
use crate::episode::{Episode, leaves};
use crate::program::{Argument, Of, Program};
use crate::substitutes::Substitutes;
use crate::term::{Func, Scope, Source, Term};
use crate::value::{Collection, Path, is_scalar};

pub(crate) use assemble::{ALLOWED, Assembly, OPEN_HOLE};
pub(crate) use reads::is_mostly;
pub(crate) use rows::leaves_of;
pub(crate) use spread::Spread;

/// The tool that a family writes with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'f> {
    pub(crate) tool: &'f str,
    /// JSON Schema of its arguments; `null` if unknown.
    pub(crate) schema: &'f Value,
}

/// An argument whose binding is searched.
#[derive(Debug, Clone)]
pub(crate) struct Var {
    pub(crate) argument: Argument,
    /// Last member name in the path of the argument.
    pub(crate) name: String,
    /// Value per episode; `None` if the call does not have it.
    pub(crate) values: Vec<Option<Value>>,
}

impl Var {
    fn new(argument: Argument, episodes: &[Episode<'_>]) -> Self {
        let values = episodes.iter().map(|episode| argument.value(episode)).collect();
        let name = argument.path.iter().rev().find(|name| name.parse::<usize>().is_err());
        let name = name.cloned().unwrap_or_else(|| "value".to_owned());
        Self { argument, name, values }
    }

    fn of_write(&self) -> bool {
        matches!(self.argument.of, Of::Write { .. })
    }

    /// True if the call is made once for each of its values.
    fn spread(&self) -> bool {
        self.argument.of == Of::Write { spread: true }
    }

    fn is_list(&self) -> bool {
        self.values.iter().flatten().all(Value::is_array)
    }
}

/// A read that may become a step, or a view of one.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    /// Value per episode; `None` if the episode does not have it.
    pub(crate) values: Vec<Option<Value>>,
    /// Per episode, the number of reads that had been made when the value was known. A later read cannot be its source.
    pub(crate) known_at: Vec<usize>,
    /// The variables that it depends on.
    pub(crate) deps: BTreeSet<usize>,
}

#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    /// A call of a tool; the shape of its arguments is that of a recorded call.
    Read { tool: String, args: Term },
    /// A call for each element of a list.
    Loop { tool: String, of: usize, list: Collection, args: Term },
    /// The first of reads that substitute for each other.
    Role(Vec<usize>),
    /// The element of a list that a variable names, by a field of it.
    Record { var: usize, of: usize, list: Collection, key: Path },
    /// The elements that the values of a variable name.
    Elements { var: usize, of: usize, list: Collection, key: Path },
}

/// Source of an argument's value.
#[derive(Debug, Clone)]
pub(crate) enum Bound {
    /// A parameter: the user says the value.
    Param,
    Term(Term),
    Code(Func),
    Choose(Choice),
    /// A question over the values that were seen.
    Enumerate {
        values: Vec<Value>,
        always: bool,
    },
    /// An open hole: nothing determines the value.
    Open,
}

/// A closed question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) of: usize,
    pub(crate) list: Collection,
    /// The field that names an element; empty if elements are scalars.
    pub(crate) by: Path,
    /// The field that is the value.
    pub(crate) field: Path,
    pub(crate) many: bool,
    pub(crate) always: bool,
    /// One question for each element of this node.
    pub(crate) each: Option<usize>,
}

/// Binding of a variable, with the alternatives that would have held as well.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub(crate) bound: Bound,
    pub(crate) alternatives: Vec<Bound>,
    pub(crate) why: &'static str,
}

/// A search for a program.
pub(crate) struct Synth<'a, 't> {
    pub(crate) episodes: &'a [Episode<'t>],
    /// Runs of other families, and those that did not go well.
    pub(crate) contrast: &'a Contrast<'t>,
    /// Reads that substitute for each other in all families.
    pub(crate) substitutes: &'a Substitutes<'t>,
    /// Keys of variables that have lost all derived expressions (2.8 b).
    pub(crate) banned: &'a BTreeSet<String>,
    /// The schema of the write's arguments.
    pub(crate) schema: &'a Value,
    pub(crate) vars: Vec<Var>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) bindings: BTreeMap<usize, Binding>,
    /// Nodes of reads that stay although nothing comes from them.
    pub(crate) roles: BTreeSet<usize>,
    /// List that the calls of the write iterate over, if they take several arguments of each element.
    pub(crate) spread: Option<Spread>,
}

/// Program for these episodes; `None` if there is none, for example because a read that must stay is unreachable.
pub(crate) fn synthesize<'t>(
    episodes: &[Episode<'t>],
    write: Option<Write<'_>>,
    contrast: &Contrast<'t>,
    substitutes: &Substitutes<'t>,
    banned: &BTreeSet<String>,
) -> Option<Program> {
    let mut synth = Synth {
        episodes,
        contrast,
        substitutes,
        banned,
        schema: write.map_or(&Value::Null, |write| write.schema),
        vars: Vec::new(),
        nodes: Vec::new(),
        bindings: BTreeMap::new(),
        roles: BTreeSet::new(),
        spread: None,
    };
    if let Some(write) = write {
        synth.write_vars(write.tool);
        synth.has_constant_commands().then_some(())?;
    }
    synth.align();
    synth.keep_roles(write.is_none())?;
    synth.bind();
    synth.has_words_of_origin().then_some(())?;
    synth.assemble(write.map(|write| write.tool))
}

impl<'t> Synth<'_, 't> {
    /// Adds one variable for each argument of the write.
    fn write_vars(&mut self, tool: &str) {
        let mut paths: Vec<Path> = Vec::new();
        let is_folded = self.episodes.iter().any(|episode| episode.writes.len() > 1);
        for episode in self.episodes {
            for write in &episode.writes {
                for (path, _) in leaves(&write.arguments) {
                    if !paths.contains(&path) {
                        paths.push(path);
                    }
                }
            }
        }
        paths.sort();
        for path in paths {
            let spread = is_folded && self.episodes.iter().any(|episode| !is_constant(episode, &path));
            let argument = Argument { tool: tool.to_owned(), path, of: Of::Write { spread } };
            self.vars.push(Var::new(argument, self.episodes));
        }
    }

    /// True if the command lines of a shell are constant: a value is never put into a line, but passed beside it (L-33).
    fn has_constant_commands(&self) -> bool {
        let is_own = |var: &&Var| var.argument.tool == shell::TOOL;
        let is_line = |var: &&Var| var.name == shell::COMMAND;
        let is_constant = |var: &Var| var.values.windows(2).all(|pair| pair[0] == pair[1]);
        // A step checks its arguments once, before the first call.
        let is_spread = self.vars.iter().filter(is_own).any(Var::spread);
        !(is_spread && self.words().next().is_some())
            && self.vars.iter().filter(is_own).filter(is_line).all(is_constant)
    }

    /// Indices of the variables that are words of a command line.
    fn words(&self) -> impl Iterator<Item = usize> {
        let is_word = |var: &Var| commands::place_of(&var.argument.tool, &var.argument.path).is_some();
        (0..self.vars.len()).filter(move |n| is_word(&self.vars[*n]))
    }

    /// True if every word that differs comes as a whole from the user or from a result (L-33).
    fn has_words_of_origin(&self) -> bool {
        self.words().all(|var| match self.bindings.get(&var).map(|binding| &binding.bound) {
            Some(Bound::Param | Bound::Term(Term::Ref(_) | Term::Const(_)) | Bound::Code(_)) => {
                self.form(var).is_some()
            }
            Some(Bound::Choose(choice)) => !choice.many && self.form(var).is_some(),
            _ => false,
        })
    }

    /// Form of the words that the runs had; `None` if they have no common form.
    pub(crate) fn form(&self, var: usize) -> Option<commands::Form> {
        let values = &self.vars[var].values;
        let words: Option<Vec<&str>> = values.iter().map(|value| value.as_ref()?.as_str()).collect();
        commands::Form::parse(words?.into_iter())
    }

    /// Variables that a term depends on, also through nodes.
    pub(crate) fn deps_of(&self, term: &Term) -> BTreeSet<usize> {
        let mut deps = BTreeSet::new();
        for reference in term.refs() {
            match reference.source {
                Source::Var(n) => {
                    deps.insert(n);
                }
                Source::Node(n) => deps.extend(&self.nodes[n].deps),
                _ => {}
            }
        }
        deps
    }

    /// Number of episodes in which the node has a value.
    pub(crate) fn support(&self, node: usize) -> usize {
        self.nodes[node].values.iter().flatten().count()
    }

    /// True if the node has a value in nearly all episodes. For a check that stays, half of them suffice: the words that it
    /// needs may be missing in some runs.
    pub(crate) fn is_full(&self, node: usize) -> bool {
        let (support, all) = (self.support(node), self.episodes.len());
        is_mostly(support, all) || support * 2 >= all && self.is_check(node)
    }

    /// Number of reads that an episode had made when everything in a term was known.
    pub(crate) fn known_at(&self, term: &Term, episode: usize) -> usize {
        let places = term.refs().into_iter().filter_map(|of| match of.source {
            Source::Node(n) => Some(self.nodes[n].known_at[episode]),
            _ => None,
        });
        places.max().unwrap_or(0)
    }

    /// Up to `count` episodes of distinct requests in which `wanted` holds. They suffice as samples: an expression that holds
    /// in all episodes holds in each.
    pub(crate) fn seeds(&self, count: usize, wanted: &dyn Fn(usize) -> bool) -> Vec<usize> {
        let mut digests = BTreeSet::new();
        let fitting = (0..self.episodes.len()).filter(|n| wanted(*n));
        fitting.filter(|n| digests.insert(self.episodes[*n].digest.as_str())).take(count).collect()
    }

    /// Values of the sources in one episode.
    pub(crate) fn scope(&self, episode: usize) -> AtEpisode<'_, '_, 't> {
        AtEpisode { synth: self, episode, item: None }
    }

    /// True if the user said the variable's value outright.
    pub(crate) fn is_said(&self, var: usize, episode: usize) -> bool {
        let value = self.vars[var].values[episode].as_ref();
        value.is_some_and(|value| self.episodes[episode].said.has(value))
    }

    /// True if the user may have said the variable's value, also if it is too short to prove it.
    pub(crate) fn may_be_said(&self, var: usize, episode: usize) -> bool {
        let value = self.vars[var].values[episode].as_ref();
        value.is_some_and(|value| self.episodes[episode].said.may_have(value))
    }
}

fn is_constant(episode: &Episode<'_>, path: &Path) -> bool {
    let mut values = episode.writes.iter().map(|write| crate::value::at(&write.arguments, path));
    let first = values.next().flatten();
    values.all(|value| value == first)
}

/// The values of variables and nodes in one episode.
pub(crate) struct AtEpisode<'s, 'a, 't> {
    synth: &'s Synth<'a, 't>,
    episode: usize,
    pub(crate) item: Option<&'s Value>,
}

impl Scope for AtEpisode<'_, '_, '_> {
    fn get(&self, source: &Source) -> Option<&Value> {
        match source {
            Source::Node(n) => self.synth.nodes[*n].values[self.episode].as_ref(),
            Source::Var(n) => self.synth.vars[*n].values[self.episode].as_ref(),
            Source::Item => self.item,
            Source::Param(_) | Source::Step(_) => None,
        }
    }
}

/// The arguments of a recorded call with terms in the place of scalars.
pub(crate) fn shaped(shape: &Value, leaf: &mut dyn FnMut(&Path) -> Option<Term>) -> Option<Term> {
    fn walk(shape: &Value, path: &mut Path, leaf: &mut dyn FnMut(&Path) -> Option<Term>) -> Option<Term> {
        let mut below = |name: String, inner: &Value, path: &mut Path| {
            path.push(name);
            let term = walk(inner, path, leaf);
            path.pop();
            term
        };
        match shape {
            Value::Object(members) if !members.is_empty() => {
                let inner: Option<Vec<(String, Term)>> = members
                    .iter()
                    .map(|(name, inner)| Some((name.clone(), below(name.clone(), inner, path)?)))
                    .collect();
                inner.map(Term::Object)
            }
            Value::Array(items) if !items.iter().all(is_scalar) => {
                let inner: Option<Vec<Term>> =
                    items.iter().enumerate().map(|(n, inner)| below(n.to_string(), inner, path)).collect();
                inner.map(Term::List)
            }
            _ => leaf(path),
        }
    }
    walk(shape, &mut Path::new(), leaf)
}

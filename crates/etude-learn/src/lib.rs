//! Learner: derives pipelines from traces of runs in skill mode (docs/learn.md).
//!
//! Pure: traces in, candidates out. It uses no IO, no model, no clock and no randomness. The order of the traces does not
//! matter: the same traces give the same bytes (L-10).
//!
//! | module | content |
//! |---|---|
//! | `trace`, `text`, `notation` | traces as documents; comparison of texts, numbers and days |
//! | `select`, `episode` | the traces that count; writes with the reads before them, as families |
//! | `term`, `value` | expressions, evaluated as they are written; places and lists in results |
//! | `substitutes` | reads that do the same, in all families |
//! | `synth` | alignment of reads, binding of arguments, and the resulting steps |
//! | `commands` | command lines that are the same up to whole words |
//! | `contrast`, `guards`, `replay`, `check` | other runs, and conditions that they violate; replay on recorded results; checks of a candidate |
//! | `slots` | requests with their values replaced |
//! | `difference` | first difference between a program and a run |
//! | `files` | the files of a candidate |

mod check;
mod commands;
mod contrast;
mod difference;
mod episode;
pub mod files;
mod guards;
mod notation;
mod program;
mod replay;
mod select;
mod slots;
mod substitutes;
mod synth;
mod term;
pub mod text;
pub mod trace;
mod value;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

pub use check::Counts;
pub use files::{Evaluation, Wording};
pub use program::{Guard, Hole, Row};
pub use select::Unusable;
pub use trace::Trace;
pub use world::{Class, Tool, World};

use check::Reason;
use contrast::Contrast;
use episode::Family;
use program::StepKind;
use replay::{Kind, compare};
use substitutes::Substitutes;

/// Pipeline name for a family whose name has no ASCII letter or digit.
const NAMELESS: &str = "pipeline";

/// The result of learning from all traces of an app.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// Number of traces that count.
    pub usable: usize,
    /// The traces that do not count, each with the reason.
    pub unusable: Vec<Unusable>,
    /// Families by name; only the requested one, if one was requested.
    pub families: Vec<FamilyRow>,
    /// Names of the families that were not requested; empty if none was requested.
    pub others: Vec<String>,
    /// The candidates, by name.
    pub candidates: Vec<Candidate>,
}

/// Family with its learning outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyRow {
    /// The tool of the first write of its requests, or the goal of their reads.
    pub family: String,
    /// Number of distinct requests.
    pub requests: usize,
    /// Distinct runs; a request that was repeated has several.
    pub runs: usize,
    /// Name of the candidate, or the reason for its absence: `too_few_requests`, `excluded`, `check_failed`, `no_program`.
    pub outcome: Result<String, &'static str>,
    /// Description of the failed check; `None` if no check failed.
    pub why: Option<String>,
    /// Excluded tools (`learn.exclude`) that the family needs.
    pub tools: Vec<String>,
}

/// A learned pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The directory's name: letters, digits and hyphens of ASCII; unique among the app's pipelines.
    pub name: String,
    /// The name of the family of requests that it was learned from.
    pub family: String,
    /// Distinct requests that it was learned from.
    pub requests: usize,
    /// Distinct runs that it was learned from; a request that was repeated has several.
    pub runs: usize,
    /// Tools of its read steps.
    pub reads: Vec<String>,
    /// Tools of its write steps.
    pub writes: Vec<String>,
    /// Names of the parameters under `input`, in the order of the file.
    pub parameters: Vec<String>,
    /// Names of its steps that ask a question with a closed set.
    pub questions: Vec<String>,
    /// Source of each argument.
    pub bindings: Vec<Row>,
    /// Values that the runs do not determine.
    pub holes: Vec<Hole>,
    /// Conditions that must hold before it writes.
    pub guards: Vec<Guard>,
    /// Digests of the requests that it covers.
    pub covers: Vec<String>,
    /// Digests of the requests that it does not cover, each with the first difference (1.8).
    pub not_covered: Vec<Value>,
    /// Comparison of each request with a program that was learned without it.
    pub leave_one_out: Counts,
    /// `pipeline.yaml` as JSON.
    pub definition: Value,
    /// The files by their paths below the directory of the pipeline, without `learn.yaml`.
    pub files: BTreeMap<String, String>,
    /// Results of its code in its cases, without duplicates.
    pub evaluations: Vec<Evaluation>,
    /// Digests of the first cases of each end.
    pub samples: Vec<String>,
}

impl Candidate {
    /// The description and triggers of its definition, for a model to improve.
    pub fn wording(&self) -> Wording {
        Wording::of(&self.definition)
    }

    /// Replaces its description and triggers, also in `pipeline.yaml`. Nothing else changes (L-29).
    pub fn reword(&mut self, wording: &Wording) {
        self.definition["description"] = wording.description.as_str().into();
        if self.definition.get("triggers").is_some() {
            self.definition["triggers"] = wording.triggers.clone().into();
        }
        self.files.insert("pipeline.yaml".to_owned(), files::yaml::document(&self.definition));
    }
}

/// Learns pipelines from traces; `only` restricts it to the family of that name.
pub fn learn(traces: &[Trace], world: &dyn World, only: Option<&str>) -> Learned {
    let bound = commands::bound(traces, &select::select(traces, world).usable, world);
    let selected = select::select(bound.as_deref().unwrap_or(traces), world);
    let mut learned = Learned {
        usable: selected.usable.len(),
        unusable: selected.unusable,
        families: Vec::new(),
        others: Vec::new(),
        candidates: Vec::new(),
    };
    let substitutes = Substitutes::new(&selected.usable, world);
    let families = episode::families(&selected.usable, world);
    let names = names_of(&families, world);
    for family in families {
        if only.is_some_and(|name| name != family.name) {
            learned.others.push(family.name);
            continue;
        }
        let own: BTreeSet<*const Trace> =
            family.episodes.iter().map(|episode| std::ptr::from_ref(episode.trace)).collect();
        let others = selected.usable.iter().chain(&selected.contrast).copied();
        let contrast = others.filter(|trace| !own.contains(&std::ptr::from_ref(*trace)));
        let contrast = Contrast::new(contrast, world);
        let tools = excluded(&family, world);
        let mut why = None;
        let outcome = if !tools.is_empty() {
            Err("excluded")
        } else if family.requests().len() < world.min_requests() {
            Err("too_few_requests")
        } else {
            check::learn(&family, &contrast, &substitutes)
                .map(|found| {
                    let name = names.get(&family.name).cloned().unwrap_or_default();
                    learned.candidates.push(candidate(&name, &family, &found, world));
                    name
                })
                .map_err(|reason| match reason {
                    Reason::CheckFailed(fault) => {
                        why = Some(fault);
                        "check_failed"
                    }
                    Reason::NoProgram => "no_program",
                })
        };
        let (requests, runs) = (family.requests().len(), family.runs());
        learned.families.push(FamilyRow { family: family.name, requests, runs, outcome, why, tools });
    }
    learned.candidates.sort_by(|a, b| a.name.cmp(&b.name));
    learned
}

/// The excluded tools that the family needs: its write, and reads that come before nearly every write.
fn excluded(family: &Family<'_>, world: &dyn World) -> Vec<String> {
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for episode in &family.episodes {
        let tools: BTreeSet<&str> =
            episode.reads.iter().chain(&episode.writes).map(|call| call.tool.as_str()).collect();
        tools.into_iter().for_each(|tool| *uses.entry(tool).or_default() += 1);
    }
    let needed = uses.into_iter().filter(|(_, count)| synth::is_mostly(*count, family.episodes.len()));
    needed.map(|(tool, _)| tool.to_owned()).filter(|tool| world.is_excluded(tool)).collect()
}

/// Pipeline names of families, in the order of the families. Names are unique, and a family keeps the name that it has (1.4).
fn names_of(families: &[Family<'_>], world: &dyn World) -> BTreeMap<String, String> {
    let mut given = BTreeSet::new();
    let mut names = BTreeMap::new();
    for Family { name: family, .. } in families {
        let base = base_of(family);
        let all = || std::iter::once(base.clone()).chain((2..).map(|n| format!("{base}-{n}")));
        let own = all().take(families.len() + 1).find(|name| world.is_own(name, family) && !given.contains(name));
        let free = || all().find(|name| !world.is_taken(name, family) && !given.contains(name));
        let Some(name) = own.or_else(free) else { continue };
        given.insert(name.clone());
        names.insert(family.clone(), name);
    }
    names
}

/// Family name reduced to lower-case ASCII letters, digits and hyphens.
fn base_of(family: &str) -> String {
    let mut name = String::new();
    for c in family.to_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' => name.push(c),
            _ if name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    let name = name.trim_matches('-');
    if name.is_empty() { NAMELESS.to_owned() } else { name.to_owned() }
}

fn candidate(name: &str, family: &Family<'_>, found: &check::Learned<'_>, world: &dyn World) -> Candidate {
    let program = &found.program;
    let tools = |is_wanted: bool| -> Vec<String> {
        let tools = program.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Call { tool, is_write, .. } if *is_write == is_wanted => Some(tool.clone()),
            _ => None,
        });
        tools.collect::<BTreeSet<_>>().into_iter().collect()
    };
    let mut kinds: BTreeMap<&str, (Kind, Value)> = BTreeMap::new();
    for episode in &found.episodes {
        let kind = compare(program, episode);
        if kind != Kind::Agreed {
            kinds.insert(&episode.digest, (kind, difference::difference(program, episode)));
        } else {
            kinds.entry(&episode.digest).or_insert((kind, Value::Null));
        }
    }
    let of = |is_covered: bool| kinds.iter().filter(move |(_, (kind, _))| (*kind == Kind::Agreed) == is_covered);
    let mut candidate = Candidate {
        name: name.to_owned(),
        family: family.name.clone(),
        requests: family.requests().len(),
        runs: family.runs(),
        reads: tools(false),
        writes: tools(true),
        parameters: program.params.iter().map(|param| param.name.clone()).collect(),
        questions: program.questions().into_iter().map(str::to_owned).collect(),
        bindings: program.rows.clone(),
        holes: program.holes.clone(),
        guards: program.guards.clone(),
        covers: of(true).map(|(digest, _)| (*digest).to_owned()).collect(),
        not_covered: of(false).map(|(digest, (_, why))| json!({"digest": digest, "difference": why})).collect(),
        leave_one_out: found.leave_one_out,
        definition: Value::Null,
        files: BTreeMap::new(),
        evaluations: Vec::new(),
        samples: Vec::new(),
    };
    files::write(&mut candidate, found, world);
    candidate
}

//! Checks that a candidate must pass before it is written (2.8).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::contrast::Contrast;
use crate::episode::{Episode, Family};
use crate::program::{Program, StepKind};
use crate::replay::{End, Kind, compare, compare_part, replay};
use crate::substitutes::Substitutes;
use crate::synth::{Write, synthesize};
use crate::term::{Ref, Source};
use crate::value::{Path, is_at};

/// Maximum number of requests in the first training set; requests that the program gets wrong are added.
const MAX_TRAINING: usize = 40;
/// Maximum number of groups in which requests are left out.
const MAX_FOLDS: usize = 24;
/// Maximum number of rounds. Each round adds wrong runs to the training set or bans expressions.
const MAX_ROUNDS: usize = 12;

/// Comparisons, each request counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests with the same write, or with no write on both sides.
    pub agreed: usize,
    /// Requests for which the pipeline deviated.
    pub fell_back: usize,
    /// Requests with another write, or with a write on one side only.
    pub disagreed: usize,
}

impl Counts {
    /// Adds the requests outside the training set: the program was learned without them.
    fn add_unseen(&mut self, program: &Program, all: &[Episode<'_>], training: &[Episode<'_>]) {
        let known: BTreeSet<&str> = training.iter().map(|episode| episode.digest.as_str()).collect();
        let mut unseen: BTreeMap<&str, Kind> = BTreeMap::new();
        for episode in all.iter().filter(|episode| !known.contains(episode.digest.as_str())) {
            let kind = compare(program, episode);
            let before = unseen.entry(&episode.digest).or_insert(kind);
            *before = worst(*before, kind);
        }
        unseen.into_values().for_each(|kind| self.add(kind));
    }

    fn add(&mut self, kind: Kind) {
        match kind {
            Kind::Agreed => self.agreed += 1,
            Kind::FellBack => self.fell_back += 1,
            Kind::Disagreed => self.disagreed += 1,
        }
    }
}

/// Program that passed all checks.
#[derive(Debug)]
pub(crate) struct Learned<'t> {
    pub(crate) program: Program,
    pub(crate) episodes: Vec<Episode<'t>>,
    pub(crate) leave_one_out: Counts,
}

/// Reason for a missing candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Description of the failed check.
    CheckFailed(String),
    NoProgram,
}

/// Learns a family and checks the result.
pub(crate) fn learn<'t>(
    family: &Family<'t>,
    contrast: &Contrast<'t>,
    substitutes: &Substitutes<'t>,
) -> Result<Learned<'t>, Reason> {
    let write = family.write.as_deref().map(|tool| Write { tool, schema: &family.schema });
    if !family.folded.is_empty()
        && let Ok(learned) = of_episodes(&family.folded, write, contrast, substitutes)
        && !learned.program.is_open()
    {
        return Ok(learned);
    }
    of_episodes(&family.episodes, write, contrast, substitutes)
}

fn of_episodes<'t>(
    episodes: &[Episode<'t>],
    write: Option<Write<'_>>,
    contrast: &Contrast<'t>,
    substitutes: &Substitutes<'t>,
) -> Result<Learned<'t>, Reason> {
    let mut training = sample(episodes);
    let mut banned = BTreeSet::new();
    for _ in 0..MAX_ROUNDS {
        let synth =
            |some: &[Episode<'t>], banned: &BTreeSet<String>| synthesize(some, write, contrast, substitutes, banned);
        let program = synth(&training, &banned).ok_or(Reason::NoProgram)?;
        // Add runs outside the training set that the program gets wrong.
        let wrong: Vec<&Episode<'t>> = episodes
            .iter()
            .filter(|one| compare(&program, one) == Kind::Disagreed)
            .filter(|one| !training.iter().any(|known| is_same(known, one)))
            .take(MAX_TRAINING / 4)
            .collect();
        if !wrong.is_empty() {
            training.extend(wrong.into_iter().cloned());
            continue;
        }
        let (mut counts, blamed) = leave_one_out(&training, &|some| synth(some, &banned));
        counts.add_unseen(&program, episodes, &training);
        let before = banned.len();
        banned.extend(blamed);
        banned.extend(blame_of_all(&program, &training));
        if banned.len() > before {
            continue;
        }
        return match fault(&program, counts, episodes, &training) {
            None => Ok(Learned { program, episodes: episodes.to_vec(), leave_one_out: counts }),
            Some(fault) => Err(Reason::CheckFailed(fault)),
        };
    }
    let arguments: Vec<String> = banned.into_iter().map(|argument| format!("`{argument}`")).collect();
    let what = if arguments.is_empty() { "the write".to_owned() } else { arguments.join(", ") };
    Err(Reason::CheckFailed(format!("no program found that gives {what} in every run")))
}

/// First fault of a program (2.8), in words; `None` if it has none.
fn fault(program: &Program, counts: Counts, episodes: &[Episode<'_>], training: &[Episode<'_>]) -> Option<String> {
    let of_run = |episode: &Episode<'_>| format!("run {}", episode.trace.run);
    if counts.disagreed > 0 {
        let wrong = counts.disagreed;
        let all = counts.agreed + counts.fell_back + wrong;
        return Some(format!("in the leave-one-out check, the program makes a different write: {wrong} of {all}"));
    }
    if let Some(wrong) = episodes.iter().find(|one| compare(program, one) == Kind::Disagreed) {
        let arguments: Vec<String> = blame(program, wrong).into_iter().map(|one| format!("`{one}`")).collect();
        let what = if arguments.is_empty() { "the write".to_owned() } else { arguments.join(", ") };
        return Some(format!("{what} would differ from {}", of_run(wrong)));
    }
    if let Some(open) = episodes.iter().find(|one| !is_refused(program, one)) {
        return Some(format!("it would write without asking: {}", of_run(open)));
    }
    if let Some(fixed) = training.iter().take(4).find(|one| !follows_changes(program, one)) {
        return Some(format!("its write does not change when its inputs change: {}", of_run(fixed)));
    }
    let is_useful = program.is_open() || episodes.iter().any(|one| compare_part(program, one) == Kind::Agreed);
    (!is_useful).then(|| "it makes the write of none of the runs".to_owned())
}

fn is_same(one: &Episode<'_>, other: &Episode<'_>) -> bool {
    std::ptr::eq(one.trace, other.trace)
        && one.writes.len() == other.writes.len()
        && one.writes.iter().zip(&other.writes).all(|(a, b)| std::ptr::eq(*a, *b))
}

/// Episodes of the first `MAX_TRAINING` requests, at most two of each.
fn sample<'t>(episodes: &[Episode<'t>]) -> Vec<Episode<'t>> {
    let mut per_request: BTreeMap<&str, usize> = BTreeMap::new();
    let mut training = Vec::new();
    for episode in episodes {
        let is_new = !per_request.contains_key(episode.digest.as_str());
        if is_new && per_request.len() >= MAX_TRAINING {
            continue;
        }
        let count = per_request.entry(&episode.digest).or_default();
        *count += 1;
        if *count <= 2 {
            training.push(episode.clone());
        }
    }
    training
}

/// Learns without each request and replays it (2.8 b). Returns the comparisons and the arguments that were wrong.
fn leave_one_out<'t>(
    training: &[Episode<'t>],
    synth: &dyn Fn(&[Episode<'t>]) -> Option<Program>,
) -> (Counts, BTreeSet<String>) {
    let digests: Vec<&str> =
        training.iter().map(|episode| episode.digest.as_str()).collect::<BTreeSet<_>>().into_iter().collect();
    let folds = digests.len().min(MAX_FOLDS);
    let mut counts = Counts::default();
    let mut blamed = BTreeSet::new();
    for fold in 0..folds {
        let is_out = |episode: &Episode<'_>| {
            let place = digests.iter().position(|digest| *digest == episode.digest);
            place.is_some_and(|place| place % folds == fold)
        };
        let (out, rest): (Vec<Episode<'t>>, Vec<Episode<'t>>) = training.iter().cloned().partition(is_out);
        let program = if rest.is_empty() { None } else { synth(&rest) };
        let mut of_request: BTreeMap<&str, Kind> = BTreeMap::new();
        for episode in &out {
            let kind = program.as_ref().map_or(Kind::FellBack, |program| compare(program, episode));
            if let (Kind::Disagreed, Some(program)) = (kind, &program) {
                blamed.extend(blame(program, episode));
            }
            let known = of_request.entry(&episode.digest).or_insert(kind);
            *known = worst(*known, kind);
        }
        of_request.into_values().for_each(|kind| counts.add(kind));
    }
    (counts, blamed)
}

fn worst(one: Kind, other: Kind) -> Kind {
    match (one, other) {
        (Kind::Disagreed, _) | (_, Kind::Disagreed) => Kind::Disagreed,
        (Kind::FellBack, _) | (_, Kind::FellBack) => Kind::FellBack,
        _ => Kind::Agreed,
    }
}

fn blame_of_all(program: &Program, episodes: &[Episode<'_>]) -> BTreeSet<String> {
    let wrong = episodes.iter().filter(|one| compare(program, one) == Kind::Disagreed);
    wrong.flat_map(|one| blame(program, one)).collect()
}

/// Arguments in which a wrong write differs from the run.
fn blame(program: &Program, episode: &Episode<'_>) -> BTreeSet<String> {
    let End::Wrote(writes) = replay(program, episode, "yes", &|_, _| None).end else { return BTreeSet::new() };
    let Some(tool) = episode.writes.first().map(|write| write.tool.as_str()) else { return BTreeSet::new() };
    let mut blamed = BTreeSet::new();
    let recorded: Vec<&Value> = episode.writes.iter().map(|write| &write.arguments).collect();
    for (n, wanted) in recorded.iter().enumerate() {
        for (path, value) in crate::episode::leaves(wanted) {
            if !writes.get(n).is_some_and(|got| is_at(got, &path, &value)) {
                blamed.insert(format!("{tool}{}", crate::value::pointer(&path)));
            }
        }
    }
    blamed
}

/// True if the program does not write when the question of 2.7 is answered `no` or `unsure` (2.8 d).
fn is_refused(program: &Program, episode: &Episode<'_>) -> bool {
    let refused = |answer: &str| !matches!(replay(program, episode, answer, &|_, _| None).end, End::Wrote(_));
    refused("no") && refused("unsure")
}

/// True if the write changes or is omitted when a field that it depends on is removed or changed (2.8 c).
fn follows_changes(program: &Program, episode: &Episode<'_>) -> bool {
    let End::Wrote(writes) = replay(program, episode, "yes", &|_, _| None).end else { return true };
    let Some(step) = program.write() else { return true };
    let StepKind::Call { args, .. } = &step.kind else { return true };
    let direct: Vec<&Ref> = args.refs().into_iter().filter(|of| !of.path.is_empty()).collect();
    direct.into_iter().all(|of| {
        let Some(tool) = tool_of(program, of) else { return true };
        let changed = |how: &dyn Fn(&Value, &Path) -> Option<Value>| {
            let change = |called: &str, result: &Value| if called == tool { how(result, &of.path) } else { None };
            replay(program, episode, "yes", &change).end
        };
        let is_member = |result: &Value| without(result, &of.path).is_some();
        let recorded = episode.reads.iter().filter(|call| call.tool == tool);
        recorded.into_iter().all(|call| !is_member(&call.result))
            || changed(&|result, path| without(result, path)) != End::Wrote(writes.clone())
                && changed(&|result, path| with(result, path)) != End::Wrote(writes.clone())
    })
}

/// The tool whose single result a reference reads directly.
fn tool_of<'p>(program: &'p Program, of: &Ref) -> Option<&'p str> {
    let Source::Step(name) = &of.source else { return None };
    let step = program.steps.iter().find(|step| step.name == *name)?;
    match &step.kind {
        StepKind::Call { tool, for_each: None, is_write: false, .. } => Some(tool),
        _ => None,
    }
}

fn without(value: &Value, path: &[String]) -> Option<Value> {
    let (last, above) = path.split_last()?;
    let mut changed = value.clone();
    let inner = above.iter().try_fold(&mut changed, |value, name| value.get_mut(name.as_str()))?;
    inner.as_object_mut()?.remove(last)?;
    Some(changed)
}

fn with(value: &Value, path: &[String]) -> Option<Value> {
    let mut changed = value.clone();
    let inner = path.iter().try_fold(&mut changed, |value, name| value.get_mut(name.as_str()))?;
    *inner = Value::from("changed");
    Some(changed)
}

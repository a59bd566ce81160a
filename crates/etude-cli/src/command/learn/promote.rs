//! `etude learn promote`: moves a learned pipeline to a higher state, if its conditions hold (L-58 to L-62).

use std::collections::BTreeSet;

use etude_core::plan::StepKind;
use etude_evidence::needs::{self, Facts, Need};
use etude_evidence::{Accepted, Standing};
use etude_spec::discover::PIPELINES;
use etude_spec::learned::{Counts, LearnedState, Located};
use serde_json::Value;

use super::status::shown_need;
use super::{Learnt, files, moved, routing};
use crate::args::{self, PromotedState};
use crate::command::run::{load, load_candidate};
use crate::command::{test, user_name};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::stdout;
use etude::Disk;

pub(super) fn promote(context: &Context, args: &args::LearnPromote) -> Result<Exit, Refused> {
    let (to, accepts_risk) = (args.to.map(state_of), args.accept_risk);
    let wanted = Wanted { name: &args.name, to, accepts_risk, by: user_name() };
    let learnt = Learnt::open(context)?;
    let promotion = decide(context, &learnt, &wanted)?;
    if let Some(problem) = &promotion.refused {
        context.say_problem(problem);
    }
    if context.is_json() {
        stdout::json(&promotion.document);
    } else if promotion.refused.is_none() && !context.global.quiet {
        let paths = promotion.document["paths"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let to = promotion.document["to"].as_str().unwrap_or_default();
        crate::render::say!("`{}` is `{to}`: {}", args.name, paths.collect::<Vec<_>>().join(", "));
    }
    // If the process is killed before its result was printed, the repeated command prints that result.
    end(&learnt, &promotion)?;
    Ok(if promotion.refused.is_none() { Exit::Done } else { Exit::Usage })
}

/// Promotion that a person requests.
pub(super) struct Wanted<'w> {
    pub(super) name: &'w str,
    /// Wanted state; `None` means one state up.
    pub(super) to: Option<LearnedState>,
    /// Accepts too few comparisons, and writes beyond `learn.writes`.
    pub(super) accepts_risk: bool,
    /// Name of the person who accepts the risk.
    pub(super) by: String,
}

/// Result of a promotion.
pub(crate) struct Promotion {
    /// Document of `etude learn promote`.
    pub(crate) document: Value,
    /// Reason of a refusal; nothing was changed then.
    pub(crate) refused: Option<Problem>,
    /// The promoted content, until [`end`].
    pub(super) content: Option<String>,
}

/// Promotes a learned pipeline if the conditions hold. Until [`end`], a repetition only returns the same result.
pub(super) fn decide(context: &Context, learnt: &Learnt, wanted: &Wanted<'_>) -> Result<Promotion, Refused> {
    let name = wanted.name;
    let standing = learnt.find(name)?;
    let Some(from) = standing.state else { return Err(standing.located.diagnostics.into()) };
    if let Some(promotion) = finished(learnt, &standing, wanted.to)? {
        return Ok(promotion);
    }
    let to = wanted.to.or_else(|| from.above());
    let to = to.ok_or_else(|| Problem::usage(format!("`{name}` is `active`: there is no higher state")))?;
    let way = needs::way(from, to);
    if way.is_empty() {
        let message = format!("`{name}` is `{}`, so `{}` is not a higher state", from.word(), to.word());
        return Err(Problem::usage(message).hint(format!("take it out of use: etude learn demote {name}")).into());
    }
    let (facts, conflicts) = facts(context, learnt, &standing, &way)?;
    let missing = needs::missing(&standing, &way, &learnt.learning, facts);
    let documents: Vec<Value> = missing.iter().map(Need::to_json).collect();
    let blocking: Vec<&Need> = missing.iter().filter(|need| !(wanted.accepts_risk && need.is_risk())).collect();
    if !blocking.is_empty() {
        let document = moved(name, (from.word(), from.word()), &[], &documents, &conflicts);
        return Ok(Promotion { document, refused: Some(refusal(name, &blocking)), content: None });
    }
    refuse_changed(learnt, &standing)?;
    let accepted_by = missing.iter().any(Need::is_risk).then(|| wanted.by.clone());
    let paths = apply(learnt, &standing, (from, to), accepted_by)?;
    let document = moved(name, (from.word(), to.word()), &paths, &documents, &conflicts);
    Ok(Promotion { document, refused: None, content: Some(standing.content) })
}

/// Completes a promotion whose process was killed after it had written the state and before it had reported the result. The
/// repeated command has reached its state, and moves the pipeline no further. `None` if there is no such promotion, or another state is wanted.
fn finished(learnt: &Learnt, standing: &Standing, to: Option<LearnedState>) -> Result<Option<Promotion>, Refused> {
    let Learnt { disk, engine, .. } = learnt;
    let begun = etude_evidence::begun_promotion(&**engine, disk.root(), &standing.content);
    let is_this = |(_, reached): &(LearnedState, LearnedState)| {
        Some(*reached) == standing.state && to.is_none_or(|to| to == *reached)
    };
    let Some((from, reached)) = begun.map_err(|error| of_engine(&error))?.filter(is_this) else { return Ok(None) };
    let located = &standing.located;
    let mut paths = if located.is_candidate() { Vec::new() } else { files::to_pipelines(disk, located)? };
    note(learnt, standing, &located.dir())?;
    paths.push(format!("{}/{}", located.dir(), etude_spec::learned::FILE));
    let document = moved(&located.name, (from.word(), reached.word()), &paths, &[], &[]);
    Ok(Some(Promotion { document, refused: None, content: Some(standing.content.clone()) }))
}

/// Ends a promotion whose result was reported: the next one is another promotion.
pub(super) fn end(learnt: &Learnt, promotion: &Promotion) -> Result<(), Problem> {
    let Learnt { disk, engine, .. } = learnt;
    let Some(content) = &promotion.content else { return Ok(()) };
    let now = etude_runtime::clock::now_ms();
    block_on(etude_evidence::end_promotion(&**engine, disk.root(), content, now))?.map_err(|error| of_engine(&error))
}

/// Notes the effects of a promotion, with the pipeline in the directory `dir`.
fn note(learnt: &Learnt, standing: &Standing, dir: &str) -> Result<(), Problem> {
    let now = etude_runtime::clock::now_ms();
    block_on(etude_evidence::promoted(&*learnt.engine, &learnt.disk, standing, dir, now))?
        .map_err(|error| of_engine(&error))
}

/// Refuses a promotion if the pipeline has changed since its conditions were checked: another process may have demoted it, and
/// edited files were not tested.
fn refuse_changed(learnt: &Learnt, checked: &Standing) -> Result<(), Problem> {
    let name = &checked.located.name;
    let now = learnt.find(name)?;
    let is_same = now.located.base == checked.located.base
        && (now.state, &now.demoted, &now.content) == (checked.state, &checked.demoted, &checked.content);
    if is_same {
        return Ok(());
    }
    let message = format!("`{name}` was changed or demoted while its conditions were checked; it is not promoted");
    Err(Problem::usage(message).hint("see its state: etude learn status"))
}

const fn state_of(word: PromotedState) -> LearnedState {
    match word {
        PromotedState::Proposed => LearnedState::Proposed,
        PromotedState::Shadow => LearnedState::Shadow,
        PromotedState::Assisted => LearnedState::Assisted,
        PromotedState::Active => LearnedState::Active,
    }
}

/// Gathers the facts that the conditions of the promotion need, and its routing conflicts.
fn facts(
    context: &Context,
    learnt: &Learnt,
    standing: &Standing,
    way: &[LearnedState],
) -> Result<(Facts, Vec<Value>), Refused> {
    let Learnt { disk, engine, .. } = learnt;
    let located = &standing.located;
    let is_up = way.iter().any(|state| *state != LearnedState::Proposed);
    let mut facts = Facts::default();
    if is_up {
        // An invalid definition is reported as such (exit 3).
        loaded(context, disk, located)?;
        let tested = test::of_learned(context, disk, std::slice::from_ref(located), true)?;
        facts.tests = Some((tested.iter().filter(|tested| tested.faults.is_empty()).count(), tested.len()));
        facts.writes = writes(context, disk, located);
    }
    if standing.demoted.is_some() || standing.state == Some(LearnedState::Demoted) {
        let (tools, _) = etude_spec::tool::load(disk);
        let found = needs::has_new_evidence(&**engine, disk, standing, &tools);
        facts.has_new_evidence = found.map_err(|error| of_engine(&error))?;
    }
    let mut conflicts = Vec::new();
    if way.contains(&LearnedState::Assisted) {
        let mode = crate::command::route::deciding(context, disk)?;
        conflicts = routing::conflicts(learnt, mode, standing)?;
        facts.conflicts = conflicts.len();
    }
    Ok((facts, conflicts))
}

pub(super) fn loaded(
    context: &Context,
    disk: &Disk,
    located: &Located,
) -> Result<etude::definition::Definition, Refused> {
    match located.is_candidate() {
        true => load_candidate(context, disk, &located.name),
        false => load(context, disk, &located.name),
    }
}

/// True if a learned pipeline has steps whose calls may write. An invalid one counts as writing.
pub(super) fn writes(context: &Context, disk: &Disk, located: &Located) -> bool {
    let Ok(definition) = loaded(context, disk, located) else { return true };
    let kinds = definition.plan.steps().map(|step| &step.kind);
    kinds.into_iter().any(|kind| match kind {
        StepKind::Tool(tool) => tool.writes,
        StepKind::Skill(_) | StepKind::Machine(_) | StepKind::Application(_) => true,
        _ => false,
    })
}

/// Problem of a refused promotion.
fn refusal(name: &str, blocking: &[&Need]) -> Problem {
    let words: BTreeSet<&str> = blocking.iter().map(|need| need.need).collect();
    let shown: Vec<String> = blocking.iter().map(|need| shown_need(&need.to_json())).collect();
    let mut problem = Problem::usage(format!("`{name}` is not promoted: {}", shown.join(", ")));
    if blocking.iter().all(|need| need.is_risk()) {
        problem = problem.hint("wait for more comparisons, or accept the risk: --accept-risk");
    }
    if words.contains("unchanged_files") || words.contains("tests") {
        problem = problem.hint(format!("test its files: etude learn test {name}"));
    }
    if words.contains("new_evidence") {
        problem = problem.hint(format!(
            "since its demotion no run did its task; run one: etude run --skill REQUEST; then: etude learn promote {name}"
        ));
    }
    if words.contains("routing") {
        problem = problem.hint("change its `triggers` or `description`; `--format json` lists the requests");
    }
    problem
}

/// Moves files and writes the state last: until then nothing is routed to the pipeline.
fn apply(
    learnt: &Learnt,
    standing: &Standing,
    (from, to): (LearnedState, LearnedState),
    accepted_by: Option<String>,
) -> Result<Vec<String>, Problem> {
    let Learnt { disk, engine, .. } = learnt;
    let now = etude_runtime::clock::now_ms();
    let mut located = standing.located.clone();
    let mut paths = Vec::new();
    if to.is_routed() {
        paths = files::to_pipelines(disk, &located)?;
        located.base = PIPELINES;
    } else if from == LearnedState::Demoted {
        paths = files::to_learned(disk, &located)?;
        located.base = etude_spec::discover::LEARNED;
    }
    let accepts = accepted_by.is_some();
    if let Some(by) = accepted_by {
        let accepted = Accepted { by, at_ms: now };
        block_on(etude_evidence::accept(&**engine, &standing.content, &accepted))?
            .map_err(|error| of_engine(&error))?;
    }
    let change = |text: &str| {
        let text = if standing.edited { adopted(text, standing) } else { text.to_owned() };
        let text = if accepts { etude_spec::learned::with_accepted_risk(&text) } else { text };
        etude_spec::learned::with_state(&text, to)
    };
    block_on(etude_evidence::begin_promotion(&**engine, disk.root(), &standing.content, (from, to), now))?
        .map_err(|error| of_engine(&error))?;
    let path = files::edit(disk, &located, change)?;
    note(learnt, standing, &located.dir())?;
    paths.push(path);
    Ok(paths)
}

/// The learn.yaml of an edited pipeline with its current content. The comparisons of the learning were made with another
/// content, so they do not count (L-65).
fn adopted(text: &str, standing: &Standing) -> String {
    let text = etude_spec::learned::with_content(text, &standing.content);
    let learned = standing.learned();
    let (requests, runs) = learned.map_or((0, 0), |learned| (learned.requests, learned.runs));
    etude_spec::learned::with_evidence(&text, requests, runs, Counts::default())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use etude_process::blob::FileBlobs;
    use etude_runtime::memory::MemoryEngine;
    use etude_spec::config::learn::Learning;

    use super::*;

    /// 1.8: a promotion whose process was killed after it had written the state, or before it had printed the result, is completed
    /// by the repeated command, which moves the pipeline no further. The command after that moves it one state up.
    #[test]
    fn a_repeated_promotion_goes_no_further() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        put("SKILL.md", "---\nname: s\ndescription: d\n---\nBe brief.\n");
        put("learned/p/pipeline.yaml", "name: p\ndescription: d\nsteps: [{name: a, type: code, command: \"true\"}]\n");
        let state = |state: &str| put("learned/p/learn.yaml", &format!("learn: 1\nstate: {state}\nfamily: cancel\n"));
        state("proposed");
        let blobs = Arc::new(FileBlobs::new(dir.path().join("blobs"), false));
        let learnt = Learnt {
            disk: Disk::open(dir.path()).expect("opened"),
            engine: Arc::new(MemoryEngine::new(blobs)),
            learning: Learning::default(),
        };
        let find = || learnt.find("p").expect("it is there");
        let completed = |to| finished(&learnt, &find(), to).expect("read");
        let finish = |to| completed(to).map(|promotion| promotion.document);
        let content = find().content;
        let states = (LearnedState::Proposed, LearnedState::Shadow);
        let begun = etude_evidence::begin_promotion(&*learnt.engine, learnt.disk.root(), &content, states, 1);
        block_on(begun).expect("a runtime").expect("kept");
        assert_eq!(finish(None), None, "the state was not written: the promotion is repeated");
        state("shadow");
        assert_eq!(finish(Some(LearnedState::Active)), None);
        let document = finish(None).expect("it is completed");
        assert_eq!((&document["from"], &document["to"]), (&"proposed".into(), &"shadow".into()));
        assert_eq!(find().state, Some(LearnedState::Shadow));
        let again = completed(None).expect("its result was not printed");
        assert_eq!(again.document, document);
        end(&learnt, &again).expect("ended");
        assert_eq!(finish(None), None, "another promotion is a new one");
        let path = apply(&learnt, &find(), (LearnedState::Shadow, LearnedState::Assisted), None).expect("promoted");
        assert_eq!(
            (path.first().map(String::as_str), find().state),
            (Some("pipelines/p"), Some(LearnedState::Assisted))
        );
        let unprinted = completed(None).expect("its result was not printed");
        assert_eq!((&unprinted.document["from"], &unprinted.document["to"]), (&"shadow".into(), &"assisted".into()));
        end(&learnt, &unprinted).expect("ended");
        assert_eq!(finish(None), None);
    }
}

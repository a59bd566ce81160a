//! `etude learn forget`: deletes a candidate, or all data kept from a run (L-40).

mod others;

use etude::Disk;
use etude_core::verbatim::request_digest;
use etude_evidence::{Standing, trace};
use etude_learn::Wording;
use etude_spec::discover::PIPELINE_FILE;
use etude_spec::learned::{Counts, Learned, Located, TESTS};
use serde_json::{Value, json};

use self::others::Others;
use super::{Learnt, candidates, files, show};
use crate::args;
use crate::command::runs::find::find;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::stdout;

pub(super) fn forget(context: &Context, args: &args::LearnForget) -> Result<Exit, Problem> {
    let learnt = Learnt::open(context)?;
    let (run, name) = (args.run.as_deref(), args.name.as_deref());
    let Forgotten { run, cases, pipelines, reworded, words } = match (run, name) {
        (Some(run), _) => of_run(context, &learnt, run)?,
        (None, Some(name)) => Forgotten { cases: candidate(&learnt, name)?, ..Forgotten::default() },
        (None, None) => return Err(Problem::usage("name a candidate, or a run with `--run ID`")),
    };
    if context.is_json() {
        let forgotten = json!({"run": run, "name": name});
        stdout::json(&json!({
            "forgotten": forgotten, "cases": cases, "pipelines": pipelines, "reworded": reworded, "words": words,
        }));
    } else if !context.global.quiet {
        match (run, name) {
            (Some(run), _) => {
                crate::render::say!("run {run} is forgotten; {} cases were removed", cases.len());
                reworded
                    .iter()
                    .for_each(|path| crate::render::say!("note: `{path}` was rewritten without the words of the run"));
                for path in &words {
                    crate::render::say!(
                        "note: `{path}` was edited or promoted and may contain words of the run: change `description` and `triggers`"
                    );
                }
            }
            (None, name) => crate::render::say!("`{}` is forgotten", name.unwrap_or_default()),
        }
    }
    Ok(Exit::Done)
}

/// Result of forgetting.
#[derive(Default)]
struct Forgotten {
    /// Id of the forgotten run.
    run: Option<String>,
    /// Paths of the deleted cases.
    cases: Vec<String>,
    /// Pipelines that have lost runs, as documents.
    pipelines: Vec<Value>,
    /// Paths of definitions rewritten without words of the run.
    reworded: Vec<String>,
    /// Paths of definitions that a person has changed or promoted, and that may have such words.
    words: Vec<String>,
}

/// Deletes a candidate, or a demoted pipeline with its cases. Returns the paths of the cases.
fn candidate(learnt: &Learnt, name: &str) -> Result<Vec<String>, Problem> {
    let standing = learnt.find(name)?;
    if standing.is_routed() {
        return Err(Problem::usage(format!("`{name}` is in use, so it is not a candidate"))
            .hint(format!("take it out of use first: etude learn demote {name}")));
    }
    let cases = cases_in(&learnt.disk, &standing.located);
    if !standing.located.is_candidate() {
        for case in &cases {
            files::remove(&learnt.disk, case)?;
        }
    }
    files::remove(&learnt.disk, &standing.located.dir())?;
    Ok(cases)
}

/// Paths of the cases of a learned pipeline.
fn cases_in(disk: &Disk, located: &Located) -> Vec<String> {
    match located.is_candidate() {
        true => {
            let dir = format!("{}/{TESTS}", located.dir());
            files::digests(disk, &dir).iter().map(|digest| format!("{dir}/{digest}.yaml")).collect()
        }
        false => files::cases_of(disk, &located.name),
    }
}

/// Leave-one-out counts of the learning, without those of one request.
fn without(learned: &Learned, digest: &str, lost: u64) -> Counts {
    let Counts { agreed, fell_back, disagreed } = learned.leave_one_out;
    let is_covered = learned.document["covers"].as_array().is_some_and(|all| all.iter().any(|one| one == digest));
    match is_covered {
        true => Counts { agreed: agreed.saturating_sub(lost), fell_back, disagreed },
        false => Counts { agreed, fell_back: fell_back.saturating_sub(lost), disagreed },
    }
}

/// A run to forget.
struct Gone {
    request: String,
    digest: String,
    others: Others,
}

/// Deletes everything that was derived from a run, and records that the run is forgotten.
fn of_run(context: &Context, learnt: &Learnt, run: &str) -> Result<Forgotten, Problem> {
    let Learnt { disk, engine, .. } = learnt;
    let view = find(context, &**engine, run)?;
    let id = view.row.id.clone();
    let request = trace::asked(&view, &*engine.blobs()).request;
    let digest = request_digest([request.as_str()]);
    let others = Others::of(&**engine, disk, &id, &digest)?;
    let gone = Gone { request, digest, others };
    // Comparisons refer to the files as they are now, so they are forgotten first.
    block_on(etude_evidence::forget(&**engine, disk, &id))?.map_err(|error| of_engine(&error))?;
    let mut forgotten = Forgotten { run: Some(id), ..Forgotten::default() };
    for standing in learnt.standings()? {
        gone.leave(disk, &standing, &mut forgotten)?;
    }
    Ok(forgotten)
}

impl Gone {
    /// Removes the run from a learned pipeline: its case, its request in the evidence, and its words.
    fn leave(&self, disk: &Disk, standing: &Standing, forgotten: &mut Forgotten) -> Result<(), Problem> {
        let located = &standing.located;
        let all = cases_in(disk, located);
        let is_own = |path: &&String| path.ends_with(&format!("{}.yaml", self.digest));
        let (own, rest): (Vec<&String>, Vec<&String>) = all.iter().partition(is_own);
        if let Some(path) = own.first() {
            if !self.others.has_made(&show::json_of(disk, path)) {
                files::remove(disk, path)?;
                forgotten.cases.push((*path).clone());
            }
            let pipeline = self.uncount(disk, standing, all.len() as u64)?;
            forgotten.pipelines.push(pipeline);
        }
        // A pending change to an edited candidate is dropped; the next learning derives it from the remaining runs.
        candidates::forget_pending(&candidates::pending(disk, &located.name)?);
        if !self.others.has_request() {
            let mut others = self.others.requests.clone();
            others.extend(
                rest.iter().filter_map(|path| show::json_of(disk, path)["request"].as_str().map(str::to_owned)),
            );
            self.reword(disk, standing, &others, forgotten)?;
        }
        Ok(())
    }

    /// Evidence without the run, and without its request if no other run has it. Returns the row of the document.
    fn uncount(&self, disk: &Disk, standing: &Standing, cases: u64) -> Result<Value, Problem> {
        let (located, learned) = (&standing.located, standing.learned());
        let lost = u64::from(!self.others.has_request());
        let before = learned.map_or(0, |learned| learned.requests).max(cases);
        let after = before.saturating_sub(lost);
        // Each remaining request has at least one run.
        let runs = learned.map_or(0, |learned| learned.runs).saturating_sub(1).max(after);
        let checks = learned.map(|learned| without(learned, &self.digest, lost)).unwrap_or_default();
        files::edit(disk, located, |text| {
            let text = etude_spec::learned::with_evidence(text, after, runs, checks);
            Some(if lost > 0 { etude_spec::learned::without_request(&text, &self.digest) } else { text })
        })?;
        Ok(json!({"name": located.name, "requests_before": before, "requests_after": after}))
    }

    /// Removes the words of the request from an unedited candidate. An edited or promoted definition stays and is listed.
    fn reword(
        &self,
        disk: &Disk,
        standing: &Standing,
        others: &[String],
        forgotten: &mut Forgotten,
    ) -> Result<(), Problem> {
        let located = &standing.located;
        let Some(learned) = standing.learned().filter(|learned| learned.content.is_some()) else { return Ok(()) };
        let (family, is_learned) = (learned.family.as_str(), !standing.edited);
        let mut definition = show::definition(disk, located);
        let Some(Wording { description, triggers }) = Wording::of(&definition).without(&self.request, others, family)
        else {
            return Ok(());
        };
        let path = format!("{}/{PIPELINE_FILE}", located.dir());
        let Some(members) = definition.as_object_mut().filter(|_| is_learned && located.is_candidate()) else {
            forgotten.words.push(path);
            return Ok(());
        };
        members.insert("description".to_owned(), description.into());
        match triggers.is_empty() {
            true => drop(members.shift_remove("triggers")),
            false => drop(members.insert("triggers".to_owned(), triggers.into())),
        }
        files::replace(disk, &path, &etude_learn::files::yaml::document(&definition))?;
        let content = etude_spec::learned::content_of(disk, &located.dir());
        files::edit(disk, located, |text| Some(etude_spec::learned::with_content(text, &content)))?;
        forgotten.reworded.push(path);
        Ok(())
    }
}

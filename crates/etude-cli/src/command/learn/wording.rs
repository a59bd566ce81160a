//! `etude learn --model TIER`: a model words descriptions and triggers (L-29), and nothing else.

use etude::Disk;
use etude_core::model::Tier;
use etude_learn::{Candidate, Learned, Wording};
use etude_request::{Words, reworded};
use etude_spec::discover::LEARNED;
use etude_spec::learned;

use super::{candidates, show};
use crate::command::route::interruptible;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::settings::{self, Need};

/// Rewords all candidates that a model has not worded yet. An otherwise unchanged candidate keeps its words, so that learning
/// again changes nothing.
pub(super) fn reword(context: &Context, disk: &Disk, learned: &mut Learned, tier: Tier) -> Result<(), Refused> {
    let resolved = settings::ready(&context.global, context.settings(disk.root())?, &[tier], Need::Look)?;
    settings::answerable(&resolved, &[tier])?;
    if !resolved.has_model(tier) {
        let message = format!("no model of the tier `{tier}` is available to write descriptions");
        return Err(Problem::environment(message).hint(settings::REMEDIES).into());
    }
    let models = settings::models(resolved);
    for candidate in &mut learned.candidates {
        if let Some(wording) = kept(disk, candidate) {
            candidate.reword(&wording);
            continue;
        }
        let Wording { description, triggers } = candidate.wording();
        let words = Words { description, triggers };
        let asked = interruptible(async { Ok(reworded(&models, tier, &words).await.0) })?;
        match asked {
            Ok(Ok(Words { description, triggers })) => candidate.reword(&Wording { description, triggers }),
            Ok(Err(why)) => note(context, &candidate.name, &why),
            // No model can respond: a key is missing or refused, or the provider cannot be reached.
            Err(failure) => {
                let problem = Problem::of(Exit::Environment, failure);
                let problem = problem.hint("learn without a model: etude learn").hint(settings::REMEDIES);
                return Err(problem.into());
            }
        }
    }
    Ok(())
}

fn note(context: &Context, name: &str, why: &str) {
    if !context.global.quiet {
        let why = crate::render::text::harmless(why);
        crate::render::say!("note: `{name}` keeps the wording of its requests: {why}");
    }
}

/// Words of the existing candidate, if it is unedited and otherwise equal.
fn kept(disk: &Disk, candidate: &Candidate) -> Option<Wording> {
    let located = learned::find(disk, LEARNED, &candidate.name)?;
    let files = candidates::files(disk, &located.dir());
    let text = files.get("pipeline.yaml")?;
    let other = Candidate { definition: show::definition(disk, &located), ..candidate.clone() };
    let wording = other.wording();
    let known = located.learned?.content?;
    (known == learned::content_of(disk, &format!("{LEARNED}/{}", candidate.name))).then_some(())?;
    let mut same = candidate.clone();
    same.reword(&wording);
    let is_worded = wording != candidate.wording();
    (is_worded && same.files.get("pipeline.yaml") == Some(text)).then_some(wording)
}

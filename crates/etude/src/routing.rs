//! From a request in words to a pipeline and its input.

mod ask;
mod extract;
mod measure;
mod prompt;

use std::sync::Arc;

use etude_core::failure::{Failure, Kind, Phase};
use etude_core::model::Usage;
use etude_route::{Decision, Route, Router, Verdict};
use etude_runtime::host::ModelPort;
use etude_spec::App;
use etude_spec::source::Sources;

pub use extract::{Extracted, extract};
pub use measure::{Labelled, Measured, measure, parse_labelled};

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The embedded router where it is sure, the `lite` tier where it is not.
    #[default]
    Auto,
    /// The `lite` tier.
    Llm,
    /// The embedded router.
    Embedded,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Llm, Self::Embedded];

    /// The word in configuration and flags.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Llm => "llm",
            Self::Embedded => "embedded",
        }
    }

    /// The mode that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

/// The routing table: every valid business pipeline.
#[derive(Debug)]
pub struct Table {
    routes: Vec<Route>,
    router: Router,
    broken: usize,
}

/// Where a request goes, and why.
#[derive(Debug, Clone)]
pub struct Routed {
    /// The pipeline; `None` if none fits.
    pub pipeline: Option<String>,
    /// Who decided: `embedded` or `llm`.
    pub decided_by: Mode,
    /// What the embedded router thinks.
    pub embedded: Decision,
    /// What is to be said about the decision.
    pub notes: Vec<String>,
    /// What model calls have cost.
    pub usage: Usage,
}

impl Table {
    /// The table of an app: every pipeline whose definition holds.
    pub fn of_app(sources: &dyn Sources) -> Self {
        let (summaries, _) = App::new(sources).summaries();
        let broken = summaries.iter().filter(|summary| !summary.valid).count();
        let routes = summaries
            .into_iter()
            .filter(|summary| summary.valid)
            .map(|summary| Route { name: summary.name, description: summary.description, triggers: summary.triggers })
            .collect();
        Self { broken, ..Self::new(routes) }
    }

    /// A table of these routes.
    pub fn new(routes: Vec<Route>) -> Self {
        let router = Router::new(&routes);
        Self { routes, router, broken: 0 }
    }

    /// How many pipelines of the app are not in the table, because their definitions do not hold.
    pub fn broken(&self) -> usize {
        self.broken
    }

    /// The pipelines in the table.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.routes.iter().map(|route| route.name.as_str())
    }

    /// Decides where `request` goes. Without `models`, `auto` stays embedded.
    ///
    /// # Errors
    /// A model was needed and could not be asked.
    pub async fn route(
        &self,
        request: &str,
        mode: Mode,
        models: Option<&Arc<dyn ModelPort>>,
    ) -> Result<Routed, Failure> {
        let embedded = self.router.decide(request);
        let asks = match mode {
            Mode::Llm => true,
            Mode::Embedded => false,
            Mode::Auto => embedded.verdict == Verdict::Doubtful,
        };
        let mut routed = Routed {
            pipeline: embedded.best.clone(),
            decided_by: Mode::Embedded,
            embedded,
            notes: Vec::new(),
            usage: Usage::default(),
        };
        match (asks && !self.routes.is_empty(), models) {
            (true, Some(models)) => self.ask_model(request, &mut routed, models).await?,
            (true, None) if mode == Mode::Llm => {
                let message = "routing by model was asked for, and no model is configured";
                return Err(in_routing(Failure::new(Kind::Environment, message)));
            }
            (true, None) => routed.notes.push("the request is doubtful, and no model is configured to decide".into()),
            (false, _) => {}
        }
        Ok(routed)
    }

    async fn ask_model(&self, request: &str, routed: &mut Routed, models: &Arc<dyn ModelPort>) -> Result<(), Failure> {
        let (routes, left_out) = prompt::offered(&self.routes, &routed.embedded);
        if left_out > 0 {
            routed
                .notes
                .push(format!("{left_out} pipelines that are far from the request were not offered to the model"));
        }
        let answer = ask::ask(models, prompt::for_routing(request, &routes)).await;
        routed.usage.add(&answer.usage);
        routed.decided_by = Mode::Llm;
        routed.pipeline = match answer.value {
            Ok(value) => prompt::chosen(&value).filter(|name| routes.iter().any(|route| route.name == *name)),
            // A model that insists on names that are not in the table has found no pipeline.
            Err(failure) if failure.kind == Kind::ValidationExhausted => {
                routed.notes.push(failure.message);
                None
            }
            Err(failure) => return Err(in_routing(failure)),
        };
        Ok(())
    }
}

/// A failure that happened while a request was routed.
pub(crate) fn in_routing(mut failure: Failure) -> Failure {
    failure.phase = Some(Phase::Routing);
    failure.step = None;
    failure.origin = None;
    failure
}

#[cfg(test)]
mod tests;

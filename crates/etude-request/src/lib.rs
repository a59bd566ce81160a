//! From a request in words to a pipeline and its input: the router of `etude-route` over the pipelines of an app, and a
//! model where the router is not sure.

mod ask;
mod cache;
mod extract;
mod meaning;
mod measure;
mod parameters;
mod prompt;
mod source;
mod wording;

use std::path::Path;
use std::sync::Arc;

use etude_core::failure::{Failure, FailureKind, Phase};
use etude_core::model::Usage;
use etude_route::{Decision, Route, Router, Verdict};
use etude_runtime::host::ModelPort;
use etude_spec::source::Sources;
use etude_spec::stage_machine::{Machines, Rules};
use etude_spec::{App, Summary};
use meaning::Meaning;

pub use ask::Call;
pub use extract::{Extracted, Stated, Unclear, typed};
pub use meaning::Sentences;
pub use measure::{Labelled, Measured, measure, parse_labelled};
pub use source::{From, Source, Trail, sources, sources_json};
pub use wording::{Words, reworded};

etude_core::words! {
    /// Who decides.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Mode {
        /// The embedded router where it is sure, the `lite` tier where it is not.
        #[default]
        Auto = "auto",
        /// The `lite` tier.
        Llm = "llm",
        /// The embedded router.
        Embedded = "embedded",
    }
}

/// From this score on a model is asked, also about what the embedded router rejects. On the validation part of CLINC150,
/// one request in ten lies between here and the router's own threshold; the right pipeline is among its candidates for
/// nine of ten of those that have one (`docs/design/routing.md`).
const WORTH_ASKING: f64 = 0.1;

/// The routing table: every valid business pipeline, and every machine that says what it is for.
#[derive(Debug)]
pub struct Table {
    routes: Vec<Route>,
    router: Router,
    meaning: Option<Meaning>,
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
    /// What to say about the decision.
    pub notes: Vec<String>,
    /// What model calls have cost.
    pub usage: Usage,
    /// The model calls.
    pub calls: Vec<Call>,
}

impl Table {
    /// The table of an app: every pipeline whose definition holds. A large one is built once and then taken from the
    /// directory `cache`, if there is one.
    ///
    /// Machines with a description or example requests are routes as well; a pipeline of the same name goes before. Pipelines
    /// in `left_out` are none.
    pub fn of_app(sources: &dyn Sources, rules: Rules, cache: Option<&Path>, left_out: &[String]) -> Self {
        let (mut summaries, _) = App::new(sources).summaries();
        summaries.retain(|summary| !left_out.contains(&summary.name));
        let mut broken = summaries.iter().filter(|summary| !summary.valid).count();
        let mut routes: Vec<Route> = summaries
            .into_iter()
            .filter(|summary| summary.valid)
            .map(|summary| Route { name: summary.name, description: summary.description, triggers: summary.triggers })
            .collect();
        for machine in Machines::new(sources, rules).summaries() {
            let is_reported = !machine.description.trim().is_empty() || !machine.triggers.is_empty();
            if !machine.valid {
                broken += 1;
            } else if is_reported && routes.iter().all(|route| route.name != machine.name) {
                let (name, description, triggers) = (machine.name, machine.description, machine.triggers);
                routes.push(Route { name, description, triggers });
            }
        }
        let router = cache::router(cache, &routes, None, || Router::new(&routes));
        Self { routes, router, meaning: None, broken }
    }

    /// A table of pipelines that need not be those of an app.
    pub fn of_summaries(summaries: impl IntoIterator<Item = Summary>) -> Self {
        let route = |summary: Summary| Route {
            name: summary.name,
            description: summary.description,
            triggers: summary.triggers,
        };
        Self::new(summaries.into_iter().filter(|summary| summary.valid).map(route).collect())
    }

    /// A table of these routes.
    pub fn new(routes: Vec<Route>) -> Self {
        let router = Router::new(&routes);
        Self { routes, router, meaning: None, broken: 0 }
    }

    /// The table with a second look by meaning, wherever words alone are not sure. Nothing of it is loaded before.
    pub fn with_meaning(self, sentences: Arc<dyn Sentences>, cache: Option<&Path>) -> Self {
        Self { meaning: Some(Meaning::new(sentences, cache)), ..self }
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
        let routed = self.decide(request);
        match self.asks_model(&routed, mode) {
            true => self.settle(request, routed, mode, models).await,
            false => Ok(routed),
        }
    }

    /// What the embedded router thinks of `request`, which is the decision unless [`Table::asks_model`] says otherwise.
    pub fn decide(&self, request: &str) -> Routed {
        let by_words = self.router.decide(request);
        let by_meaning = self.meaning.as_ref().filter(|_| by_words.verdict != Verdict::Sure);
        let embedded = by_meaning.and_then(|meaning| meaning.decide(&self.routes, request)).unwrap_or(by_words);
        Routed {
            pipeline: embedded.best.clone(),
            decided_by: Mode::Embedded,
            embedded,
            notes: Vec::new(),
            usage: Usage::default(),
            calls: Vec::new(),
        }
    }

    /// Whether a model must be called after the embedded router has decided.
    pub fn asks_model(&self, routed: &Routed, mode: Mode) -> bool {
        let asks = match mode {
            Mode::Llm => true,
            Mode::Embedded => false,
            Mode::Auto => routed.embedded.verdict != Verdict::Sure && routed.embedded.score >= WORTH_ASKING,
        };
        asks && !self.routes.is_empty()
    }

    /// Has a model decide in place of the embedded router. Without `models`, `auto` stays with what that said.
    ///
    /// # Errors
    /// A model was needed and could not be asked.
    pub async fn settle(
        &self,
        request: &str,
        mut routed: Routed,
        mode: Mode,
        models: Option<&Arc<dyn ModelPort>>,
    ) -> Result<Routed, Failure> {
        match models {
            Some(models) => self.ask_model(request, &mut routed, models).await?,
            None if mode == Mode::Llm => {
                let message = "routing by model was asked for, and no model is configured";
                return Err(in_routing(Failure::new(FailureKind::Environment, message)));
            }
            None => routed.notes.push("the request is doubtful, and no model is there to decide".into()),
        }
        Ok(routed)
    }

    async fn ask_model(&self, request: &str, routed: &mut Routed, models: &Arc<dyn ModelPort>) -> Result<(), Failure> {
        let (routes, left_out) = prompt::candidates(&self.routes, &routed.embedded);
        if left_out > 0 {
            routed
                .notes
                .push(format!("{left_out} pipelines that are far from the request were not offered to the model"));
        }
        let answer = ask::ask(models, prompt::for_routing(request, &routes)).await;
        routed.usage.add(&answer.usage);
        routed.calls.extend(answer.calls);
        routed.decided_by = Mode::Llm;
        routed.pipeline = match answer.value {
            Ok(value) => prompt::chosen(&value).filter(|name| routes.iter().any(|route| route.name == *name)),
            // A model that insists on names that are not in the table has found no pipeline.
            Err(failure) if failure.kind == FailureKind::ValidationExhausted => {
                routed.notes.push(failure.message);
                None
            }
            Err(failure) => return Err(in_routing(failure)),
        };
        Ok(())
    }
}

/// What the pipeline or machine `name` of an app says of itself.
pub fn about(sources: &dyn Sources, rules: Rules, name: &str) -> Route {
    let app = App::new(sources);
    let of_pipeline = || app.summary_of(name).map(|summary| (summary.description, summary.triggers));
    let of_machine = || {
        let found = Machines::new(sources, rules).summaries().into_iter().find(|summary| summary.name == name)?;
        Some((found.description, found.triggers))
    };
    let (description, triggers) = of_pipeline().or_else(of_machine).unwrap_or_default();
    Route { name: name.to_owned(), description, triggers }
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

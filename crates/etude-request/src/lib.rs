//! Routing of a request in words to a pipeline and its input: the router of `etude-route` over the pipelines of
//! an app, and a model where the router is not sure.

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

pub use ask::RoutingCall;
pub use extract::{Extracted, Stated, Unclear, typed};
pub use meaning::Sentences;
pub use measure::{Labelled, Measured, measure, parse_labelled};
pub use source::{From, Source, Trail, sources, sources_json};
pub use wording::{Words, reworded};

etude_core::words! {
    /// Judge of a request: the embedded router, a model, or both.
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

/// Minimum score at which a model is asked, also about requests that the embedded router rejects. On the validation
/// part of CLINC150, one request in ten lies between this and the router's own threshold. For nine in ten of those that
/// have a right pipeline, it is among the candidates (`docs/design/routing.md`).
const WORTH_ASKING: f64 = 0.1;

/// Routing table: every valid business pipeline, and every machine with a description or triggers.
#[derive(Debug)]
pub struct Table {
    routes: Vec<Route>,
    router: Router,
    meaning: Option<Meaning>,
    broken: Vec<String>,
}

/// Destination of a request, with the reasons.
#[derive(Debug, Clone)]
pub struct Routed {
    /// The pipeline; `None` if none fits.
    pub pipeline: Option<String>,
    /// The mode that decided: `embedded` or `llm`.
    pub decided_by: Mode,
    /// Decision of the embedded router.
    pub embedded: Decision,
    /// Remarks on the decision, for the user.
    pub notes: Vec<String>,
    /// Tokens and cost of the model calls.
    pub usage: Usage,
    /// The model calls, in order.
    pub calls: Vec<RoutingCall>,
}

impl Table {
    /// Builds the table of an app from every pipeline with a valid definition. The router of a large table is kept in
    /// the directory `cache`, if there is one.
    ///
    /// Machines with a description or example requests are routes as well; a pipeline of the same name has priority.
    /// Pipelines in `left_out` are skipped.
    pub fn of_app(sources: &dyn Sources, rules: Rules, cache: Option<&Path>, left_out: &[String]) -> Self {
        let (mut summaries, _) = App::new(sources).summaries();
        summaries.retain(|summary| !left_out.contains(&summary.name));
        let mut broken: Vec<String> =
            summaries.iter().filter(|summary| !summary.valid).map(|summary| summary.name.clone()).collect();
        let mut routes: Vec<Route> = summaries
            .into_iter()
            .filter(|summary| summary.valid)
            .map(|summary| Route { name: summary.name, description: summary.description, triggers: summary.triggers })
            .collect();
        for machine in Machines::new(sources, rules).summaries() {
            let is_reported = !machine.description.trim().is_empty() || !machine.triggers.is_empty();
            if !machine.valid {
                broken.push(machine.name);
            } else if is_reported && routes.iter().all(|route| route.name != machine.name) {
                let (name, description, triggers) = (machine.name, machine.description, machine.triggers);
                routes.push(Route { name, description, triggers });
            }
        }
        let router = cache::router(cache, &routes, None, || Router::new(&routes));
        Self { routes, router, meaning: None, broken }
    }

    /// Builds a table of the valid pipelines in `summaries`, which need not be those of an app.
    pub fn of_summaries(summaries: impl IntoIterator<Item = Summary>) -> Self {
        let route = |summary: Summary| Route {
            name: summary.name,
            description: summary.description,
            triggers: summary.triggers,
        };
        Self::new(summaries.into_iter().filter(|summary| summary.valid).map(route).collect())
    }

    /// Builds a table of these routes.
    pub fn new(routes: Vec<Route>) -> Self {
        let router = Router::new(&routes);
        Self { routes, router, meaning: None, broken: Vec::new() }
    }

    /// The table with a second router that compares meanings, for requests where words alone are not sure. The model is
    /// loaded on first use.
    pub fn with_meaning(self, sentences: Arc<dyn Sentences>, cache: Option<&Path>) -> Self {
        Self { meaning: Some(Meaning::new(sentences, cache)), ..self }
    }

    /// Names of the pipelines and machines of the app that are left out of the table because their definitions are
    /// invalid.
    pub fn broken(&self) -> &[String] {
        &self.broken
    }

    /// Names of the routes in the table.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.routes.iter().map(|route| route.name.as_str())
    }

    /// Picks the pipeline for `request`. Without `models`, `auto` stays embedded.
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

    /// Decision of the embedded router on `request`. It is final unless [`Table::asks_model`] returns true.
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

    /// True if a model must be called after the embedded router has decided.
    pub fn asks_model(&self, routed: &Routed, mode: Mode) -> bool {
        let asks = match mode {
            Mode::Llm => true,
            Mode::Embedded => false,
            Mode::Auto => routed.embedded.verdict != Verdict::Sure && routed.embedded.score >= WORTH_ASKING,
        };
        asks && !self.routes.is_empty()
    }

    /// Asks a model in place of the embedded router. Without `models`, `auto` keeps the router's decision.
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
                let message = "routing by model is requested, but no model is configured";
                return Err(in_routing(Failure::new(FailureKind::Environment, message)));
            }
            None => routed.notes.push("the request is ambiguous, and no model is available to decide".into()),
        }
        Ok(routed)
    }

    async fn ask_model(&self, request: &str, routed: &mut Routed, models: &Arc<dyn ModelPort>) -> Result<(), Failure> {
        let (routes, left_out) = prompt::candidates(&self.routes, &routed.embedded);
        if left_out > 0 {
            routed.notes.push(format!("{left_out} pipelines with low scores were not sent to the model"));
        }
        let answer = ask::ask(models, prompt::for_routing(request, &routes)).await;
        routed.usage.add(&answer.usage);
        routed.calls.extend(answer.calls);
        routed.decided_by = Mode::Llm;
        routed.pipeline = match answer.value {
            Ok(value) => prompt::chosen(&value).filter(|name| routes.iter().any(|route| route.name == *name)),
            // A model that insists on unknown names has found no pipeline.
            Err(failure) if failure.kind == FailureKind::ValidationExhausted => {
                routed.notes.push(failure.message);
                None
            }
            Err(failure) => return Err(in_routing(failure)),
        };
        Ok(())
    }
}

/// Description and triggers of the pipeline or machine `name`; empty if the app has none of that name.
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

/// Marks a failure as one of the routing phase.
pub(crate) fn in_routing(mut failure: Failure) -> Failure {
    failure.phase = Some(Phase::Routing);
    failure.step = None;
    failure.origin = None;
    failure
}

#[cfg(test)]
mod tests;

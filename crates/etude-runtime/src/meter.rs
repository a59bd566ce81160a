//! Meter of model calls that are not effects of a run: calls of its middleware and of confirmations. They count for its
//! budget and are part of its usage.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etude_core::machine::{Aside, Machine};
use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Request, Tier, Usage};
use etude_core::tool::ToolCalling;
use tokio::sync::Notify;

use crate::host::{Boxed, ModelPort, OnDelta};

/// Counts such calls until the driver books them in the journal.
#[derive(Debug, Default)]
pub struct Meter {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that the driver has not taken yet.
    asides: Vec<Aside>,
    /// Usage that is missing from the machine's budget.
    unbooked: Usage,
    /// Budget as the machine last reported it.
    budget: etude_core::machine::Budget,
}

impl Meter {
    /// Waits until there is usage to book.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Usage since the last call of this function.
    pub fn take(&self) -> Vec<Aside> {
        std::mem::take(&mut self.state().asides)
    }

    /// Takes over the machine's budget after it has booked the taken usage.
    pub(crate) fn update(&self, machine: &Machine) {
        let mut state = self.state();
        state.budget = machine.budget();
        let mut unbooked = Usage::default();
        state.asides.iter().for_each(|aside| unbooked.add(&aside.usage));
        state.unbooked = unbooked;
    }

    /// Reason why no more may be spent; the run then ends with it.
    fn refused(&self) -> Option<String> {
        let mut state = self.state();
        let why = state.budget.used_up_with(&state.unbooked)?;
        state.asides.push(Aside { usage: Usage::default(), is_refused: true });
        drop(state);
        self.news.notify_one();
        Some(why)
    }

    fn note(&self, usage: Usage) {
        let mut state = self.state();
        state.unbooked.add(&usage);
        state.asides.push(Aside { usage, is_refused: false });
        drop(state);
        self.news.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Models whose calls are counted.
#[derive(Debug, Clone)]
pub struct Metered {
    models: Arc<dyn ModelPort>,
    meter: Arc<Meter>,
}

impl Metered {
    /// Wraps `models` so that `meter` counts their calls.
    pub fn new(models: Arc<dyn ModelPort>, meter: Arc<Meter>) -> Self {
        Self { models, meter }
    }

    fn counted(
        &self,
        call: impl FnOnce(&dyn ModelPort) -> Boxed<Result<ModelResponse, CallFailure>>,
    ) -> Boxed<Result<ModelResponse, CallFailure>> {
        if let Some(message) = self.meter.refused() {
            let (model, transport_failures) = (None, Vec::new());
            let failure = CallFailure { kind: CallFailureKind::Model, message, model, transport_failures };
            return Box::pin(std::future::ready(Err(failure)));
        }
        let (response, meter) = (call(&*self.models), Arc::clone(&self.meter));
        Box::pin(async move {
            let response = response.await?;
            meter.note(response.usage);
            Ok(response)
        })
    }
}

impl ModelPort for Metered {
    fn call(&self, request: Request) -> Boxed<Result<ModelResponse, CallFailure>> {
        self.counted(|models| models.call(request))
    }

    fn call_streaming(&self, request: Request, on_delta: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
        self.counted(|models| models.call_streaming(request, on_delta))
    }

    fn call_watched(&self, request: Request, on_delta: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
        self.counted(|models| models.call_watched(request, on_delta))
    }

    fn only(&self, model: &str) -> Option<Arc<dyn ModelPort>> {
        let models = self.models.only(model)?;
        Some(Arc::new(Self { models, meter: Arc::clone(&self.meter) }))
    }

    fn secrets_in(&self, text: &str, typed: &str) -> Vec<String> {
        self.models.secrets_in(text, typed)
    }

    fn tool_calling(&self, tier: Tier) -> Boxed<(String, ToolCalling)> {
        self.models.tool_calling(tier)
    }

    fn window_tokens(&self, tier: Tier) -> Boxed<Option<u64>> {
        self.models.window_tokens(tier)
    }

    fn unpriced(&self, tier: Tier) -> Boxed<Vec<String>> {
        self.models.unpriced(tier)
    }
}

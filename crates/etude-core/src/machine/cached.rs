//! One execution of a step's work, or the output of an earlier run in its place (X-1 `cache`).
//!
//! | state       | event                        | next                              |
//! |-------------|------------------------------|-----------------------------------|
//! | recalling   | a stored output              | over, cached                      |
//! | recalling   | none                         | working                           |
//! | working     | an output that may be stored | remembering                       |
//! | working     | anything else                | over                              |
//! | remembering | stored                       | over                              |
//!
//! A fan-out has one of these tasks per element, so a changed element repeats only its own work.

use std::sync::Arc;
use std::task::Poll;

use super::binding::unresolved;
use super::step::body;
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, TYPES_KEYS, Task};
use crate::data::Json;
use crate::digest::{Digest, Hasher};
use crate::effect::{Effect, EffectId};
use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::plan::{Cache, Step};
use crate::template::{Reference, Scope as _};

#[derive(Debug)]
struct Cached {
    step: Arc<Step>,
    step_context: StepContext,
    values: Arc<Values>,
    ttl_ms: Option<u64>,
    key: Digest,
    state: State,
    stopped: Option<Failure>,
    is_hit: bool,
}

#[derive(Debug)]
enum State {
    Recalling(EffectId),
    Working(Box<dyn Task>),
    Remembering { id: EffectId, output: Json },
}

/// The task for one execution of a step's work: with the cache if the step has one.
pub(super) fn single(
    step: &Arc<Step>,
    step_context: &StepContext,
    values: &Arc<Values>,
) -> Result<Box<dyn Task>, Failure> {
    let Some(cache) = &step.cache else { return body(step, step_context, values) };
    Ok(Box::new(Cached {
        step: Arc::clone(step),
        step_context: step_context.clone(),
        values: Arc::clone(values),
        ttl_ms: cache.ttl_ms,
        key: key(cache, values)?,
        state: State::Recalling(step_context.path.aside("recall")),
        stopped: None,
        is_hit: false,
    }))
}

/// Hash of everything that the output depends on: different values give different hashes, also if they only differ in
/// their JSON type or in the last digit of a number. A `key` that refers to the element replaces it; with any other key
/// the element counts as well.
fn key(cache: &Cache, values: &Values) -> Result<Digest, Failure> {
    let mut hasher = Hasher::new("cache");
    hasher.field(cache.fingerprint.as_bytes());
    match &cache.key {
        Some(key) => {
            let is_typed = values.abi() >= TYPES_KEYS;
            let text = if is_typed { key.render_typed(values) } else { key.render(values) };
            hasher.field(text.map_err(|e| unresolved(&e))?.as_bytes());
            let names_element =
                key.references().any(|(reference, _)| matches!(reference, Reference::Item { .. } | Reference::Index));
            if let (false, Some(element)) = (names_element, values.element()) {
                hasher.field(element.digest().as_bytes());
            }
        }
        None => drop(hasher.field(values.cache_digest(cache.uses_index).as_bytes())),
    };
    Ok(hasher.finish())
}

impl Task for Cached {
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        loop {
            match &mut self.state {
                State::Recalling(id) => {
                    let (key, ttl_ms) = (self.key, self.ttl_ms);
                    let Poll::Ready(done) = cx.run_effect(id, || Effect::Recall { key, ttl_ms }) else {
                        return Poll::Pending;
                    };
                    if let Some(why) = &self.stopped {
                        return Poll::Ready(Err(why.clone()));
                    }
                    if let Outcome::Recalled(Some(output)) = done.outcome {
                        self.is_hit = true;
                        return Poll::Ready(Ok(output));
                    }
                    self.state = State::Working(body(&self.step, &self.step_context, &self.values)?);
                }
                State::Working(body) => {
                    let Poll::Ready(result) = body.poll(cx) else {
                        return Poll::Pending;
                    };
                    match result {
                        Ok(output) if body.may_be_remembered() => {
                            self.state = State::Remembering { id: self.step_context.path.aside("remember"), output };
                        }
                        result => return Poll::Ready(result),
                    }
                }
                State::Remembering { id, output } => {
                    let effect = || Effect::Remember { key: self.key, output: output.clone() };
                    let Poll::Ready(_) = cx.run_effect(id, effect) else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(Ok(output.clone()));
                }
            }
        }
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        match &mut self.state {
            State::Working(body) => body.stop(cx, why),
            State::Recalling(id) => cx.abandon(id),
            State::Remembering { .. } => {}
        }
    }

    fn resumed(&mut self, cx: &mut Cx) {
        if let State::Working(body) = &mut self.state {
            body.resumed(cx);
        }
    }

    fn may_be_remembered(&self) -> bool {
        match &self.state {
            State::Working(body) => body.may_be_remembered(),
            State::Recalling(_) | State::Remembering { .. } => true,
        }
    }

    fn is_cached(&self) -> bool {
        self.is_hit
    }
}

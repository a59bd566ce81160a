//! Redaction of events and result documents for observers. Events of machines also get the time here, because a machine has no
//! clock.
//!
//! Scripts print anything, and their output may end up in a reason, in the tail of stderr or in an event. The `output` and
//! `parsed` values that a stage passes on are data and stay unchanged.

use etude_core::data::Json;
use etude_core::failure::Failure;
use etude_core::report::{Event, Item, RunResult};
use etude_models::{Redactor, Secret};
use etude_runtime::driver::{MiddlewareEventKind, Progress};
use serde_json::Value;

use etude_runtime::clock;

/// The redactor between a run and its observer.
pub(crate) struct EventRedactor {
    redactor: Redactor,
}

impl EventRedactor {
    pub(crate) fn new(secrets: &[Secret]) -> Self {
        Self { redactor: Redactor::new(secrets.iter()) }
    }

    /// Redacts an event and passes it on.
    pub(crate) fn pass_on(&self, progress: Progress<'_>, emit: &mut (dyn FnMut(Progress<'_>) + Send)) {
        match progress {
            Progress::Machine { event: Event::Stage { name, payload }, rows, is_replay } => {
                let mut facts = self.redactor.redact_value(payload.value().unwrap_or_default());
                if facts.get("issuedAt").is_some_and(Value::is_null) {
                    facts["issuedAt"] = clock::now_rfc3339().into();
                }
                let event = Event::Stage { name, payload: Json::of(&facts) };
                emit(Progress::Machine { event: &event, rows, is_replay });
            }
            Progress::Machine { event, rows, is_replay } if !self.redactor.is_idle() => {
                let redact = self.work(event);
                emit(Progress::Machine { event: redact.as_ref().unwrap_or(event), rows, is_replay });
            }
            Progress::Middleware(middleware_event) => {
                let mut middleware_event = middleware_event.clone();
                match &mut middleware_event.what {
                    MiddlewareEventKind::Ended { error, .. } => {
                        *error = error.take().map(|(word, why)| (word, self.redactor.redact(&why)))
                    }
                    MiddlewareEventKind::Log { text, .. }
                    | MiddlewareEventKind::Stderr { text }
                    | MiddlewareEventKind::Emitted { event: text } => {
                        *text = self.redactor.redact(text);
                    }
                    MiddlewareEventKind::Started => {}
                }
                emit(Progress::Middleware(&middleware_event));
            }
            other => emit(other),
        }
    }

    /// Redacts an event that quotes outputs, arguments or errors; `None` for other events. Labels are cut from elements, and
    /// arguments from the request.
    fn work(&self, event: &Event) -> Option<Event> {
        let mut redact = event.clone();
        match &mut redact {
            Event::AttemptRejected { item, reasons, .. } => {
                item.iter_mut().for_each(|item| self.label(item));
                reasons.iter_mut().for_each(|reason| *reason = self.redactor.redact(reason));
            }
            Event::ItemStarted { item, .. } => self.label(item),
            Event::ItemEnded { item, error, .. } => {
                self.label(item);
                *error = error.take().map(|error| self.redactor.redact(&error));
            }
            Event::ToolStarted { arguments, .. } => *arguments = self.redactor.redact(arguments),
            Event::ToolEnded { error, .. } => *error = error.take().map(|error| self.redactor.redact(&error)),
            Event::AgentText { text, .. } | Event::Detour { why: text, .. } => *text = self.redactor.redact(text),
            Event::FellBack { message, .. } => *message = self.redactor.redact(message),
            Event::ToolsMissing { problems, .. } => {
                problems.iter_mut().for_each(|problem| *problem = self.redactor.redact(problem));
            }
            _ => return None,
        }
        Some(redact)
    }

    /// Redacts the name of an element. A long name was cut, perhaps within a secret.
    fn label(&self, item: &mut Item) {
        item.label = item.label.take().map(|label| self.redactor.redact(&label).into());
    }

    /// Redacts the errors of a run, which quote outputs and stderr, and the reason of its last stage.
    pub(crate) fn redact(&self, result: &mut RunResult) {
        if self.redactor.is_idle() {
            return;
        }
        result.errors.iter_mut().for_each(|failure| self.failure(failure));
        if let Some(last) = &result.stages.last
            && let Ok(mut value) = last.value()
            && let Some(Value::String(reason)) = value.get_mut("reason")
        {
            let redact = self.redactor.redact(reason);
            if redact != *reason {
                *reason = redact;
                result.stages.last = Some(Json::of(&value));
            }
        }
    }

    /// Redacts a failure: message, details and the reasons of each attempt. Stderr was redacted where it was read.
    fn failure(&self, failure: &mut Failure) {
        failure.message = self.redactor.redact(&failure.message);
        failure.details = failure.details.take().map(|details| self.cleaned(&details));
        let reasons = failure.attempts.iter_mut().flat_map(|attempt| &mut attempt.errors);
        reasons.for_each(|reason| *reason = self.redactor.redact(reason));
    }

    fn cleaned(&self, json: &Json) -> Json {
        match (json.value(), json.text()) {
            (Ok(value), _) => Json::of(&self.redactor.redact_value(value)),
            // A value that is too deep or too large to parse is redacted as text, with the keys escaped for JSON.
            (Err(_), Ok(text)) => Json::trusted(self.redactor.redact(&text)),
            (Err(_), Err(_)) => json.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use etude_core::effect::EffectId;
    use etude_core::failure::{Attempt, FailureKind, RejectedBy};
    use etude_core::model::Usage;
    use etude_core::report::{Remains, Stages, Status, StepStatus};

    use super::*;

    const KEY: &str = "sk-live-0123456789";

    fn passed_on(event: &Event) -> String {
        let mut shown = String::new();
        EventRedactor::new(&[Secret::new(KEY.to_owned())]).pass_on(
            Progress::Machine { event, rows: &[], is_replay: false },
            &mut |progress| {
                shown = format!("{progress:?}");
            },
        );
        shown
    }

    /// labels are cut from elements and reasons quote outputs; neither shows a secret.
    #[test]
    fn elements_and_rejections_show_no_secrets() {
        let item = Item { index: 7, label: Some(format!("user {KEY}").into()) };
        let started = Event::ItemStarted { row: 3, item: item.clone() };
        let ended = Event::ItemEnded {
            row: 3,
            item: item.clone(),
            status: StepStatus::Failed,
            cached: false,
            error: Some(format!("refused {KEY}")),
            done: 1,
            total: 2,
        };
        let rejected = Event::AttemptRejected {
            row: 3,
            item: Some(item),
            attempt: 1,
            max_attempts: 4,
            rejected_by: RejectedBy::Validate,
            reasons: vec!["first".to_owned(), format!("{KEY} is no total")],
        };
        let cut = Item { index: 7, label: Some("the user sk-live-01234…".into()) };
        let cut = Event::ItemStarted { row: 3, item: cut };
        let cases = [(started, "user "), (cut, "the user "), (ended, "refused "), (rejected, " is no total")];
        for (event, kept) in cases {
            let shown = passed_on(&event);
            assert!(!shown.contains("sk-live"), "{shown}");
            assert!(shown.contains("row: 3") && shown.contains("index: 7") && shown.contains(kept), "{shown}");
        }
        let phase = Event::PhaseStarted(etude_core::failure::Phase::Business);
        assert!(passed_on(&phase).contains("PhaseStarted"));
    }

    /// arguments and errors of tools, completions and the reasons of a fallback are shown without secrets.
    #[test]
    fn tools_and_completions_show_no_secrets() {
        let effect = EffectId::new("a/tool-1");
        let text = || format!("before {KEY}");
        let cases = [
            Event::ToolStarted { row: 3, effect: effect.clone(), name: "Bash".to_owned(), arguments: text() },
            Event::ToolStarted {
                row: 3,
                effect: effect.clone(),
                name: "Bash".to_owned(),
                arguments: "before sk-live-01234…".to_owned(),
            },
            Event::ToolEnded { row: 3, effect, name: "Bash".to_owned(), error: Some(text()), elapsed_ms: 1 },
            Event::AgentText { row: 3, turn: 1, text: text() },
            Event::Detour { row: 3, why: text() },
            Event::ToolsMissing { row: 3, problems: vec![text()] },
        ];
        for event in cases {
            let shown = passed_on(&event);
            assert!(!shown.contains("sk-live") && shown.contains("before "), "{shown}");
        }
    }

    /// errors of a result document quote outputs, with or without stages in the run.
    #[test]
    fn failures_show_no_secrets() {
        let reason = || format!("{KEY} is no total");
        let mut failure = Failure::new(FailureKind::ValidationExhausted, reason());
        failure.details = Some(Json::of(&serde_json::json!({ "reasons": [reason()] })));
        let attempt = Attempt { rejected_by: RejectedBy::Validate, errors: vec![reason()], elapsed_ms: 1, tokens: 1 };
        failure.attempts = vec![attempt];
        let mut result = RunResult {
            status: Status::Failed,
            output: None,
            errors: vec![failure],
            steps: Vec::new(),
            usage: Usage::default(),
            stages: Stages::default(),
            attempt: 1,
            remains: Remains::default(),
            fell_back: None,
            deviations: Vec::new(),
        };
        EventRedactor::new(&[Secret::new(KEY.to_owned())]).redact(&mut result);
        let shown = format!("{:?}", result.errors);
        assert_eq!(shown.matches(" is no total").count(), 3, "{shown}");
        assert!(!shown.contains(KEY), "{shown}");
    }
}

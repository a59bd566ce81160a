//! OpenTelemetry spans of runs, in builds with the feature `otel` and if the environment names a collector. Otherwise nothing
//! happens.

#[cfg(feature = "otel")]
use std::sync::atomic::{AtomicBool, Ordering};

use etude::runner::{Error, RunResult};
use etude_invoke::chain::Event;
#[cfg(feature = "otel")]
use etude_invoke::chain::EventKind;
use etude_runs::target::Target;
#[cfg(feature = "otel")]
use etude_runtime::driver::MiddlewareEventKind;
use etude_runtime::driver::Progress;

/// Tracer of one run.
#[derive(Debug)]
pub(crate) struct Telemetry(#[cfg(feature = "otel")] Option<etude_otel::Tracer>);

#[cfg(feature = "otel")]
impl Telemetry {
    /// Starts the span of a run.
    pub(crate) fn of_run(target: &Target) -> Self {
        Self::begin(target.mode(), name_of(target))
    }

    /// Starts the span of a call of a skill through its chain.
    pub(crate) fn of_call(name: &str) -> Self {
        Self::begin("call", name)
    }

    /// Starts the span of a run that a server drives, below the span of the request that started it.
    #[cfg(feature = "serve")]
    pub(crate) fn of_served(target: &Target, traceparent: impl FnOnce() -> Option<String>) -> Self {
        let (mode, name) = (target.mode(), name_of(target));
        let settings = Self::settings().map(|settings| match traceparent() {
            Some(traceparent) => settings.below(&traceparent),
            None => settings,
        });
        Self(settings.map(|settings| etude_otel::Tracer::new(settings, mode, name)))
    }

    fn begin(mode: &str, name: &str) -> Self {
        Self(Self::settings().map(|settings| etude_otel::Tracer::new(settings, mode, name)))
    }

    fn settings() -> Option<etude_otel::Settings> {
        etude_otel::Settings::read(&|name| std::env::var(name).ok())
    }

    /// Records an event of the driver.
    pub(crate) fn observe(&mut self, progress: &Progress<'_>) {
        let Some(tracer) = &mut self.0 else { return };
        match progress {
            Progress::Middleware(reported) => match &reported.what {
                MiddlewareEventKind::Started => {
                    tracer.began(&format!("middleware {}", reported.id), &reported.tool, reported.serves.as_deref())
                }
                MiddlewareEventKind::Ended { error, .. } => {
                    tracer.ended(&format!("middleware {}", reported.id), error.as_ref().map(|(word, _)| *word));
                }
                _ => {}
            },
            other => tracer.observe(other),
        }
    }

    /// True if spans are recorded; then every invocation gets one.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records an event of a chain.
    pub(crate) fn invocation(&mut self, event: &Event) {
        let Some(tracer) = &mut self.0 else { return };
        let key = format!("{:?}", event.context);
        match &event.kind {
            EventKind::Started => tracer.began(&key, &event.tool, event.serves.as_deref()),
            EventKind::Ended => tracer.ended(&key, None),
            EventKind::Failed(throw) => tracer.ended(&key, Some(throw.kind.word())),
        }
    }

    /// Ends the span of a run.
    pub(crate) async fn finish_run(self, ended: &Result<RunResult, Error>) {
        let run = match ended {
            Ok(ended) => etude_otel::Run {
                id: ended.run_id.clone(),
                status: ended.document.status().to_owned(),
                error: ended.errors.first().map(|first| (first.kind.word().to_owned(), first.message.clone())),
            },
            Err(error) => of_error("failed", "environment", &error.to_string()),
        };
        self.finish(run).await;
    }

    /// Ends the span of a call.
    pub(crate) async fn finish_call(self, throw: Option<&etude_invoke::chain::Throw>) {
        let run = match throw {
            None => etude_otel::Run { status: "succeeded".to_owned(), ..etude_otel::Run::default() },
            Some(throw) => of_error("failed", throw.kind.word(), &throw.message),
        };
        self.finish(run).await;
    }

    async fn finish(self, run: etude_otel::Run) {
        static IS_REPORTED: AtomicBool = AtomicBool::new(false);
        let Some(tracer) = self.0 else { return };
        // One warning per process, since a server has many runs and one collector.
        if let Err(why) = tracer.finish(&run).await
            && !IS_REPORTED.swap(true, Ordering::Relaxed)
        {
            crate::render::say!("warning: spans could not be sent to the OpenTelemetry collector: {why}");
        }
    }
}

#[cfg(feature = "otel")]
fn name_of(target: &Target) -> &str {
    match target {
        Target::Pipeline(name) | Target::Skill(name) | Target::Machine(name) => name,
    }
}

#[cfg(feature = "serve")]
impl etude_server::RunObserver for Telemetry {
    fn observe(&mut self, progress: &Progress<'_>) {
        Telemetry::observe(self, progress);
    }

    fn end<'a>(self: Box<Self>, ended: &'a Result<RunResult, Error>) -> etude_runtime::engine::Boxed<'a, ()> {
        Box::pin((*self).finish_run(ended))
    }
}

#[cfg(feature = "otel")]
fn of_error(status: &str, kind: &str, message: &str) -> etude_otel::Run {
    etude_otel::Run {
        status: status.to_owned(),
        error: Some((kind.to_owned(), message.to_owned())),
        ..etude_otel::Run::default()
    }
}

#[cfg(not(feature = "otel"))]
impl Telemetry {
    pub(crate) fn of_run(_target: &Target) -> Self {
        Self()
    }

    pub(crate) fn of_call(_name: &str) -> Self {
        Self()
    }

    #[cfg(feature = "serve")]
    pub(crate) fn of_served(_target: &Target, _traceparent: impl FnOnce() -> Option<String>) -> Self {
        Self()
    }

    pub(crate) fn observe(&mut self, _progress: &Progress<'_>) {}

    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn invocation(&mut self, _event: &Event) {}

    pub(crate) async fn finish_run(self, _ended: &Result<RunResult, Error>) {}

    pub(crate) async fn finish_call(self, _throw: Option<&etude_invoke::chain::Throw>) {}
}

//! Follows a run on a server until it ends or waits, as `etude run` follows a local one.

use std::time::Duration;

use etude_http::sse::Event;
use etude_runtime::driver::{Progress, Stop};
use etude_runtime::engine::RunState;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Remote;
use super::event::Steps;
use super::result::{RunDocument, is_on_its_way};
use super::stream::{ENDED, PATIENCE, Stream};
use crate::context::Context;
use crate::problem::Problem;
use crate::render::progress::Face;
use crate::stdout;

/// Interval at which a silent run is fetched.
const LOOK: Duration = Duration::from_secs(5);

/// Maximum time in which a continued run may keep its earlier state.
const TAKEN_UP: Duration = Duration::from_secs(10);

/// State of following: the point to start at, and the signals.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Id of the last event that was seen.
    pub(crate) after: Option<String>,
    /// Time of the last change before the run was continued. A state counts only once it has changed.
    pub(crate) changed_at: Option<String>,
    /// Signals of the user; the first one cancels the run, unless it is followed only.
    pub(crate) stop: Option<watch::Receiver<Stop>>,
    /// True if a signal ends the following and leaves the run alone.
    pub(crate) is_observer: bool,
}

/// Display of events.
struct Shown<'c> {
    context: &'c Context,
    face: Face,
    steps: Steps,
}

impl Shown<'_> {
    fn show(&mut self, data: &str) {
        let Ok(mut event) = serde_json::from_str::<Value>(data) else { return };
        let Some(known) = self.steps.take(&event) else { return };
        self.face.show(&Progress::Machine { event: &known, rows: self.steps.rows(), is_replay: false });
        if self.context.streams() {
            event.as_object_mut().map(|members| (members.shift_remove("at"), members.shift_remove("id")));
            stdout::json(&event);
        }
    }
}

impl Remote {
    /// Follows a run, and returns it when it has ended or waits.
    pub(crate) fn follow(&self, context: &Context, id: &str, watching: Watching) -> Result<RunDocument, Problem> {
        let mut shown = Shown { context, face: context.face(), steps: Steps::default() };
        let done = self.block_on(self.followed(&mut shown, id, watching));
        shown.face.close();
        done.map_err(|problem| {
            problem.hint(format!("the run is stored on the server; follow it: etude runs watch {id}"))
        })
    }

    async fn followed(&self, shown: &mut Shown<'_>, id: &str, watching: Watching) -> Result<RunDocument, Problem> {
        let mut stop = watching.stop;
        let mut events = Stream::new(self, &format!("/v1/runs/{id}/events"), watching.after);
        let mut feed = Stream::new(self, "/v1/events", None);
        // Before the first look: the feed has no past, and a run that waits says so nowhere else.
        feed.open().await?;
        let began = Instant::now();
        let mut look = tokio::time::interval(LOOK);
        let (mut is_news, mut away, mut is_queued) = (false, None, false);
        loop {
            if std::mem::take(&mut is_news)
                && let Some(run) = self.run_unless_away(id, &mut away).await?
            {
                let has_changed = watching.changed_at.as_ref() != Some(&run.changed_at);
                if !run.is_on_its_way() && (has_changed || began.elapsed() > TAKEN_UP) {
                    self.rest(shown, id, events.last).await?;
                    // The run may have continued meanwhile.
                    return self.run(id).await;
                }
                is_queued = run.status == RunState::Queued.word();
            }
            tokio::select! {
                message = events.next() => match message? {
                    Some(message) => {
                        is_queued = false;
                        shown.show(&message.data);
                    }
                    None => is_news = true,
                },
                message = feed.next() => is_news = message?.is_none_or(|message| concerns(&message, id)),
                _ = look.tick() => is_news = true,
                asked = asked_to_stop(stop.as_mut()) => match watching.is_observer {
                    true => return Err(Problem::left(id, if is_queued { RunState::Queued } else { RunState::Running })),
                    false => self.stop(id, asked).await?,
                },
            }
        }
    }

    /// Fetches the run; `None` if the server is briefly away. `away` holds the start of the outage.
    async fn run_unless_away(&self, id: &str, away: &mut Option<Instant>) -> Result<Option<RunDocument>, Problem> {
        match self.text(self.request(reqwest::Method::GET, &format!("/v1/runs/{id}"))).await {
            Ok(text) => {
                *away = None;
                RunDocument::parse(&text).map(Some).map_err(|why| self.foreign(&why))
            }
            Err(problem) => {
                let since = *away.get_or_insert_with(Instant::now);
                let is_away = problem.exit == crate::exit::Exit::Environment && since.elapsed() <= PATIENCE;
                if is_away { Ok(None) } else { Err(problem) }
            }
        }
    }

    /// Shows the remaining events of a run up to now.
    async fn rest(&self, shown: &mut Shown<'_>, id: &str, mut last: Option<String>) -> Result<(), Problem> {
        loop {
            let page = self.page(id, last.as_deref()).await?;
            for event in page["events"].as_array().into_iter().flatten() {
                shown.show(&event.to_string());
                last = event["id"].as_str().map(str::to_owned).or(last);
            }
            if page["next"].is_null() {
                return Ok(());
            }
        }
    }

    async fn page(&self, id: &str, after: Option<&str>) -> Result<Value, Problem> {
        let after = after.map(|after| format!("&after={}", super::percent(after))).unwrap_or_default();
        let path = format!("/v1/runs/{id}/events?limit=1000{after}");
        self.document(self.request(reqwest::Method::GET, &path).header("accept", "application/json")).await
    }

    /// Id of the last event of a run up to now. Its `ended` events do not count, because it may continue.
    pub(crate) fn last_event(&self, id: &str) -> Result<Option<String>, Problem> {
        self.block_on(async {
            let mut last = None;
            loop {
                let page = self.page(id, last.as_deref()).await?;
                let mut events = page["events"].as_array().into_iter().flatten().rev();
                let end = events.find(|event| event["event"] != ENDED);
                last = end.and_then(|event| event["id"].as_str()).map(str::to_owned).or(last);
                if page["next"].is_null() {
                    return Ok(last);
                }
            }
        })
    }

    /// Requests that the server stops a run. A run that has ended meanwhile is not a problem.
    async fn stop(&self, id: &str, asked: Stop) -> Result<(), Problem> {
        let (reason, mode) = match &asked {
            Stop::No | Stop::Drain | Stop::Leave => return Ok(()),
            Stop::Cancel(reason) => (reason, "cancel"),
            Stop::Kill(reason) => (reason, "kill"),
        };
        match self.cancel_run(id, reason, mode).await {
            Err(problem) if problem.exit != crate::exit::Exit::Usage => Err(problem),
            _ => Ok(()),
        }
    }
}

/// True if an event of the feed says that this run has ended or waits.
fn concerns(event: &Event, id: &str) -> bool {
    let row: Value = serde_json::from_str(&event.data).unwrap_or_default();
    event.name == "run" && row["run_id"] == id && !row["status"].as_str().is_some_and(is_on_its_way)
}

/// Next signal of the user.
async fn asked_to_stop(stop: Option<&mut watch::Receiver<Stop>>) -> Stop {
    let Some(stop) = stop else { return std::future::pending().await };
    match stop.changed().await {
        Ok(()) => stop.borrow_and_update().clone(),
        Err(_) => std::future::pending().await,
    }
}

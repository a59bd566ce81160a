//! Progress notifications of a call, for clients that requested them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::api::{Api, Request};
use crate::service::Context;

/// Interval of progress during silence, which resets the timers of clients.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Maximum length of a progress message, in characters.
const MAX_MESSAGE: usize = 200;

/// Progress notifications of one call.
pub(crate) struct Progress<'a> {
    context: &'a Context,
    sent: u64,
    after: Option<String>,
    began: Instant,
    ticks: tokio::time::Interval,
}

impl<'a> Progress<'a> {
    pub(super) fn new(context: &'a Context, interval: Duration) -> Self {
        let began = Instant::now();
        let mut ticks = interval_at(began + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { context, sent: 0, after: None, began, ticks }
    }

    /// The notifications of a call without steps.
    pub(crate) fn every_ten_seconds(context: &'a Context) -> Self {
        Self::new(context, INTERVAL)
    }

    fn send(&mut self, message: &str) {
        let Some(token) = &self.context.progress else { return };
        self.sent += 1;
        let message: String = message.chars().take(MAX_MESSAGE).collect();
        let params = json!({"progressToken": token, "progress": self.sent, "message": message});
        self.context.peer.notify("notifications/progress", &params);
    }

    /// Reports the steps since the last call.
    pub(super) async fn steps(&mut self, api: &dyn Api, run_id: &str) {
        if self.context.progress.is_none() {
            return;
        }
        let after = self.after.as_ref().map(|id| format!("&after={id}")).unwrap_or_default();
        let reply = api.send(Request::for_call(format!("/v1/runs/{run_id}/events?limit=1000{after}"))).await;
        let page: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        for event in page["events"].as_array().into_iter().flatten() {
            self.after = event["id"].as_str().map(str::to_owned).or_else(|| self.after.take());
            let step = event["step"].as_str().unwrap_or_default();
            match event["event"].as_str() {
                Some("step_started") => self.send(&format!("step {step} started")),
                Some("step_ended") => {
                    self.send(&format!("step {step} {}", event["status"].as_str().unwrap_or("ended")));
                }
                _ => {}
            }
        }
    }

    /// Waits for the next interval, then reports the elapsed time.
    pub(crate) async fn tick(&mut self) {
        self.ticks.tick().await;
        let seconds = self.began.elapsed().as_secs();
        self.send(&format!("running for {seconds} s"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::mpsc;

    use super::*;
    use crate::peer::Peer;
    use crate::wire::Revision;

    /// S-151: while nothing happens, a client that requested progress gets some every 10 s, and others get none.
    #[tokio::test]
    async fn a_quiet_call_reports_progress_where_it_was_requested() {
        for (token, wanted) in [(Some(json!("t")), 3), (None, 0)] {
            let (out, mut sent) = mpsc::unbounded_channel();
            let peer = Arc::new(Peer::new(out));
            let context = Context { progress: token.clone(), ..Context::new(Revision::November2025, &peer) };
            let mut progress = Progress::new(&context, Duration::from_millis(1));
            for _ in 0..3 {
                progress.tick().await;
            }
            progress.send(&"x".repeat(MAX_MESSAGE + 1));
            let mut notes = Vec::new();
            while let Ok(text) = sent.try_recv() {
                notes.push(serde_json::from_str::<Value>(&text).expect("JSON"));
            }
            assert_eq!(notes.len(), if wanted > 0 { wanted + 1 } else { 0 }, "{notes:?}");
            for (nth, note) in notes.iter().enumerate() {
                assert_eq!(note["method"], "notifications/progress");
                let params = &note["params"];
                assert_eq!((&params["progressToken"], &params["progress"]), (&json!("t"), &json!(nth + 1)), "it rises");
                assert!(params["message"].as_str().is_some_and(|text| text.len() <= MAX_MESSAGE));
            }
        }
        assert_eq!(INTERVAL, Duration::from_secs(10));
    }
}

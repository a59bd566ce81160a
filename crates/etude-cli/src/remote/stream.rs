//! Streams of events (`text/event-stream`) that reconnect and continue after the last event.

use std::collections::VecDeque;
use std::time::Duration;

use etude_http::sse::{Event, Events, TooLarge};
use reqwest::{Method, Response, StatusCode};
use tokio::time::{Instant, sleep_until};

use super::Remote;
use crate::problem::Problem;

/// Pause before a reconnect.
const PAUSE: Duration = Duration::from_millis(500);

/// Maximum outage of a server, such as during an update.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Name of the last event of an attempt.
pub(super) const ENDED: &str = "ended";

/// A stream that reconnects. Dropping the future of [`Stream::next`] loses nothing.
pub(super) struct Stream<'r> {
    remote: &'r Remote,
    path: String,
    /// Id of the last event.
    pub(super) last: Option<String>,
    open: Option<Response>,
    parser: Events,
    /// Events received but not yet returned.
    ready: VecDeque<Event>,
    next_try: Instant,
    /// Start of the current outage.
    away: Option<Instant>,
}

impl<'r> Stream<'r> {
    pub(super) fn new(remote: &'r Remote, path: &str, last: Option<String>) -> Self {
        Self {
            remote,
            path: path.to_owned(),
            last,
            open: None,
            parser: Events::default(),
            ready: VecDeque::new(),
            next_try: Instant::now(),
            away: None,
        }
    }

    /// Opens the stream, so that it has every event from now on. If the server is away, [`Stream::next`] tries again.
    pub(super) async fn open(&mut self) -> Result<(), Problem> {
        if self.open.is_none() {
            self.connect().await?;
        }
        Ok(())
    }

    /// Next event; `None` when the server has closed the stream, which the next call opens again.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Problem> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                // The run may continue after the end of an attempt.
                if event.id.is_some() && event.name != ENDED {
                    self.last.clone_from(&event.id);
                }
                return Ok(Some(event));
            }
            if self.open.is_none() && !self.connect().await? {
                return Ok(None);
            }
            let Some(response) = &mut self.open else { continue };
            match response.chunk().await {
                Ok(Some(piece)) => {
                    let ready = &mut self.ready;
                    let taken = self.parser.push(&piece, |event| {
                        ready.push_back(event);
                        Ok::<_, TooLarge>(())
                    });
                    taken.map_err(|TooLarge| self.remote.foreign("has a line that is too long"))?;
                }
                // Incomplete events are sent again.
                Ok(None) | Err(_) => {
                    self.close();
                    return Ok(None);
                }
            }
        }
    }

    /// Opens the stream. Returns false if nothing more will come.
    async fn connect(&mut self) -> Result<bool, Problem> {
        sleep_until(self.next_try).await;
        let mut request = self.remote.request(Method::GET, &self.path).header("accept", "text/event-stream");
        if let Some(last) = &self.last {
            request = request.header("last-event-id", last);
        }
        let mut is_refused = false;
        let sent = match self.remote.respond(request).await {
            Ok(response) => {
                is_refused = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
                self.remote.successful(response).await
            }
            Err(problem) => Err(problem),
        };
        match sent {
            Ok(response) if response.status() == StatusCode::NO_CONTENT => {
                self.close();
                Ok(false)
            }
            Ok(response) => {
                self.away = None;
                self.open = Some(response);
                Ok(true)
            }
            Err(problem) => {
                let since = *self.away.get_or_insert_with(Instant::now);
                // A server that refuses will refuse again, and a repeated wrong token locks out the client's address.
                if is_refused || problem.exit != crate::exit::Exit::Environment || since.elapsed() > PATIENCE {
                    return Err(problem);
                }
                self.remote.find_again().await;
                self.close();
                Ok(false)
            }
        }
    }

    fn close(&mut self) {
        self.open = None;
        self.parser = Events::default();
        self.next_try = Instant::now() + PAUSE;
    }
}

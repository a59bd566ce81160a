//! Following a stream to its end.

use std::future::Future;
use std::time::Duration;

use reqwest::Response;
use tokio::time::Instant;

use super::exchange::{FailedAs, Line, ReadError, TransportAttempt};
use crate::delta_sink::DeltaSink;
use crate::wire::MAX_BODY_BYTES;
use crate::wire::stream::{Assembler, Body, Broken, Reader};

/// A stream says everything in many more bytes than a whole answer.
const MAX_STREAM_BYTES: usize = 16 * MAX_BODY_BYTES;

/// How long the end of a stream is waited for after the end of its answer, so that the connection can be used again.
const DRAIN: Duration = Duration::from_millis(100);

/// How long is waited for what may follow an answer that has ended, such as its usage.
const TAIL: Duration = Duration::from_secs(2);

/// How an answer is received while it comes.
pub(crate) struct StreamSink<'a> {
    pub(crate) delta_sink: &'a DeltaSink<'a>,
    /// A new assembler for each try.
    pub(crate) assembler: &'a (dyn Fn() -> Box<dyn Assembler> + Send + Sync),
}

impl Line {
    /// Tells an answer as it comes, and gives back what came. The time limit holds for each silence.
    pub(super) async fn follow(
        &self,
        mut response: Response,
        place: &str,
        streaming: &StreamSink<'_>,
    ) -> Result<Body, TransportAttempt> {
        let headers = response.headers().clone();
        let mut reader = Reader::new((streaming.assembler)());
        let mut emit = |text: &str| streaming.delta_sink.text(text);
        let broken = |broken: Broken| match broken {
            Broken::Off => TransportAttempt::again(
                FailedAs::Exhausted,
                format!("the stream from {place} ended before the answer did"),
            ),
            Broken::TooLarge => self.unread(ReadError::TooLarge, place),
            Broken::Event(error, data) => self.undecoded(error, &headers, data.as_bytes()),
        };
        let mut bytes = 0;
        let mut tail = None;
        loop {
            let chunk = match reader.answered() {
                None => self.unless_silent(response.chunk(), place).await?.map_err(|error| self.lost(error, place))?,
                Some(events) => {
                    // Only events make the wait longer; servers keep a connection open with comments.
                    let (_, until) = tail.filter(|(before, _)| *before == events).unwrap_or_else(|| self.tail(events));
                    tail = Some((events, until));
                    // The answer is there: a connection that is lost or silent now takes nothing from it.
                    tokio::time::timeout_at(until, response.chunk()).await.map_or(None, |chunk| chunk.unwrap_or(None))
                }
            };
            let Some(chunk) = chunk else { break };
            bytes += chunk.len();
            if bytes > MAX_STREAM_BYTES {
                return Err(broken(Broken::TooLarge));
            }
            if reader.push(&chunk, &mut emit).map_err(broken)? {
                let rest = async { while matches!(response.chunk().await, Ok(Some(_))) {} };
                // A server that keeps the connection open has said everything all the same.
                let _ = tokio::time::timeout(DRAIN, rest).await;
                break;
            }
        }
        reader.end(&mut emit).map_err(broken)
    }

    /// Until when the next event is waited for after an answer that has ended with the event `events`.
    fn tail(&self, events: usize) -> (usize, Instant) {
        (events, Instant::now() + TAIL.min(self.timeout))
    }

    /// Waits for what comes next, but not longer than the time limit.
    pub(super) async fn unless_silent<T>(
        &self,
        next: impl Future<Output = T>,
        place: &str,
    ) -> Result<T, TransportAttempt> {
        tokio::time::timeout(self.timeout, next).await.map_err(|_| self.silent(place))
    }
}

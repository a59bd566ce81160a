//! Reading of a stream to its end.

use std::future::Future;
use std::time::Duration;

use reqwest::Response;
use tokio::time::Instant;

use super::charset::Charset;
use super::exchange::{FailedAs, Line, ReadError, TransportAttempt};
use crate::delta_sink::DeltaSink;
use crate::wire::MAX_BODY_BYTES;
use crate::wire::stream::{Assembler, Body, Broken, Reader};

/// Maximum length of a stream in bytes: it needs many more bytes than a whole response.
const MAX_STREAM_BYTES: usize = 16 * MAX_BODY_BYTES;

/// Maximum wait for the end of a stream after the end of its response, so that the connection can be used again.
const DRAIN: Duration = Duration::from_millis(100);

/// Maximum wait for an event after the end of the response, such as its usage.
const TAIL: Duration = Duration::from_secs(2);

/// Receivers of a response while it comes.
pub(crate) struct StreamSink<'a> {
    pub(crate) delta_sink: &'a DeltaSink<'a>,
    /// Builds an assembler for each attempt.
    pub(crate) assembler: &'a (dyn Fn() -> Box<dyn Assembler> + Send + Sync),
}

impl Line {
    /// Reports deltas of a response as it comes, and returns its body. The time limit applies to each silence.
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
            Broken::Off => TransportAttempt::retryable(
                FailedAs::Exhausted,
                format!("the stream from {place} ended before the response was complete"),
            ),
            Broken::TooLarge => self.unread(ReadError::TooLarge, place),
            Broken::Event(error, data) => self.undecoded(error, &headers, data.as_bytes()),
        };
        let mut bytes = 0;
        let mut charset = Charset::foreign(&headers);
        let mut tail = None;
        loop {
            let chunk = match reader.answered() {
                None => self.unless_silent(response.chunk(), place).await?.map_err(|error| self.lost(error, place))?,
                Some(events) => {
                    // Only events extend the wait; servers keep a connection open with comments.
                    let (_, until) = tail.filter(|(before, _)| *before == events).unwrap_or_else(|| self.tail(events));
                    tail = Some((events, until));
                    // The response is complete: a connection that is lost or silent now does not change it.
                    tokio::time::timeout_at(until, response.chunk()).await.map_or(None, |chunk| chunk.unwrap_or(None))
                }
            };
            let Some(chunk) = chunk else { break };
            bytes += chunk.len();
            if bytes > MAX_STREAM_BYTES {
                return Err(broken(Broken::TooLarge));
            }
            if let Some(charset) = &mut charset
                && charset.encodes(&chunk)
            {
                return Err(charset.refusal(place, &self.redactor));
            }
            if reader.push(&chunk, &mut emit).map_err(broken)? {
                let rest = async { while matches!(response.chunk().await, Ok(Some(_))) {} };
                // A server that keeps the connection open has still sent everything.
                let _ = tokio::time::timeout(DRAIN, rest).await;
                break;
            }
        }
        reader.end(&mut emit).map_err(broken)
    }

    /// Deadline for the next event after the end of the response, where `events` is the number of events so far.
    fn tail(&self, events: usize) -> (usize, Instant) {
        (events, Instant::now() + TAIL.min(self.timeout))
    }

    /// Waits for the next data, up to the time limit.
    pub(super) async fn unless_silent<T>(
        &self,
        next: impl Future<Output = T>,
        place: &str,
    ) -> Result<T, TransportAttempt> {
        tokio::time::timeout(self.timeout, next).await.map_err(|_| self.silent(place))
    }
}

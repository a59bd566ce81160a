//! Following a stream to its end.

use std::future::Future;
use std::time::Duration;

use reqwest::Response;

use super::exchange::{FailedAs, LARGEST_BODY_BYTES, Line, ReadError, Try};
use crate::hearing::Hearing;
use crate::wire::stream::{Assembler, Body, Broken, Reader};

/// A stream says everything in many more bytes than a whole answer.
const LARGEST_STREAM_BYTES: usize = 16 * LARGEST_BODY_BYTES;

/// How long the end of a stream is waited for after the end of its answer, so that the connection can be used again.
const DRAIN: Duration = Duration::from_millis(100);

/// How an answer is heard while it comes.
pub(crate) struct Aloud<'a> {
    pub(crate) hearing: &'a Hearing<'a>,
    /// A new assembler for each try.
    pub(crate) assembler: &'a (dyn Fn() -> Box<dyn Assembler> + Send + Sync),
}

impl Line {
    /// Tells an answer as it comes, and gives back what came. The time limit holds for each silence.
    pub(super) async fn follow(&self, mut response: Response, place: &str, aloud: &Aloud<'_>) -> Result<Body, Try> {
        let headers = response.headers().clone();
        let mut reader = Reader::new((aloud.assembler)());
        let mut tell = |text: &str| aloud.hearing.text(text);
        let broken = |broken: Broken| match broken {
            Broken::Off => {
                Try::again(FailedAs::Exhausted, format!("the stream from {place} ended before the answer did"))
            }
            Broken::TooLarge => self.unread(ReadError::TooLarge, place),
            Broken::Event(error, data) => self.undecoded(error, &headers, data.as_bytes()),
        };
        let mut bytes = 0;
        loop {
            let chunk = self.unless_silent(response.chunk(), place).await?.map_err(|error| self.lost(error, place))?;
            let Some(chunk) = chunk else { break };
            bytes += chunk.len();
            if bytes > LARGEST_STREAM_BYTES {
                return Err(broken(Broken::TooLarge));
            }
            if reader.push(&chunk, &mut tell).map_err(broken)? {
                let rest = async { while matches!(response.chunk().await, Ok(Some(_))) {} };
                // A server that keeps the connection open has said everything all the same.
                let _ = tokio::time::timeout(DRAIN, rest).await;
                break;
            }
        }
        reader.end(&mut tell).map_err(broken)
    }

    /// Waits for what comes next, but not longer than the time limit.
    pub(super) async fn unless_silent<T>(&self, next: impl Future<Output = T>, place: &str) -> Result<T, Try> {
        tokio::time::timeout(self.timeout, next).await.map_err(|_| self.silent(place))
    }
}

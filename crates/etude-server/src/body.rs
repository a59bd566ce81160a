//! Bodies of requests: bounded in size and in time, and, where anybody may send them, all of them together.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::problem::{Code, Problem};

/// The time in which a small body must arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes for which a body has another second.
const BYTES_PER_SECOND: usize = 32 * 1024;

/// Bytes that all bodies together may have whose senders have no token.
const MAX_OF_STRANGERS: usize = 64 * 1024 * 1024;

/// The room for bodies whose senders have no token, in bytes. A body holds its part until its request has a response.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_OF_STRANGERS)))
    }
}

/// The part of the room that a body has taken.
#[derive(Debug, Default)]
pub(crate) struct Taken(Option<OwnedSemaphorePermit>);

impl Taken {
    /// Takes room for more bytes.
    fn take(&mut self, room: &Room, count: usize) -> Result<(), Problem> {
        let full = || Problem::new(Code::TooManyRequests, "too many bodies arrive at once").retry_after(5);
        let count = u32::try_from(count).map_err(|_| full())?;
        let more = Arc::clone(&room.0).try_acquire_many_owned(count).map_err(|_| full())?;
        match &mut self.0 {
            Some(taken) => taken.merge(more),
            None => self.0 = Some(more),
        }
        Ok(())
    }
}

/// Reads a body of at most `limit` bytes (S-26). With a `room` it must fit in there.
pub(crate) async fn read(body: Body, limit: usize, room: Option<&Room>) -> Result<(Vec<u8>, Taken), Problem> {
    read_within(PATIENCE, body, limit, room).await
}

/// The time that a body of `count` bytes has beside the [`PATIENCE`].
fn earned(count: usize) -> Duration {
    Duration::from_secs((count / BYTES_PER_SECOND) as u64)
}

async fn read_within(
    patience: Duration,
    mut body: Body,
    limit: usize,
    room: Option<&Room>,
) -> Result<(Vec<u8>, Taken), Problem> {
    let (mut bytes, mut taken) = (Vec::new(), Taken::default());
    let begin = Instant::now();
    loop {
        let frame = timeout_at(begin + patience + earned(bytes.len()), body.frame()).await;
        let late = |_| Problem::new(Code::Malformed, "the body did not arrive in time");
        let Some(frame) = frame.map_err(late)? else { return Ok((bytes, taken)) };
        let frame = frame.map_err(|_| Problem::new(Code::Malformed, "the body ended early"))?;
        let Ok(piece) = frame.into_data() else { continue };
        if bytes.len() + piece.len() > limit {
            return Err(too_large(limit));
        }
        if let Some(room) = room {
            taken.take(room, piece.len())?;
        }
        bytes.extend_from_slice(&piece);
    }
}

/// The problem of a body with more than `limit` bytes.
pub(crate) fn too_large(limit: usize) -> Problem {
    Problem::new(Code::TooLarge, format!("the body has more than {limit} bytes"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Bytes;
    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// A body without an end, of which each piece of `size` bytes is waited for.
    fn endless(size: usize) -> Body {
        let pieces = stream::unfold((), move |()| async move {
            tokio::task::yield_now().await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; size]))), ()))
        });
        Body::new(StreamBody::new(pieces))
    }

    /// S-12: a body that comes drop by drop holds its connection no longer than one that does not come at all; one of some size has
    /// the time that it needs.
    #[tokio::test]
    async fn a_body_that_trickles_is_given_up() {
        let never = Body::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>()));
        for body in [never, endless(1)] {
            let problem = read_within(Duration::ZERO, body, usize::MAX / 2, None).await.expect_err("it has no end");
            assert_eq!(problem.code(), Code::Malformed);
        }
        assert_eq!(earned(BYTES_PER_SECOND - 1), Duration::ZERO);
        assert_eq!(earned(60 * BYTES_PER_SECOND), Duration::from_secs(60));
        let problem = read(endless(BYTES_PER_SECOND), 2 * BYTES_PER_SECOND, None).await.expect_err("it has no end");
        assert_eq!(problem.code(), Code::TooLarge);
    }

    /// SECURITY.md: bodies of strangers have so much room together, whichever way they come, and give it back.
    #[tokio::test]
    async fn bodies_of_strangers_are_bounded_together() {
        let room = Room::default();
        let of = |size: usize| read(Body::from(vec![b'x'; size]), MAX_OF_STRANGERS, Some(&room));
        let (bytes, first) = of(MAX_OF_STRANGERS - 1).await.expect("there is room");
        assert_eq!(bytes.len(), MAX_OF_STRANGERS - 1);
        let (_, second) = of(1).await.expect("there is room");
        assert_eq!(of(1).await.expect_err("there is none").code(), Code::TooManyRequests);
        drop((first, second));
        drop(of(MAX_OF_STRANGERS).await.expect("there is room again"));
        assert!(of(0).await.is_ok());
    }
}

//! Request bodies: bounded in size and in time. Bodies of strangers are also bounded all together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::problem::{Code, Problem};

/// Time in which a small body must arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum time without any byte of a body.
const STALL: Duration = Duration::from_secs(10);

/// Number of bytes that extend a body's time by one second.
const BYTES_PER_SECOND: usize = 32 * 1024;

/// Maximum size of all bodies of senders without a token together, in bytes.
const MAX_OF_STRANGERS: usize = 64 * 1024 * 1024;

/// The same for the senders at one address.
const MAX_OF_ADDRESS: usize = 16 * 1024 * 1024;

/// The room for bodies of senders without a token, in bytes. A body holds its part until its request has a response.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    all: Arc<Semaphore>,
    /// The bytes in use, by address.
    shares: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Default for Room {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_OF_STRANGERS)), shares: Arc::default() }
    }
}

impl Room {
    fn shares(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of a body from this address; `None`: the address is that of a proxy for all clients.
    pub(crate) fn part(&self, address: Option<String>) -> Part {
        Part { room: self.clone(), address, count: 0, permit: None }
    }
}

/// The part of the room that a body has taken.
#[derive(Debug)]
pub(crate) struct Part {
    room: Room,
    address: Option<String>,
    /// The bytes that this body has taken of the address's share.
    count: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Part {
    /// Takes room for more bytes.
    fn take(&mut self, count: usize) -> Result<(), Problem> {
        let full = || Problem::new(Code::TooManyRequests, "too many request bodies are being uploaded").retry_after(5);
        let more = u32::try_from(count).map_err(|_| full())?;
        let more = Arc::clone(&self.room.all).try_acquire_many_owned(more).map_err(|_| full())?;
        if let Some(address) = &self.address {
            let mut shares = self.room.shares();
            let share = shares.entry(address.clone()).or_default();
            if *share + count > MAX_OF_ADDRESS {
                return Err(full());
            }
            *share += count;
            self.count += count;
        }
        match &mut self.permit {
            Some(taken) => taken.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Some(address) = &self.address else { return };
        let mut shares = self.room.shares();
        if let Some(share) = shares.get_mut(address) {
            *share -= self.count;
            if *share == 0 {
                shares.remove(address);
            }
        }
    }
}

/// Reads a body of at most `limit` bytes (S-26). With a `part` of the room for strangers it must fit in there.
pub(crate) async fn read(body: Body, limit: usize, part: Option<&mut Part>) -> Result<Vec<u8>, Problem> {
    read_within(PATIENCE, STALL, body, limit, part).await
}

/// The time that `count` bytes earn.
fn earned(count: usize) -> Duration {
    Duration::from_micros(1_000_000 * count as u64 / BYTES_PER_SECOND as u64)
}

async fn read_within(
    patience: Duration,
    stall: Duration,
    mut body: Body,
    limit: usize,
    mut part: Option<&mut Part>,
) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let mut now = Instant::now();
    let mut end = now + patience;
    loop {
        let frame = timeout_at(end.min(now + stall), body.frame()).await;
        let late = |_| Problem::new(Code::Malformed, "the body did not arrive in time");
        let Some(frame) = frame.map_err(late)? else { return Ok(bytes) };
        let frame = frame.map_err(|_| Problem::new(Code::Malformed, "the body ended early"))?;
        let Ok(piece) = frame.into_data() else { continue };
        if bytes.len() + piece.len() > limit {
            return Err(too_large(limit));
        }
        if let Some(part) = &mut part {
            part.take(piece.len())?;
        }
        now = Instant::now();
        // Bytes that came fast leave the rest no more time than a new body has.
        end = (end + earned(piece.len())).min(now + patience);
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
    use futures_util::{StreamExt as _, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// An endless body that yields before each piece of `size` bytes.
    fn endless(size: usize) -> Body {
        let pieces = stream::unfold((), move |()| async move {
            tokio::task::yield_now().await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; size]))), ()))
        });
        Body::new(StreamBody::new(pieces))
    }

    /// S-12: a body that trickles does not hold its connection for longer than one that never begins; a body of some size has the
    /// time that it needs.
    #[tokio::test]
    async fn a_body_that_trickles_is_given_up() {
        let never = Body::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>()));
        for body in [never, endless(1)] {
            let problem =
                read_within(Duration::ZERO, STALL, body, usize::MAX / 2, None).await.expect_err("it has no end");
            assert_eq!(problem.code(), Code::Malformed);
        }
        assert_eq!(earned(60 * BYTES_PER_SECOND), Duration::from_secs(60));
        let problem = read(endless(BYTES_PER_SECOND), 2 * BYTES_PER_SECOND, None).await.expect_err("it has no end");
        assert_eq!(problem.code(), Code::TooLarge);
    }

    /// S-12: a body that came fast and then stalls has no more time than one that never began.
    #[tokio::test]
    async fn a_body_that_stalls_is_given_up() {
        let (patience, stall) = (Duration::from_millis(200), Duration::from_millis(50));
        let big = || Bytes::from(vec![b'x'; 200 * BYTES_PER_SECOND]);
        let silent = stream::iter([Ok::<_, Infallible>(Frame::data(big()))]).chain(stream::pending());
        // One byte now and then.
        let drops = stream::unfold(big(), |piece| async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Some((Ok::<_, Infallible>(Frame::data(piece)), Bytes::from_static(b"x")))
        });
        let began = Instant::now();
        for body in [Body::new(StreamBody::new(silent)), Body::new(StreamBody::new(Box::pin(drops)))] {
            let problem = read_within(patience, stall, body, usize::MAX / 2, None).await.expect_err("it has no end");
            assert_eq!(problem.code(), Code::Malformed);
        }
        assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
    }

    /// SECURITY.md: bodies of strangers have a bounded room together, on all addresses, and give it back.
    #[tokio::test]
    async fn bodies_of_strangers_are_bounded_together() {
        let room = Room::default();
        let of = async |size: usize, address: Option<&str>| {
            let mut part = room.part(address.map(str::to_owned));
            read(Body::from(vec![b'x'; size]), MAX_OF_STRANGERS, Some(&mut part)).await.map(|bytes| (bytes, part))
        };
        let (bytes, first) = of(MAX_OF_STRANGERS - 1, None).await.expect("there is room");
        assert_eq!(bytes.len(), MAX_OF_STRANGERS - 1);
        let (_, second) = of(1, None).await.expect("there is room");
        assert_eq!(of(1, None).await.expect_err("there is none").code(), Code::TooManyRequests);
        drop((first, second));
        drop(of(MAX_OF_STRANGERS, None).await.expect("there is room again"));
        assert!(of(0, None).await.is_ok());
        // One address leaves room for the others.
        let of_one = of(MAX_OF_ADDRESS, Some("::1")).await.expect("there is room");
        assert_eq!(of(1, Some("::1")).await.expect_err("its share is taken").code(), Code::TooManyRequests);
        drop(of(1, Some("::2")).await.expect("there is room"));
        drop(of_one);
        assert!(of(1, Some("::1")).await.is_ok());
        assert!(room.shares().is_empty());
    }
}

//! A connection that is closed if its client accepts no data for a while, and that delivers its last response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::unread::Unread;

/// Maximum time in which a client accepts no data.
const STALLED: Duration = Duration::from_secs(30);

/// Time in which a client must stop sending a refused body.
const LAST_BYTES: Duration = Duration::from_secs(5);

/// Maximum size of a refused body that is read and dropped, in bytes.
const MAX_DROPPED: usize = 64 * 1024 * 1024;

/// A connection whose writes fail after a while without progress.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// The deadline of a waiting write.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Tracks a body that the client may still be sending.
    unread: Unread,
    /// The end of the time, and the remaining bytes, while a refused body is dropped.
    dropping: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, unread: Unread) -> Self {
        Self::with_patience(stream, STALLED, unread)
    }

    fn with_patience(stream: S, patience: Duration, unread: Unread) -> Self {
        Self { stream, patience, deadline: None, unread, dropping: None }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.deadline = None;
            return poll;
        }
        let until = Instant::now() + self.patience;
        let sleep = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        match sleep.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watch(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, poll)
    }

    /// Closes the write side. If the client has not sent all of a body, the connection reads on for a while: closing with unread
    /// bytes resets it, and the client loses the response that says why.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, unread, dropping, .. } = &mut *self;
        if dropping.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            if !unread.is_there() {
                return Poll::Ready(Ok(()));
            }
        }
        let (sleep, left) = dropping.get_or_insert_with(|| (Box::pin(tokio::time::sleep(LAST_BYTES)), MAX_DROPPED));
        let mut bytes = [0; 8 * 1024];
        while *left > 0 && sleep.as_mut().poll(cx).is_pending() {
            let mut piece = ReadBuf::new(&mut bytes);
            // The error of a finished connection is of no interest.
            if ready!(Pin::new(&mut *stream).poll_read(cx, &mut piece)).is_err() || piece.filled().is_empty() {
                break;
            }
            *left = left.saturating_sub(piece.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// S-73: a connection whose client accepts nothing fails after its patience of 30 s; one whose client reads continues.
    #[tokio::test]
    async fn a_client_that_accepts_nothing_is_given_up() {
        let (mut client, server) = duplex(16);
        let mut patient = Patient::with_patience(server, Duration::from_millis(1), Unread::default());
        // The client reads nothing, and the pipe has less room than that.
        let error = patient.write_all(&[0; 17]).await.expect_err("the client has stalled");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut read = [0; 16];
        client.read_exact(&mut read).await.expect("the first bytes");
        patient.write_all(&[1; 16]).await.expect("the client reads again");
        assert_eq!((Patient::new(client, Unread::default()).patience, STALLED), (STALLED, Duration::from_secs(30)));
    }
    /// S-26: the rest of a refused body is read, so that its client gets the response; without one, the connection ends at once.
    #[tokio::test]
    async fn a_client_that_sends_a_refused_body_gets_its_response() {
        let (mut client, server) = duplex(16);
        let unread = Unread::default();
        let mut patient = Patient::new(server, unread.clone());
        patient.shutdown().await.expect("no body is there");
        assert_eq!(client.read(&mut [0; 1]).await.expect("the end"), 0);

        let (mut client, server) = duplex(16);
        unread.set(true);
        let mut patient = Patient::new(server, unread);
        patient.write_all(b"refused").await.expect("there is room");
        let ended = tokio::spawn(async move { patient.shutdown().await });
        client.write_all(&[0; 4096]).await.expect("it is read");
        let mut response = String::new();
        client.read_to_string(&mut response).await.expect("a response");
        assert_eq!(response, "refused");
        drop(client);
        ended.await.expect("no panic").expect("the end");
    }
}

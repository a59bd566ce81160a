//! Detection of request bodies that were refused before they were read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// True if the last request of a connection has a body that was not read to its end. The connection ends with its response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unread(Arc<AtomicBool>);

impl Unread {
    pub(crate) fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, is_there: bool) {
        self.0.store(is_there, Ordering::Relaxed);
    }

    /// Watches the body of the next request.
    pub(crate) fn watch(&self, body: Incoming) -> Watched {
        self.set(false);
        Watched { body, has_ended: false, unread: self.clone() }
    }
}

/// A body that sets [`Unread`] if it is dropped before its end.
#[derive(Debug)]
pub(crate) struct Watched {
    body: Incoming,
    has_ended: bool,
    unread: Unread,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.has_ended = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.unread.set(!self.has_ended && !self.body.is_end_stream());
    }
}

//! Probe for revision 2026-07-28 that also works for servers that ignore it.
//!
//! A server of an earlier revision should refuse `server/discover`, and some are silent instead. The protocol library then
//! waits 10 s. Here the silence counts as a refusal much earlier, and `initialize` follows on the same connection. A late
//! response is dropped and remembered: if `initialize` fails, the server is opened again with that revision.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::model::{ClientRequest, DiscoverRequestMethod, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::{Instant, sleep_until};

/// Maximum wait for a response to `server/discover`.
const PATIENCE: Duration = Duration::from_millis(500);

/// A transport that refuses `server/discover` on behalf of a server that ignores it.
pub(super) struct Probing<T> {
    inner: T,
    /// The pending probe, and the time at which the silence counts as a refusal.
    asked: Option<(RequestId, Instant)>,
    /// The probe that was refused on behalf of the server.
    refused: Option<RequestId>,
    /// Set when the server has responded to that probe late.
    has_answered_late: Arc<AtomicBool>,
}

impl<T> Probing<T> {
    pub(super) fn new(inner: T, has_answered_late: Arc<AtomicBool>) -> Self {
        Self { inner, asked: None, refused: None, has_answered_late }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Probing<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
        {
            self.asked = Some((request.id.clone(), Instant::now() + PATIENCE));
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = match self.asked.clone() {
                None => self.inner.receive().await?,
                Some((id, until)) => tokio::select! {
                    biased;
                    message = self.inner.receive() => message?,
                    () = sleep_until(until) => {
                        self.asked = None;
                        self.refused = Some(id.clone());
                        let refusal = ErrorData::method_not_found::<DiscoverRequestMethod>();
                        return Some(JsonRpcMessage::error(refusal, Some(id)));
                    }
                },
            };
            let answered = match &message {
                JsonRpcMessage::Response(response) => Some((&response.id, true)),
                JsonRpcMessage::Error(error) => error.id.as_ref().map(|id| (id, false)),
                _ => None,
            };
            if let Some((id, is_success)) = answered {
                if self.refused.as_ref() == Some(id) {
                    self.has_answered_late.fetch_or(is_success, Ordering::SeqCst);
                    continue;
                }
                self.asked.take_if(|(asked, _)| asked == id);
            }
            return Some(message);
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

//! Buffer of streamed model output until an observer takes it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use etude_core::effect::EffectId;
use etude_core::model::{Piece, TransportWait};
use tokio::sync::Notify;

use crate::host::OnDelta;

/// Pieces of responses that no observer has taken yet. Pieces of one response are joined while they wait: a model never
/// waits for the observer, nothing is lost, and the buffer never exceeds the size of the responses.
#[derive(Debug, Default)]
pub(crate) struct StreamBuffer {
    waiting: Mutex<BTreeMap<EffectId, Deltas>>,
    news: Notify,
}

/// Pieces of one response since the observer took it last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Deltas {
    pub(crate) text: String,
    /// True if earlier pieces are void because the response restarted.
    pub(crate) is_again: bool,
    /// Waits of the transport before the answer, oldest first.
    pub(crate) waits: Vec<TransportWait>,
}

impl StreamBuffer {
    /// Collects the pieces of the response to `effect`.
    pub(crate) fn on_delta(self: &Arc<Self>, effect: &EffectId) -> OnDelta {
        let (stream_buffer, effect) = (Arc::clone(self), effect.clone());
        Arc::new(move |piece| {
            {
                let mut waiting = stream_buffer.lock();
                let deltas = waiting.entry(effect.clone()).or_default();
                match piece {
                    Piece::Text(text) => deltas.text.push_str(text),
                    Piece::Restarted => {
                        deltas.text.clear();
                        deltas.is_again = true;
                    }
                    Piece::Waiting(wait) => deltas.waits.push(wait.clone()),
                }
            }
            stream_buffer.news.notify_one();
        })
    }

    /// Returns when a piece has arrived since the last call.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Takes the pieces of all responses.
    pub(crate) fn take_all(&self) -> BTreeMap<EffectId, Deltas> {
        std::mem::take(&mut *self.lock())
    }

    /// Takes the pieces of one response.
    pub(crate) fn take(&self, effect: &EffectId) -> Option<Deltas> {
        self.lock().remove(effect)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<EffectId, Deltas>> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// text of an attempt that broke off does not stand before the text of the next attempt.
    #[tokio::test]
    async fn pieces_are_joined_until_an_observer_takes_them() {
        let stream_buffer = Arc::new(StreamBuffer::default());
        let (one, two) = (EffectId::new("p/one#1"), EffectId::new("p/two#1"));
        let (first, second) = (stream_buffer.on_delta(&one), stream_buffer.on_delta(&two));
        first(Piece::Text("a"));
        second(Piece::Text("x"));
        first(Piece::Text("b"));
        stream_buffer.news().await;
        let deltas = |text: &str, is_again| Deltas { text: text.to_owned(), is_again, waits: Vec::new() };
        assert_eq!(stream_buffer.take(&two), Some(deltas("x", false)));
        assert_eq!(stream_buffer.take_all(), BTreeMap::from([(one.clone(), deltas("ab", false))]));
        first(Piece::Text("c"));
        first(Piece::Restarted);
        first(Piece::Text("d"));
        assert_eq!(stream_buffer.take(&one), Some(deltas("d", true)));
        assert_eq!(stream_buffer.take(&one), None);
    }
}

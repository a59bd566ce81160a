//! What models are saying, until somebody is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use etude_core::effect::EffectId;
use etude_core::model::{Piece, TransportWait};
use tokio::sync::Notify;

use crate::host::Listener;

/// The pieces of answers that nobody was told yet. Pieces of one answer are joined while they wait: a model never waits
/// for whoever watches, nothing is lost, and there is never more than the answers themselves hold.
#[derive(Debug, Default)]
pub(crate) struct Voices {
    waiting: Mutex<BTreeMap<EffectId, Said>>,
    news: Notify,
}

/// What was said of one answer since somebody was told last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// What was told before counts for nothing.
    pub(crate) is_again: bool,
    /// Waits of the transport before the answer, oldest first.
    pub(crate) waits: Vec<TransportWait>,
}

impl Voices {
    /// Takes down what is said of the answer to `effect`.
    pub(crate) fn listener(self: &Arc<Self>, effect: &EffectId) -> Listener {
        let (voices, effect) = (Arc::clone(self), effect.clone());
        Arc::new(move |piece| {
            {
                let mut waiting = voices.lock();
                let said = waiting.entry(effect.clone()).or_default();
                match piece {
                    Piece::Text(text) => said.text.push_str(text),
                    Piece::Again => {
                        said.text.clear();
                        said.is_again = true;
                    }
                    Piece::Waiting(wait) => said.waits.push(wait.clone()),
                }
            }
            voices.news.notify_one();
        })
    }

    /// Comes back when something was said since the last time.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Takes what has been said of all answers.
    pub(crate) fn take_all(&self) -> BTreeMap<EffectId, Said> {
        std::mem::take(&mut *self.lock())
    }

    /// Takes what has been said of one answer.
    pub(crate) fn take(&self, effect: &EffectId) -> Option<Said> {
        self.lock().remove(effect)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<EffectId, Said>> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// what a try that broke off has said does not stand before what the next one says.
    #[tokio::test]
    async fn pieces_are_joined_until_somebody_is_told() {
        let voices = Arc::new(Voices::default());
        let (one, two) = (EffectId::new("p/one#1"), EffectId::new("p/two#1"));
        let (first, second) = (voices.listener(&one), voices.listener(&two));
        first(Piece::Text("a"));
        second(Piece::Text("x"));
        first(Piece::Text("b"));
        voices.news().await;
        let said = |text: &str, is_again| Said { text: text.to_owned(), is_again, waits: Vec::new() };
        assert_eq!(voices.take(&two), Some(said("x", false)));
        assert_eq!(voices.take_all(), BTreeMap::from([(one.clone(), said("ab", false))]));
        first(Piece::Text("c"));
        first(Piece::Again);
        first(Piece::Text("d"));
        assert_eq!(voices.take(&one), Some(said("d", true)));
        assert_eq!(voices.take(&one), None);
    }
}

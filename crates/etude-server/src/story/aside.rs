//! Live stderr output of runs of this server. It is not in the journal as events, so it has no ids, and a slow client misses some
//! of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::body::Bytes;
use etude_runtime::driver::Progress;
use serde_json::json;
use tokio::sync::broadcast;

/// Maximum number of pieces that wait for a client: with [`MAX_TEXT`] a quarter of a mebibyte.
const PIECES: usize = 32;

/// Maximum size of a piece, in bytes.
const MAX_TEXT: usize = 8 * 1024;

/// The runs that clients follow.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    followed: Mutex<BTreeMap<String, broadcast::Sender<Bytes>>>,
}

impl Asides {
    /// A receiver of the run's output from now on.
    pub(crate) fn subscribe(&self, run_id: &str) -> broadcast::Receiver<Bytes> {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        followed.retain(|_, sender| sender.receiver_count() > 0);
        followed.entry(run_id.to_owned()).or_insert_with(|| broadcast::channel(PIECES).0).subscribe()
    }

    /// Passes output of a run on, if a client follows the run.
    pub(crate) fn say(&self, run_id: &str, progress: &Progress<'_>) {
        let Progress::Stderr { effect, bytes } = progress else { return };
        let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = followed.get(run_id) else { return };
        for piece in bytes.chunks(MAX_TEXT) {
            let body = json!({"event": "stderr", "effect": effect.as_str(), "text": String::from_utf8_lossy(piece)});
            // The last follower may have left.
            let _ = sender.send(format!("event: stderr\ndata: {body}\n\n").into());
        }
    }
}

/// The event for a received piece, or for the number of missed pieces. `None` at the end.
pub(crate) fn text(received: Result<Bytes, broadcast::error::RecvError>) -> Option<Bytes> {
    match received {
        Ok(text) => Some(text),
        Err(broadcast::error::RecvError::Lagged(dropped)) => {
            Some(format!("event: gap\ndata: {}\n\n", json!({"event": "gap", "dropped": dropped})).into())
        }
        Err(broadcast::error::RecvError::Closed) => None,
    }
}

#[cfg(test)]
mod tests {
    use etude_core::effect::EffectId;

    use super::*;

    /// S-67, S-73: a slow client keeps a bounded number of pieces, and a gap says how many it has missed.
    #[tokio::test]
    async fn a_slow_client_misses_pieces_and_a_gap_counts_them() {
        let asides = Asides::default();
        let effect = EffectId::new("p/s");
        let say = |bytes: &[u8]| asides.say("r", &Progress::Stderr { effect: &effect, bytes });
        say(b"no one follows");
        let mut slow = asides.subscribe("r");
        (0..PIECES + 3).for_each(|_| say(b"x"));
        say(&[b'y'; 3 * MAX_TEXT]);
        assert_eq!(
            text(slow.recv().await).as_deref(),
            Some(&b"event: gap\ndata: {\"event\":\"gap\",\"dropped\":6}\n\n"[..])
        );
        let mut kept = 0;
        while let Ok(piece) = slow.try_recv() {
            let piece = std::str::from_utf8(&piece).expect("text");
            assert!(!piece.contains("id: ") && piece.len() < 2 * MAX_TEXT, "{piece}");
            kept += 1;
        }
        assert_eq!(kept, PIECES);
        drop(slow);
        drop(asides.subscribe("other"));
        assert!(!asides.followed.lock().expect("no panic").contains_key("r"));
    }
}

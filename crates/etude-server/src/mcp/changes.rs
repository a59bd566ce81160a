//! Changes of definitions while clients of the protocol listen: one look serves all of them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::server::Server;
use crate::settings::ServedApp;

/// Minimum pause between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// A pause lasts at least this multiple of the last look's duration: looks take one hundredth of a processor at most.
const LOOKS: u32 = 100;

/// Looks for changes while at least one client listens, until the task is aborted.
pub(crate) async fn look(server: Arc<Server>) {
    let mut pause = PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = PAUSE;
        let definitions = &server.protocol_shared().definitions;
        if definitions.receiver_count() == 0 {
            continue;
        }
        let (of, began) = (Arc::clone(&server), Instant::now());
        let Ok(digest) = tokio::task::spawn_blocking(move || digest(&of)).await else { continue };
        pause = pause.max(began.elapsed() * LOOKS);
        definitions.send_if_modified(|known| std::mem::replace(known, digest) != digest);
    }
}

/// A digest of everything that the tool lists depend on. An unreadable file is a state, too.
fn digest(server: &Server) -> u64 {
    let mut hasher = DefaultHasher::new();
    let of = |app: &ServedApp| {
        let list = server.apps().list(&app.dir).map_or_else(|why| why, |list| list.to_string());
        let mcp = server.context().automation(app).ok().map(|automation| format!("{:?}", automation.mcp));
        (app.slug.clone(), list, mcp)
    };
    server.settings().apps.iter().map(of).for_each(|app| app.hash(&mut hasher));
    hasher.finish()
}

//! Driving runs beside a server: one that serves the same app drives them instead, so that they outlive the client.

use std::sync::Arc;
use std::time::Duration;

use etude_runtime::engine::{Query, RunRow};

use crate::run::{blocking, engine_failed};
use crate::server::Server;
use crate::{client, work};

/// The time that another server has to respond.
const RESPONSE: Duration = Duration::from_secs(1);

/// Drives runs whenever no other server of this user does.
pub(super) async fn work(server: Arc<Server>) {
    let mut stopping = server.stopping();
    let mut news = server.news_of_journal();
    loop {
        if server.is_draining() {
            return;
        }
        if !is_served(&server).await {
            work::look(&server, true).await;
        }
        tokio::select! {
            () = server.works().wake.notified() => {}
            _ = news.changed() => {}
            () = tokio::time::sleep(work::LOOK) => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

/// True if another server knows the newest run of the apps, and so serves them.
async fn is_served(server: &Arc<Server>) -> bool {
    let of = Arc::clone(server);
    let newest = blocking(move || {
        let query = Query { apps: of.dirs(), limit: Some(1), ..Query::default() };
        let rows: Vec<RunRow> = of.engine().list(&query).map_err(|e| engine_failed(&e))?;
        Ok(rows.into_iter().next())
    });
    let Ok(Some(newest)) = newest.await else { return false };
    let Ok(token) = server.tokens().owner() else { return false };
    let path = format!("/v1/runs/{}", newest.id);
    for socket in client::sockets(&server.settings().state_dir.join("serve")) {
        let read = client::get(&socket, &path, &token);
        if let Ok(Ok((200, _))) = tokio::time::timeout(RESPONSE, read).await {
            return true;
        }
    }
    false
}

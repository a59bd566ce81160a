//! Driving of runs beside a server: a server of the same app drives them instead, so that they outlive the client.

use std::sync::Arc;
use std::time::Duration;

use etude_runtime::engine::{Query, RunRow};
use serde_json::Value;

use crate::blocking::blocking;
use crate::problem::engine_failed;
use crate::server::Server;
use crate::{client, work};

/// Time limit for the response of another server.
const RESPONSE: Duration = Duration::from_secs(1);

/// Drives runs whenever no other server of this user does.
pub(crate) async fn work(server: Arc<Server>) {
    let mut stopping = server.context().stopping();
    let mut news = server.stories().news_of_journal();
    loop {
        if server.context().is_draining() {
            return;
        }
        if !look(&server).await {
            work::look(server.works(), true).await;
        }
        tokio::select! {
            () = server.works().wake.notified() => {}
            _ = news.changed() => {}
            () = tokio::time::sleep(work::LOOK) => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

/// True if another server serves the apps. Stores the address of its pages for links.
pub(super) async fn look(server: &Arc<Server>) -> bool {
    let other = find(server).await;
    *server.protocol_shared().others_pages() = other.clone().flatten();
    other.is_some()
}

/// The address of the pages of another server, if one knows the newest run of the apps and therefore serves them. The inner
/// `None`: that server has no pages on the network.
async fn find(server: &Arc<Server>) -> Option<Option<String>> {
    let of = Arc::clone(server);
    let newest = blocking(move || {
        let query = Query { apps: of.context().dirs(), limit: Some(1), ..Query::default() };
        let rows: Vec<RunRow> = of.engine().list(&query).map_err(|e| engine_failed(&e))?;
        Ok(rows.into_iter().next())
    });
    let newest = newest.await.ok().flatten()?;
    let token = server.tokens().owner().ok()?;
    let path = format!("/v1/runs/{}?brief=true", newest.id);
    for socket in client::sockets(&server.settings().state_dir.join("serve")) {
        let get = async |path| tokio::time::timeout(RESPONSE, client::get(&socket, path, &token)).await;
        if let Ok(Ok((200, _))) = get(&path).await {
            let about = match get("/v1/server").await {
                Ok(Ok((200, body))) => serde_json::from_slice::<Value>(&body).unwrap_or_default(),
                _ => Value::Null,
            };
            return Some(about["url"].as_str().map(str::to_owned));
        }
    }
    None
}

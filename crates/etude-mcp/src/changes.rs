//! Changes of the list of tools: `notifications/tools/list_changed`.
//!
//! A client that began with `initialize` on a pair of streams is notified without a request. In 2026-07-28 a client listens
//! (`subscriptions/listen`) and is notified until it cancels the request. Over HTTP the earlier revisions have no connection for
//! notifications.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::catalog::Catalog;
use crate::peer::Peer;
use crate::service::{Context, Service};
use crate::wire::{Outcome, Params, Revision, RpcError, meta, raw};

const CHANGED: &str = "notifications/tools/list_changed";

/// The current list of tools as one text; `None` if it cannot be read.
async fn list(service: &Service, context: &Context) -> Option<String> {
    let context = Context { settings: service.api.settings().await, ..context.clone() };
    let catalog = Catalog::read(&*service.api, &service.selection, &context).await.ok()?;
    Some(Value::from(catalog.documents()).to_string())
}

/// Notifies a client of each change of the tools that it has listed. Ends with the server.
pub(crate) async fn notify(service: Arc<Service>, peer: Arc<Peer>) {
    let mut listed = service.listed.subscribe();
    if listed.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let mut news = service.api.definitions();
    let context = Context::new(Revision::November2025, &peer);
    while news.changed().await.is_ok() {
        let Some(now) = list(&service, &context).await else { continue };
        let is_news =
            service.listed.send_if_modified(|known| known.replace(now.clone()).is_none_or(|known| known != now));
        if is_news {
            peer.notify(CHANGED, &json!({}));
        }
    }
}

/// `subscriptions/listen`: notifies the client of the requested changes until it cancels the request, or the server stops.
pub(crate) async fn listen(service: &Service, context: &Context, params: &Params) -> Outcome {
    let wanted = params.members.get("notifications").and_then(Value::as_object);
    let wanted = wanted.ok_or_else(|| RpcError::params("`notifications` is required and must be an object"))?;
    let wants_tools = wanted.get("toolsListChanged") == Some(&Value::Bool(true));
    let accepted: Map<String, Value> =
        wants_tools.then(|| ("toolsListChanged".to_owned(), true.into())).into_iter().collect();
    let of = json!({meta::SUBSCRIPTION: context.id});
    let mut news = service.api.definitions();
    let mut known = list(service, context).await;
    let peer = &context.peer;
    peer.notify("notifications/subscriptions/acknowledged", &json!({"notifications": accepted, "_meta": of}));
    let notify = async {
        while wants_tools && news.changed().await.is_ok() {
            let now = list(service, context).await;
            if now.is_some() && now != known {
                known = now;
                peer.notify(CHANGED, &json!({"_meta": of}));
            }
        }
        std::future::pending::<()>().await;
    };
    let mut stopping = service.api.stopping();
    tokio::select! {
        () = notify => {}
        () = peer.gone() => {}
        Ok(_) = stopping.wait_for(|stop| *stop) => {}
    }
    raw(&json!({"_meta": of}))
}

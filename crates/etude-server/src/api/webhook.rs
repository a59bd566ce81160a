//! Deliveries to webhooks, and their outcomes.

use std::sync::Arc;

use etude_runtime::clock::rfc3339;
use etude_runtime::engine::Entry;
use etude_spec::automation::{Automation, Target, Webhook};
use http::StatusCode;
use serde_json::{Value, json};

use crate::automation::broken;
use crate::blocking::blocking;
use crate::ledger::{Page, book};
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::response::json_response;
use crate::server::Server;
use crate::settings::ServedApp;
use crate::webhook::{self, Incoming, Received};

/// Maximum size of a body, in bytes.
pub(crate) const BODY: usize = 8 * 1024 * 1024;

/// `POST /in/{app}/{name}`.
pub(crate) async fn receive(call: Call) -> Respond {
    let (server, headers) = (Arc::clone(&call.server), call.headers.clone());
    let (slug, name) = (call.param("app").to_owned(), call.param("name").to_owned());
    let of = Arc::clone(&server);
    // Look it up before the body arrives: strangers cannot fill the server with bodies for webhooks that do not exist.
    let (app, automation, index) = blocking(move || find(&of, &slug, &name)).await?;
    let bytes = call.bytes().await?;
    let document = blocking(move || {
        let now_ms = server.clock().now_ms();
        webhook::accept(server.webhooks(), &Incoming { app, automation, index, headers, bytes, now_ms })
    });
    Ok(match document.await? {
        Received::Delivery(document) => json_response(StatusCode::ACCEPTED, &document),
        Received::Handshake(answer) => json_response(StatusCode::OK, &answer),
    })
}

/// The webhook of a delivery: its app, and its index in the automation of that app.
fn find(server: &Server, slug: &str, name: &str) -> Result<(ServedApp, Arc<Automation>, usize), Problem> {
    let unknown = || Problem::not_found("there is no such webhook");
    let app = server.context().app(slug).cloned().ok_or_else(unknown)?;
    let automation = server.context().automation(&app).map_err(|_| unavailable())?;
    // The sender tries again: the delivery is not lost while the file is edited.
    if !automation.unreadable.is_empty() {
        return Err(unavailable());
    }
    let is_wanted = |webhook: &Webhook| webhook.name == name && webhook.broken.is_empty();
    let index = automation.webhooks.iter().position(is_wanted).ok_or_else(unknown)?;
    Ok((app, automation, index))
}

/// The problem of an app whose configuration cannot be read. Strangers do not learn the reason. The contract has two codes with
/// this status, and the server does not drain.
fn unavailable() -> Problem {
    Problem::new(Code::JournalUnavailable, "the configuration of the app cannot be read").retry_after(5)
}

/// `GET /v1/webhooks`.
pub(crate) async fn list(call: Call) -> Respond {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let documents = blocking(move || {
        let mut documents = Vec::new();
        for (app, automation) in server.context().automations() {
            let is_visible =
                |webhook: &&Webhook| webhook.target.as_ref().is_none_or(|target| caller.covers(target.name()));
            documents.extend(automation.webhooks.iter().filter(is_visible).map(|webhook| document(app, webhook)));
        }
        Ok(documents)
    });
    Ok(json_response(StatusCode::OK, &json!({"webhooks": documents.await?})))
}

fn document(app: &ServedApp, webhook: &Webhook) -> Value {
    let (pipeline, machine) = Target::names(webhook.target.as_ref());
    json!({
        "app": app.slug, "name": webhook.name, "pipeline": pipeline, "machine": machine,
        "kind": webhook.verify.as_ref().map(|verify| verify.kind.word()), "path": format!("/in/{}/{}", app.slug, webhook.name),
        "broken": broken(&webhook.broken),
    })
}

/// `GET /v1/webhooks/{app}/{name}/deliveries`.
pub(crate) async fn deliveries(call: Call) -> Respond {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let (slug, name) = (call.param("app").to_owned(), call.param("name").to_owned());
    let page = Page::parse(&call.query, &[])?;
    let document = blocking(move || {
        let unknown = || Problem::not_found("there is no such webhook");
        let app = server.context().app(&slug).cloned().ok_or_else(unknown)?;
        let automation = server.context().automation(&app)?;
        let webhook = automation.webhooks.iter().find(|webhook| webhook.name == name).ok_or_else(unknown)?;
        if webhook.target.as_ref().is_some_and(|target| !caller.covers(target.name())) {
            return Err(unknown());
        }
        let (entries, next) = page.read(server.ledger(), book::webhook(&app, &name))?;
        let documents: Vec<Value> = entries.iter().map(delivery).collect();
        Ok(json!({"deliveries": documents, "next": next}))
    });
    Ok(json_response(StatusCode::OK, &document.await?))
}

fn delivery(entry: &Entry) -> Value {
    let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
    json!({
        "delivery_id": body["delivery_id"], "at": rfc3339(entry.at_ms), "headers": body["headers"],
        "verdict": entry.state, "reason": body["reason"], "run_id": entry.run_id,
    })
}

//! Notices and their deliveries.

use std::sync::Arc;

use etude_runtime::clock::rfc3339;
use etude_runtime::engine::{Entry, EntryQuery, Expected, Write};
use etude_spec::automation::Notice;
use http::StatusCode;
use serde_json::{Value, json};

use crate::automation::broken;
use crate::blocking::blocking;
use crate::ledger::{Page, book};
use crate::problem::Problem;
use crate::request::{Call, Respond};
use crate::response::json_response;
use crate::settings::ServedApp;

/// `GET /v1/notices`.
pub(crate) async fn list(call: Call) -> Respond {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let documents = blocking(move || {
        let mut documents = Vec::new();
        // A notice reports targets that a token with `--only` may not see.
        for (app, automation) in server.context().automations().filter(|_| caller.only.is_empty()) {
            documents.extend(automation.notices.iter().map(|notice| document(app, notice)));
        }
        Ok(documents)
    });
    Ok(json_response(StatusCode::OK, &json!({"notices": documents.await?})))
}

fn document(app: &ServedApp, notice: &Notice) -> Value {
    // The path of a receiver may be a secret.
    let receiver = match url::Url::parse(&notice.url) {
        Ok(url) if url.has_host() => url.origin().ascii_serialization(),
        _ => notice.url.clone(),
    };
    json!({
        "app": app.slug, "name": notice.name, "receiver": receiver, "on": notice.on, "pipelines": notice.pipelines,
        "allow_private": notice.allows_private, "broken": broken(&notice.broken),
    })
}

/// `GET /v1/notices/{app}/{name}/deliveries`.
pub(crate) async fn deliveries(call: Call) -> Respond {
    let (server, caller, page) = (Arc::clone(&call.server), call.caller()?.clone(), Page::parse(&call.query, &[])?);
    let (slug, name) = (call.param("app").to_owned(), call.param("name").to_owned());
    let document = blocking(move || {
        let unknown = || Problem::not_found("there is no such notice");
        let app = server.context().app(&slug).cloned().ok_or_else(unknown)?;
        let automation = server.context().automation(&app)?;
        // A notice reports targets that a token with `--only` may not see.
        if !automation.notices.iter().any(|notice| notice.name == name) || !caller.only.is_empty() {
            return Err(unknown());
        }
        let (entries, next) = page.read(server.ledger(), book::notice(&app, &name))?;
        let documents: Vec<Value> = entries.iter().map(delivery).collect();
        Ok(json!({"deliveries": documents, "next": next}))
    });
    Ok(json_response(StatusCode::OK, &document.await?))
}

fn delivery(entry: &Entry) -> Value {
    let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
    json!({
        "delivery_id": entry.key, "at": rfc3339(entry.at_ms), "type": body["payload"]["type"],
        "run_id": entry.run_id, "state": entry.state, "attempts": body["attempts"],
    })
}

/// `POST /v1/notices/{app}/{name}/deliveries/{delivery}/again`: makes a notice that was set aside due at once.
pub(crate) async fn redeliver(call: Call) -> Respond {
    call.json(&[]).await?;
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let (slug, name, delivery_id) =
        (call.param("app").to_owned(), call.param("name").to_owned(), call.param("delivery").to_owned());
    let document = blocking(move || {
        let unknown = || Problem::not_found("there is no such failed notice");
        let app = server.context().app(&slug).filter(|_| caller.only.is_empty()).ok_or_else(unknown)?;
        let (book, key) = (book::notice(app, &name), Some(delivery_id));
        let query = EntryQuery { book, key, state: Some("failed".to_owned()), ..EntryQuery::default() };
        let failed = server.ledger().entries(&query)?.pop().ok_or_else(unknown)?;
        let expected = Expected::Entry { state: failed.state.clone(), due_ms: failed.due_ms };
        let entry = Entry { state: "pending".to_owned(), due_ms: Some(server.clock().now_ms()), ..failed };
        let document = delivery(&entry);
        server.ledger().write(&Write { entry, expected, submission: None, is_alone: false })?;
        Ok(document)
    });
    Ok(json_response(StatusCode::ACCEPTED, &document.await?))
}

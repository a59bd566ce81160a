//! The served apps, and their commands.

use std::sync::Arc;

use etude_core::model::Usage;
use serde_json::{Value, json};

use crate::app::{AppCommand, Ran};
use crate::blocking::blocking;
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::response::{json_response, tagged, text_response};
use crate::server::Server;
use crate::settings::ServedApp;
use crate::token::Caller;
use crate::work::Sending;

/// `GET /v1/apps`.
pub(crate) async fn list(call: Call) -> Respond {
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let listed = tokio::task::spawn_blocking(move || {
        let apps = server.settings().apps.iter();
        apps.map(|app| read(&server, &caller, app).unwrap_or_else(|why| unreadable(app, &why))).collect::<Vec<_>>()
    });
    let apps = listed.await.map_err(|_| Problem::new(Code::Bug, "internal error: listing the apps panicked"))?;
    Ok(json_response(http::StatusCode::OK, &json!({ "apps": apps })))
}

/// The app that the path names, or 404.
pub(crate) fn app(call: &Call) -> Result<ServedApp, Problem> {
    call.server.context().app(call.param("app")).cloned().ok_or_else(|| Problem::not_found("there is no such app"))
}

/// `GET /v1/apps/{app}`.
pub(crate) async fn show(call: Call) -> Respond {
    let app = app(&call)?;
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let document = tokio::task::spawn_blocking(move || document(&server, &caller, &app)).await;
    let document = document.map_err(|_| Problem::new(Code::Bug, "internal error: reading the app panicked"))??;
    Ok(tagged(&call.headers, document.to_string()))
}

/// The document of an app, or the problem of an app that cannot be read.
fn document(server: &Server, caller: &Caller, app: &ServedApp) -> Result<Value, Problem> {
    present(app)?;
    read(server, caller, app).map_err(|why| Problem::new(Code::DefinitionInvalid, why))
}

/// Fails while the app's directory is missing, for example during a deployment; the client can retry.
fn present(app: &ServedApp) -> Result<(), Problem> {
    let away = || Problem::new(Code::JournalUnavailable, format!("there is no directory `{}`", app.dir.display()));
    if app.dir.is_dir() { Ok(()) } else { Err(away()) }
}

/// The entry of an unreadable app in the list: the other apps stay listed.
fn unreadable(app: &ServedApp, why: &str) -> Value {
    let fault = json!({
        "code": etude_spec::Code::Unreadable.as_str(), "severity": "error", "message": why, "file": ".",
        "line": null, "column": null, "end_line": null, "end_column": null, "hint": null,
    });
    json!({
        "app": app.slug, "pipelines": [], "machines": [], "skills": [], "applications": [], "diagnostics": [fault],
    })
}

/// The document of an app, filtered for the caller (S-16): a token for some targets sees neither the others nor their faults.
fn read(server: &Server, caller: &Caller, app: &ServedApp) -> Result<Value, String> {
    let mut document = server.apps().list(&app.dir)?;
    document["app"] = app.slug.as_str().into();
    if caller.only.is_empty() {
        return Ok(document);
    }
    for (list, name) in [("pipelines", "name"), ("machines", "name"), ("skills", "name"), ("applications", "slug")] {
        if let Some(entries) = document[list].as_array_mut() {
            entries.retain(|entry| entry[name].as_str().is_some_and(|name| caller.covers(name)));
        }
    }
    document["diagnostics"] = json!([]);
    Ok(document)
}

/// `POST /v1/apps/{app}/route`.
pub(crate) async fn route(call: Call) -> Respond {
    let app = app(&call)?;
    let members = call.json(&["request"]).await?;
    let request = request_of(members.text("request")?)?;
    let (server, caller) = (Arc::clone(&call.server), call.caller()?.clone());
    let (document, _) = blocking(move || routed(&server, &caller, &app, &request)).await?;
    Ok(json_response(http::StatusCode::OK, &document))
}

/// The text of a request; empty ones are refused.
pub(crate) fn request_of(text: Option<String>) -> Result<String, Problem> {
    let text = text.filter(|text| !text.trim().is_empty());
    text.ok_or_else(|| Problem::invalid("/request", "`request` must describe the task in words"))
}

/// The routing of a request, without targets that the token may not see (S-16), and its costs.
pub(crate) fn routed(
    server: &Server,
    caller: &Caller,
    app: &ServedApp,
    request: &str,
) -> Result<(Value, Usage), Problem> {
    present(app)?;
    let (mut document, spent) = server.apps().route(&app.dir, request)?;
    let is_hidden = |name: &Value| name.as_str().is_some_and(|name| !caller.covers(name));
    let is_route_hidden = is_hidden(&document["pipeline"]);
    if let Some(candidates) = document["candidates"].as_array_mut() {
        candidates.retain(|candidate| !is_hidden(&candidate["name"]));
    }
    if is_route_hidden {
        for name in ["input", "sources", "unclear"] {
            document[name] = json!({});
        }
        (document["pipeline"], document["why"]) = (Value::Null, json!([]));
        let score = |nth: usize| document["candidates"][nth]["score"].as_f64().unwrap_or_default();
        let (first, second) = (score(0), score(1));
        (document["score"], document["margin"]) = (first.into(), (first - second).into());
    }
    Ok((document, spent))
}

/// `POST /v1/apps/{app}/commands/{slug}`: runs a command of an application.
pub(crate) async fn command(call: Call) -> Respond {
    let none = || Problem::not_found("there is no such application");
    let app = call.server.context().app(call.param("app")).cloned().ok_or_else(none)?;
    let slug = call.param("slug").to_owned();
    if !call.caller()?.covers(&slug) {
        return Err(none());
    }
    let members = call.json(&["argv", "stdin"]).await?;
    let argv = members.texts("argv")?.filter(|argv| !argv.is_empty());
    let argv = argv.ok_or_else(|| members.invalid("argv", "`argv` must have the words of the command"))?;
    let stdin = members.text("stdin")?;
    let server = Arc::clone(&call.server);
    // The server waits for the command before it stops.
    let (sending, given_up) = (Sending::new(server.works()), server.works().commands());
    let ran = blocking(move || {
        let _sending = sending;
        let ran = server.apps().command(&app.dir, AppCommand { slug, argv, stdin, given_up });
        ran.map_err(|why| Problem::new(Code::DefinitionInvalid, why))
    });
    let refused = |code, envelope: &str, why: &'static str| {
        let envelope = serde_json::from_str::<Value>(envelope).unwrap_or_default();
        Err(Problem::new(code, why).with("envelope", envelope))
    };
    match ran.await? {
        Ran::Ended(envelope) => Ok(text_response(http::StatusCode::OK, envelope)),
        Ran::Unconfirmed(envelope) => Err(unconfirmed(&envelope)),
        Ran::Unknown(envelope) => refused(Code::NotFound, &envelope, "there is no such application or command"),
        Ran::Invalid(envelope) => refused(Code::DefinitionInvalid, &envelope, "the application has errors"),
        Ran::NotTrusted(envelope) => {
            refused(Code::NotTrusted, &envelope, "the application is not trusted: etude trust")
        }
    }
}

/// The problem of a command that a person must confirm first; the detail names the command that confirms it.
fn unconfirmed(envelope: &str) -> Problem {
    let envelope = serde_json::from_str::<Value>(envelope).unwrap_or_default();
    let id = envelope["confirmation"]["id"].as_str().map(|id| format!(": etude approve {id}")).unwrap_or_default();
    Problem::new(Code::ConfirmationRequired, format!("a person must confirm the command{id}"))
        .with("envelope", envelope)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command that confirms is in the sentence that people see first.
    #[test]
    fn a_command_to_be_confirmed_names_its_question() {
        let detail = |envelope: &str| unconfirmed(envelope).to_json("", "r")["detail"].clone();
        let asked = r#"{"status": "confirmation_required", "confirmation": {"id": "ask-7"}}"#;
        assert_eq!(detail(asked), "a person must confirm the command: etude approve ask-7");
        assert_eq!(detail("{}"), "a person must confirm the command");
    }
}

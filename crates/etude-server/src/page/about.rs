//! The page about the server itself.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::shell::{Section, Shell};
use super::text::{ABSENT, number, visible};
use super::{glyph, segment, source};
use crate::request::{Call, Respond};

/// `GET /server`.
pub(crate) async fn server(call: Call) -> Respond {
    let shell = Shell::new(&call).await?;
    let server = source::get(&call, "/v1/server").await?;
    let me = source::get(&call, "/v1/me").await?;
    let counts = source::get(&call, "/v1/runs/counts").await?;
    let apps: Vec<&str> = server["apps"].as_array().into_iter().flatten().filter_map(|app| app.as_str()).collect();
    let count = |name: &str| counts[name].as_u64().unwrap_or(0);
    let list = |name: &str| {
        me[name].as_array().into_iter().flatten().filter_map(|one| one.as_str()).collect::<Vec<_>>().join(", ")
    };
    let is_draining = server["draining"] == true;
    let body = html! {
        div.head { div.line { h1 { "Server" } span.second { "etude " (server["version"].as_str().unwrap_or(ABSENT)) } } }
        div.body id="server" data-live {
            @if is_draining { div.notice role="alert" { p { "The server is stopping. The next server completes its runs." } } }
            @if count("interrupted") > 0 {
                div.notice { (glyph::drawn("interrupted")) p { (number(count("interrupted"))) " runs are interrupted: " a href=(shell.link("/?status=interrupted")) { "show them" } "." } }
            }
            section.card {
                dl.figures {
                    div { dt { "Running" } dd { (number(count("running"))) " " small { "of " (server["limits"]["max_runs"].as_u64().map_or_else(|| ABSENT.to_owned(), number)) } } }
                    div { dt { "Queued" } dd { (number(count("queued"))) " " small { "of " (server["limits"]["max_queued"].as_u64().map_or_else(|| ABSENT.to_owned(), number)) } } }
                    div { dt { "Waiting" } dd { (number(count("waiting"))) } }
                    div { dt { "Process" } dd { (server["pid"]) } }
                }
            }
            div.columns {
                div {
                    section.card {
                        header { h2 { "Apps" } span.grow {} a href=(shell.link("/schedules")) { "Schedules" } a href=(shell.link("/webhooks")) { "Webhooks" } }
                        @if apps.is_empty() { p.pad.dim { "None." } }
                        ul.rows { @for app in &apps { li { a href=(shell.link(&format!("/apps/{}", segment(app)))) { (visible(app)) } } } }
                    }
                }
                div {
                    section.card {
                        header { h2.grow { "You" } form method="post" action=(shell.link("/logout")) { button.link { "Log out" } } }
                        div.pad { dl.table {
                            dt { "Token" } dd { (visible(me["name"].as_str().unwrap_or(ABSENT))) }
                            dt { "Scopes" } dd { (list("scopes")) }
                            dt { "Pipelines" } dd { @if list("only").is_empty() { "all" } @else { (visible(&list("only"))) } }
                            dt { "Expires" } dd { @if me["expires_at"].is_string() { (shell.zone.moment(&me["expires_at"])) } @else { "never" } }
                        } }
                    }
                    @if let Some(tokens) = server["tokens"].as_array() { (tokens_of(&shell, tokens)) }
                    section.card {
                        header { h2 { "For programs" } }
                        ul.rows {
                            li { a href=(shell.link("/v1/openapi.json")) { "Description of the API" } }
                            li { a href=(shell.link("/metrics")) { "Metrics" } }
                        }
                    }
                }
            }
        }
    };
    Ok(shell.page(StatusCode::OK, "Server", Section::Server, body))
}

/// The tokens by name, for readers who may manage them.
fn tokens_of(shell: &Shell, tokens: &[Value]) -> Markup {
    let words = |token: &Value, member: &str| {
        token[member].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    html! {
        section.card {
            header { h2 { "Tokens" } }
            @if tokens.is_empty() { p.pad.dim { "None: " code { "etude token new NAME --scope read,run" } " creates one." } }
            ul.rows { @for token in tokens { li {
                code.grow { (visible(token["name"].as_str().unwrap_or(ABSENT))) }
                span.dim.small {
                    (words(token, "scopes"))
                    @if !words(token, "only").is_empty() { ", only " (visible(&words(token, "only"))) }
                    @if token["expires_at"].is_string() { ", until " (shell.zone.moment(&token["expires_at"])) }
                }
            } } }
        }
    }
}

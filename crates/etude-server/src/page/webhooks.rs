//! Pages of webhooks and notices: their deliveries and outcomes.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::shell::{Section, Shell};
use super::text::{ABSENT, counted, list_of, marked, text, visible};
use super::{glyph, row, see, segment, source};
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::token::Scope;

/// Deliveries of each webhook and notice in the list.
const SHOWN: usize = 5;

/// The part of the deliveries that a card shows.
struct Part {
    query: String,
    is_whole: bool,
}

impl Part {
    fn of_list() -> Self {
        Self { query: format!("?limit={SHOWN}"), is_whole: false }
    }

    fn of_page(call: &Call) -> Self {
        let query = call.query.get("cursor").map(|cursor| format!("?cursor={}", segment(cursor)));
        Self { query: query.unwrap_or_default(), is_whole: true }
    }
}

/// The path of a page about an entry of `kind`.
fn path(kind: &str, entry: &Value) -> String {
    format!("/{kind}/{}/{}", segment(text(entry, "app")), segment(text(entry, "name")))
}

/// `GET /webhooks`: all webhooks and notices.
pub(crate) async fn list(call: Call) -> Respond {
    let shell = Shell::new(&call).await?;
    let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
    for webhook in list_of(&source::get(&call, "/v1/webhooks").await?, "webhooks") {
        incoming.push(webhook_card(&call, &shell, webhook, &Part::of_list()).await?);
    }
    for notice in list_of(&source::get(&call, "/v1/notices").await?, "notices") {
        outgoing.push(notice_card(&call, &shell, notice, &Part::of_list()).await?);
    }
    let body = html! {
        div.head { div.line { h1 { "Webhooks" } span.second { "Requests that start runs, and notices about runs" } } }
        div.body id="webhooks" data-live {
            h2 { "Incoming" }
            @if incoming.is_empty() { section.card { div.empty {
                p { "No webhook yet. Write one into " (shell.file_of_automation()) ", then send requests to " code { "/in/APP/NAME" } ":" }
                div.command { code { "webhooks: {push: {pipeline: NAME, verify: {kind: github, secrets: [\"${env:HOOK_SECRET}\"]}}}" } button.link type="button" data-copy hidden { "Copy" } }
            } } }
            @for card in &incoming { (card) }
            h2 { "Outgoing" }
            @if outgoing.is_empty() { section.card { div.empty {
                p { "No notice yet. Write one into " (shell.file_of_automation()) " to tell another program about runs:" }
                div.command { code { "notices: [{name: chat, url: \"https://chat.example/x\", on: [run.failed], secret: \"${env:NOTICE_SECRET}\"}]" } button.link type="button" data-copy hidden { "Copy" } }
            } } }
            @for card in &outgoing { (card) }
        }
    };
    Ok(shell.page(StatusCode::OK, "Webhooks", Section::Webhooks, body))
}

/// The entry of `kind` that the path names.
async fn find(call: &Call, kind: &str) -> Result<Value, Problem> {
    let document = source::get(call, &format!("/v1/{kind}")).await?;
    let is_it = |entry: &&Value| text(entry, "app") == call.param("app") && text(entry, "name") == call.param("name");
    list_of(&document, kind).iter().find(is_it).cloned().ok_or_else(|| Problem::not_found("there is no such entry"))
}

/// `GET /webhooks/{app}/{name}`.
pub(crate) async fn webhook(call: Call) -> Respond {
    let shell = Shell::new(&call).await?;
    let webhook = find(&call, "webhooks").await?;
    let card = webhook_card(&call, &shell, &webhook, &Part::of_page(&call)).await?;
    Ok(page(&shell, &webhook, &card))
}

/// `GET /notices/{app}/{name}`.
pub(crate) async fn notice(call: Call) -> Respond {
    let shell = Shell::new(&call).await?;
    let notice = find(&call, "notices").await?;
    let card = notice_card(&call, &shell, &notice, &Part::of_page(&call)).await?;
    Ok(page(&shell, &notice, &card))
}

fn page(shell: &Shell, entry: &Value, card: &Markup) -> axum::response::Response {
    let name = text(entry, "name");
    let body = html! {
        div.head {
            nav.crumbs aria-label="Path" { a href=(shell.link("/webhooks")) { "Webhooks" } "/" span { (visible(text(entry, "app"))) } }
            div.line { h1 { (visible(name)) } }
        }
        div.body id="webhooks" data-live { (card) }
    };
    shell.page(StatusCode::OK, name, Section::Webhooks, body)
}

/// A card: heading, faults, deliveries and a link to more of them.
struct Card<'c> {
    entry: &'c Value,
    path: String,
    about: Markup,
    table: Markup,
    next: Option<&'c str>,
}

impl Card<'_> {
    fn render(&self, shell: &Shell, part: &Part) -> Markup {
        html! {
            section.card {
                header {
                    @if self.entry["broken"].is_array() { (glyph::named("failed", "Broken")) }
                    @if part.is_whole { h2 { "Deliveries" } } @else { h2 { a.plain href=(shell.link(&self.path)) { (visible(text(self.entry, "name"))) } } }
                    (self.about)
                    @if !part.is_whole && self.next.is_some() { a href=(shell.link(&self.path)) { "All" } }
                }
                @for fault in list_of(self.entry, "broken") { div.pad { div.notice.bad { p { (marked(text(fault, "message"))) } } } }
                (self.table)
                @if part.is_whole && (!part.query.is_empty() || self.next.is_some()) { div.pad { div.pager { div.right {
                    @if !part.query.is_empty() { a.button href=(shell.link(&self.path)) { "Newest" } }
                    @if let Some(next) = self.next { a.button rel="next" href=(shell.link(&format!("{}?cursor={}", self.path, segment(next)))) { "Older" } }
                } } } }
            }
        }
    }
}

async fn webhook_card(call: &Call, shell: &Shell, webhook: &Value, part: &Part) -> Result<Markup, Problem> {
    let path = path("webhooks", webhook);
    let document = source::get(call, &format!("/v1{path}/deliveries{}", part.query)).await?;
    let deliveries = list_of(&document, "deliveries");
    let inbox = text(webhook, "path");
    let about = html! {
        @if let Some(kind) = webhook["kind"].as_str() { span.tag { (kind) } }
        span.second.grow.inline-links { "runs " (target(shell, webhook)) }
        code.dim { (visible(inbox)) }
    };
    let table = html! {
        @if deliveries.is_empty() { div.empty { p { "No delivery yet. Let the sender post to " code { (visible(inbox)) } " of this server." } } } @else {
            table.runs.list {
                caption.said { "Deliveries to " (visible(text(webhook, "name"))) ", newest first" }
                thead { tr { th scope="col" { "Verdict" } th scope="col" { "Delivery" } th.num scope="col" { "Time" } th scope="col" { "Run" } th scope="col" { span.said { "Actions" } } } }
                tbody { @for delivery in deliveries { (delivery_row(shell, delivery)) } }
            }
        }
    };
    Ok(Card { entry: webhook, path, about, table, next: document["next"].as_str() }.render(shell, part))
}

fn target(shell: &Shell, entry: &Value) -> Markup {
    let link =
        |kind: &str, name: &str| shell.link(&format!("/apps/{}/{kind}/{}", segment(text(entry, "app")), segment(name)));
    html! { @match (entry["pipeline"].as_str(), entry["machine"].as_str()) {
        (Some(name), _) => { a href=(link("pipelines", name)) { (visible(name)) } },
        (None, Some(name)) => { a href=(link("machines", name)) { (visible(name)) } },
        (None, None) => (ABSENT),
    } }
}

fn delivery_row(shell: &Shell, delivery: &Value) -> Markup {
    let run = delivery["run_id"].as_str();
    let verdict = text(delivery, "verdict");
    let drawing = match verdict {
        "accepted" => "succeeded",
        "refused" => "rejected",
        "repeated" => "cancelled",
        _ => "skipped",
    };
    let reason = match verdict {
        "refused" => Some(refusal(text(delivery, "reason"))),
        "repeated" => Some("duplicate delivery"),
        "ignored" => Some("`when` is false"),
        _ => None,
    };
    // The key of a refused delivery is generated by the server.
    let id = if verdict == "refused" && delivery["reason"].is_null() { ABSENT } else { text(delivery, "delivery_id") };
    html! {
        tr {
            td.state-cell { (glyph::named(drawing, &glyph::word(verdict))) }
            td.target-cell {
                code.value { (visible(id.get(..32).unwrap_or(id))) }
                p.phone.small.dim { (glyph::word(verdict)) " · " (shell.zone.moment(&delivery["at"])) }
                @if let Some(reason) = reason { p.reason { (marked(reason)) } }
            }
            td.wide.num { (shell.zone.moment(&delivery["at"])) }
            td.took { (run_link(shell, run)) }
            td.wide.num { @if let Some(id) = run.filter(|_| shell.may(Scope::Run)) { form method="post" action=(shell.link(&format!("/runs/{}/again", segment(id)))) { (source::once()) button.link { "Run again" } } } }
        }
    }
}

/// The reason why a delivery started no run, as a sentence.
fn refusal(reason: &str) -> &'static str {
    match reason {
        "" => "the signature is not valid",
        "malformed" => "the body is not JSON; the response to the sender names the position",
        "input_invalid" => "the input does not match the pipeline; the response to the sender lists the errors",
        "definition_invalid" => "the pipeline has errors: `etude check`",
        "queue_full" | "run_is_busy" => "the limit of runs was reached",
        "budget_spent" => "the daily budget was spent",
        _ => "no run was started; the response to the sender has the reason",
    }
}

fn run_link(shell: &Shell, run: Option<&str>) -> Markup {
    html! { @match run { Some(id) => { a href=(shell.link(&format!("/runs/{}", segment(id)))) { code { (row::short(id)) } } }, None => (ABSENT) } }
}

async fn notice_card(call: &Call, shell: &Shell, notice: &Value, part: &Part) -> Result<Markup, Problem> {
    let path = path("notices", notice);
    let document = source::get(call, &format!("/v1{path}/deliveries{}", part.query)).await?;
    let deliveries = list_of(&document, "deliveries");
    let about = html! {
        span.tags { @for kind in list_of(notice, "on").iter().filter_map(Value::as_str) { span.tag { (kind) } } }
        span.grow {}
        code.dim { (visible(text(notice, "receiver"))) }
    };
    let table = html! {
        @if deliveries.is_empty() { div.empty { p { "Nothing sent yet. The next matching run is reported." } } } @else {
            table.runs.list {
                caption.said { "Deliveries of " (visible(text(notice, "name"))) ", newest first" }
                thead { tr { th scope="col" { "State" } th scope="col" { "Type" } th.num scope="col" { "Time" } th scope="col" { "Run" } th scope="col" { span.said { "Actions" } } } }
                tbody { @for delivery in deliveries { (notice_row(shell, &path, delivery)) } }
            }
        }
    };
    Ok(Card { entry: notice, path, about, table, next: document["next"].as_str() }.render(shell, part))
}

fn notice_row(shell: &Shell, path: &str, delivery: &Value) -> Markup {
    let state = text(delivery, "state");
    let attempts = delivery["attempts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let drawing = match state {
        "delivered" => "succeeded",
        "failed" => "failed",
        _ => "queued",
    };
    html! {
        tr {
            td.state-cell { (glyph::named(drawing, &glyph::word(state))) }
            td.target-cell {
                span.value { (visible(text(delivery, "type"))) }
                p.phone.small.dim { (glyph::word(state)) " · " (shell.zone.moment(&delivery["at"])) }
                @if let Some(why) = attempts.last().and_then(failure) { p.reason { (counted(attempts.len() as u64, "attempt", "attempts")) ": " (why) } }
            }
            td.wide.num { (shell.zone.moment(&delivery["at"])) }
            td.took { (run_link(shell, delivery["run_id"].as_str())) }
            td.wide.num { @if state == "failed" && shell.may(Scope::Admin) { form method="post" action=(shell.link(&format!("{path}/{}", segment(text(delivery, "delivery_id"))))) { (source::once()) button.link { "Send again" } } } }
        }
    }
}

/// The reason why an attempt failed.
fn failure(attempt: &Value) -> Option<String> {
    let status = attempt["status"].as_u64().unwrap_or_default();
    Some(match attempt["error"].as_str()? {
        "status" => format!("the receiver responded with status {status}"),
        "redirect" => format!("the receiver responded with a redirect ({status}), which is not followed"),
        "private_address" => "the address is private, and `allow_private` is not set".replace('`', ""),
        "not_https" => "the receiver has a public address and no https".to_owned(),
        "unknown_host" => "the receiver's name has no address".to_owned(),
        "timeout" => "the receiver did not respond within 10 s".to_owned(),
        "connection" => "no connection to the receiver".to_owned(),
        "unset_variable" => "a variable of the notice is not set".to_owned(),
        "secret" => "the secret is not whsec_ and base64".to_owned(),
        other => format!("it failed ({other})"),
    })
}

/// `POST /notices/{app}/{name}/{delivery}`: sends a notice again that was set aside.
pub(crate) async fn redeliver(call: Call) -> Respond {
    let form = call.form(&[source::ONCE]).await?;
    let path = format!("/notices/{}/{}", segment(call.param("app")), segment(call.param("name")));
    let again = format!("/v1{path}/deliveries/{}/again", segment(call.param("delivery")));
    match source::post(&call, &form, &again, &json!({})).await {
        Err(problem) if problem.code() != Code::KeyInUse => Err(problem),
        _ => see(&call, &path),
    }
}

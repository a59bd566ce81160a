//! The inbox: questions of runs, and the forms that answer them.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::form::Form;
use super::shell::{Section, Shell};
use super::text::{counted, marked, title, visible};
use super::{faults, glyph, json as pretty, row, see, segment, source, status_of};
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::token::Scope;

/// Members of a payload that are shown separately.
const SHOWN: [&str; 4] = ["message", "schema", "approvers", "question"];

/// The contents of a page of decisions.
#[derive(Default)]
struct Shown<'s> {
    /// The question in the link.
    at: Option<&'s str>,
    /// The fields of a refused form.
    sent: &'s [(String, String)],
    refused: Option<&'s Problem>,
}

/// `GET /decisions`.
pub(crate) async fn list(call: Call) -> Respond {
    page(&call, Shown { at: call.query.get("at"), ..Shown::default() }).await
}

/// `GET /decisions/{id}`: to the question. It is the address of a page with a refused form, which keeps itself up to date.
pub(crate) async fn show(call: Call) -> Respond {
    see(&call, &format!("/decisions?at={}", segment(call.param("id"))))
}

/// `POST /decisions/{id}`: the form of a question.
pub(crate) async fn decide(call: Call) -> Respond {
    let id = call.param("id").to_owned();
    let sent = call.fields().await?;
    let given =
        |name: &str| sent.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str());
    let path = format!("/v1/decisions/{}", segment(&id));
    let decision = match source::get(&call, &path).await {
        // The response to the decision names the earlier decider.
        Err(problem) if problem.code() == Code::NotFound => Value::Null,
        decision => decision?,
    };
    let approved = match given("approved") {
        Some("true") => true,
        Some("false") => false,
        // Without one of the buttons, nothing is decided.
        _ => return page(&call, Shown { at: Some(&id), sent: &sent, refused: None }).await,
    };
    let form = Form { prefix: "answer", schema: &decision["schema"], sent: &sent, faults: &[] };
    let answer = if approved && !decision["schema"].is_null() { form.value() } else { "null".to_owned() };
    let body = format!(
        "{{\"approved\":{approved},\"question\":{},\"answer\":{answer},\"reason\":{}}}",
        json!(given("question").unwrap_or_default()),
        json!(given("reason"))
    );
    let decided = match form.unreadable("/answer").filter(|_| approved) {
        Some(problem) => Err(problem),
        None => source::act(&call, &sent, &path, body).await,
    };
    let run = format!("/runs/{}", segment(id.split_once(':').map_or("", |(run, _)| run)));
    match decided {
        Ok(_) => see(&call, &run),
        Err(problem) if problem.code() == Code::AlreadyDecided => {
            let earlier = problem.to_json("", "");
            // The response to a second click on the same button.
            let is_own = earlier["by"] == *call.caller()?.name && earlier["approved"] == approved;
            see(&call, &if is_own { run } else { format!("/decisions?at={}", segment(&id)) })
        }
        Err(problem) if matches!(problem.code(), Code::InputInvalid | Code::OtherQuestion) => {
            page(&call, Shown { at: Some(&id), sent: &sent, refused: Some(&problem) }).await
        }
        Err(problem) => Err(problem),
    }
}

async fn page(call: &Call, shown: Shown<'_>) -> Respond {
    let shell = Shell::new(call).await?;
    let open = source::decisions(call).await?;
    let chosen = match shown.at {
        Some(at) => open.iter().find(|decision| decision["id"] == *at),
        None => open.first(),
    };
    let gone = match shown.at.filter(|_| chosen.is_none()) {
        Some(at) => Some(gone(call, &shell, at).await?),
        None => None,
    };
    let body = html! {
        div.head id="head" data-live {
            div.line { h1 { "Decisions" } @if !open.is_empty() { span.second { (counted(open.len() as u64, "run waits", "runs wait")) " for an answer" } } }
            @if let Some(gone) = &gone { (gone) }
        }
        @if open.is_empty() {
            div.body { div.card id="inbox" data-live { div.empty {
                p { "No open questions. Questions of runs appear here, for example from an approval step:" }
                div.command { code { "{name: approve, type: approval, message: \"Deploy?\"}" } button.link type="button" data-copy hidden { "Copy" } }
            } } }
        } @else {
            div.inbox {
                nav aria-label="Questions" {
                    h2 { "Waiting, oldest first" }
                    ul id="questions" data-live { @for decision in &open { (entry(&shell, decision, chosen)) } }
                    p.keys.foot { span { kbd { "j" } " " kbd { "k" } " move" } span { kbd { "Enter" } " open" } span { kbd { "a" } " to the form" } }
                }
                // Typed text is not replaced: only the list is live.
                @match chosen {
                    Some(decision) => { (one(call, &shell, decision, &shown)) },
                    // The link led to another question; this prevents a decision by mistake.
                    None => { section.one { p.dim { "Choose a question." } } },
                }
            }
        }
    };
    let status = shown.refused.map_or(StatusCode::OK, status_of);
    Ok(shell.page(status, "Decisions", Section::Decisions, body))
}

/// A notice about a question that is not open: its decision, if there is one.
async fn gone(call: &Call, shell: &Shell, at: &str) -> Result<Markup, Problem> {
    let document = match source::get(call, &format!("/v1/decisions/{}", segment(at))).await {
        Err(problem) if problem.code() == Code::NotFound => problem.to_json("", ""),
        // The question is open by now.
        other => other?,
    };
    Ok(html! {
        div.notice { p {
            @match (document["by"].as_str(), document["approved"].as_bool()) {
                (Some(by), Some(approved)) => {
                    code { (visible(by)) } @if approved { " approved " } @else { " denied " } "this question: " (shell.zone.moment(&document["decided_at"])) ". "
                },
                _ => { "The question of this link has been answered, or its run has ended. " },
            }
            @if let Some(run) = document["run_id"].as_str() { a href=(shell.link(&format!("/runs/{}", segment(run)))) { "Run " code { (row::short(run)) } } }
        } }
    })
}

fn text<'d>(decision: &'d Value, name: &str) -> &'d str {
    decision[name].as_str().unwrap_or_default()
}

/// The asking step, as the effect id names it.
fn step(decision: &Value) -> &str {
    text(decision, "id").split_once(':').map_or("", |(_, effect)| effect)
}

fn entry(shell: &Shell, decision: &Value, chosen: Option<&Value>) -> Markup {
    let id = text(decision, "id");
    let is_chosen = chosen.is_some_and(|chosen| chosen["id"] == *id);
    html! {
        li data-key=(id) {
            a href=(shell.link(&format!("/decisions?at={}#question", segment(id)))) aria-current=[is_chosen.then_some("true")] {
                (glyph::drawn("waiting"))
                span.value { (marked(title(text(decision, "message")).0)) }
                span.small.dim { code { (visible(step(decision))) } " · run " code { (row::short(text(decision, "run_id"))) } " · since " (shell.zone.clock(&decision["since"])) }
            }
        }
    }
}

fn one(call: &Call, shell: &Shell, decision: &Value, shown: &Shown<'_>) -> Markup {
    let id = text(decision, "id");
    let sent = shown.sent;
    let reason = sent.iter().find(|(name, _)| name == "reason").map_or("", |(_, reason)| reason);
    let faults = shown.refused.map(|problem| faults(problem, "/answer")).unwrap_or_default();
    let approvers: Vec<&str> =
        decision["approvers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let reader = call.caller.as_ref().map_or("", |caller| caller.name.as_str());
    let may_answer = approvers.is_empty() || approvers.contains(&reader);
    let run = format!("/runs/{}", segment(text(decision, "run_id")));
    let facts = decision["payload"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, value)| !SHOWN.contains(&name.as_str()) && !value.is_null());
    html! {
        section.one aria-labelledby="question" data-question=(id) {
            div {
                p.small.dim { a href=(shell.link(&run)) { "Run " code { (row::short(text(decision, "run_id"))) } } " · step " code { (visible(step(decision))) } " · waits since " (shell.zone.moment(&decision["since"])) }
                @let (title, rest) = title(text(decision, "message"));
                h1 id="question" { (marked(title)) }
                @if !rest.is_empty() { p.lines { (marked(rest)) } }
            }
            @if decision["deadline_at"].is_string() { div.notice { p { "Decide before " (shell.zone.moment(&decision["deadline_at"])) "." } } }
            @if let Some(problem) = shown.refused { div.notice.bad role="alert" { p { (marked(&super::detail(problem))) } } }
            dl.table {
                @for (name, value) in facts { dt { (visible(name)) } dd { (fact(value)) } }
                dt { "May answer" }
                dd { @if approvers.is_empty() { "everyone with the scope " code { "approve" } } @else {
                    @for (nth, name) in approvers.iter().enumerate() { @if nth > 0 { ", " } (visible(name)) @if *name == reader { " (you)" } }
                } }
            }
            @if let Some(lacking) = shell.lacks(Scope::Approve) {
                (lacking)
            } @else if may_answer {
                form.card.form id="decision" method="post" action=(shell.link(&format!("/decisions/{}#question", segment(id)))) {
                    // `Enter` in a field presses the first button: this one decides nothing.
                    button disabled hidden {}
                    (source::once())
                    input type="hidden" name="question" value=(text(decision, "question"));
                    (Form { prefix: "answer", schema: &decision["schema"], sent, faults: &faults }.render())
                    div.field {
                        label for="reason" { "Reason " span.kind { "optional" } }
                        textarea id="reason" name="reason" rows="2" { "\n" (reason) }
                        span.help { "Kept in the journal with your name and the time." }
                    }
                    div.actions {
                        button.primary name="approved" value="true" { "✓ Approve" }
                        // A denial needs no answer.
                        button.danger name="approved" value="false" formnovalidate { "✕ Deny" }
                        span.grow {}
                        span.keys { span { kbd { "a" } " moves to this form. No single key decides." } }
                    }
                }
            } @else {
                div.notice { p { "Only these people may answer: " (approvers.join(", ")) ". You are " code { (reader) } "." } }
            }
        }
    }
}

/// A fact in the payload of the question.
fn fact(value: &Value) -> Markup {
    match value {
        Value::String(text) => html! { (visible(text)) },
        Value::Object(_) | Value::Array(_) => html! { pre { (pretty::pretty(&value.to_string(), pretty::MAX_SHOWN)) } },
        other => html! { (other.to_string()) },
    }
}

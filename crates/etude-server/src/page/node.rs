//! The details of the selected node of a run: its effects with their inputs and outputs.

use etude_runs::inspect;
use etude_runs::lines::{self, Line};
use maud::{Markup, html};
use serde_json::Value;

use super::run::Shown;
use super::shell::Shell;
use super::text::{bytes, copied, duration_of, marked, money, number, visible};
use super::tree::{Tree, attempts, id_of};
use super::{glyph, json, segment, source};
use crate::problem::Problem;
use crate::request::Call;

/// Maximum number of listed effects of a node.
const EFFECTS: usize = 50;

/// Maximum number of effects whose streams are shown without another click.
const SHOWN: usize = 6;

/// Bytes of a stream in its preview.
const PREVIEW: u64 = 8 * 1024;

/// The pane of details as HTML.
pub(super) async fn details(call: &Call, shell: &Shell, shown: &Shown, tree: &Tree) -> Result<Markup, Problem> {
    let run = segment(shown.id());
    let path = match (&tree.effect, tree.node()) {
        (Some(effect), _) => format!("/v1/runs/{run}/effects/{}", segment(effect)),
        (None, Some(node)) => format!("/v1/runs/{run}/effects?node={}&limit={EFFECTS}", segment(&id_of(node))),
        (None, None) => {
            let missing = call.query.get("at");
            return Ok(html! { p.dim { @match missing {
                Some(at) => { "The run has no node " code { (visible(at)) } " here." },
                None => { "Select a node to see its details." },
            } } });
        }
    };
    let document = source::get(call, &path).await?;
    let effects = match &tree.effect {
        Some(_) => vec![document.clone()],
        None => document["effects"].as_array().cloned().unwrap_or_default(),
    };
    let mut shown_effects = Vec::new();
    // The last effects matter most: those of the last attempt.
    let first_open = effects.len().saturating_sub(SHOWN);
    for (nth, effect) in effects.iter().enumerate() {
        let streams = if nth >= first_open {
            streams(call, shell, shown, effect).await?
        } else {
            html! {}
        };
        shown_effects.push(effect_markup(shell, shown, effect, streams));
    }
    // An effect need not belong to a node.
    let Some(node) = tree.node() else { return Ok(html! { div { @for effect in &shown_effects { (effect) } } }) };
    let step = step_of(shown, node);
    let corrected = correction(call, shown, node).await?;
    Ok(html! {
        (heading(shell, node))
        @if let Some(error) = step.and_then(|step| step.get("error")).filter(|error| !error.is_null()) {
            div.notice.bad { (glyph::drawn("failed")) p { (marked(error["message"].as_str().or(error.as_str()).unwrap_or_default())) } }
        }
        (rejection(&node["error"]))
        @if let Some(corrected) = &corrected { (corrected) }
        @if effects.is_empty() { p.dim { (nothing(node, tree)) } }
        div { @for effect in &shown_effects { (effect) } }
        @if let Some(next) = document["next"].as_str() { p.dim.small { "More effects come after " code { (visible(next)) } "." } }
    })
}

fn nothing(node: &Value, tree: &Tree) -> String {
    let id = id_of(node);
    match node["status"].as_str().unwrap_or_default() {
        "not_started" => "It has not started.".to_owned(),
        "skipped" => "It was skipped: its condition was false.".to_owned(),
        "waiting" => "It waits for an answer.".to_owned(),
        _ if tree.children(&id).next().is_some() => {
            "Select a node below it to see what that read and wrote.".to_owned()
        }
        "running" => "It is in progress. The output appears here when it ends.".to_owned(),
        _ => "It started no process and called no model.".to_owned(),
    }
}

fn heading(shell: &Shell, node: &Value) -> Markup {
    let status = node["status"].as_str().unwrap_or_default();
    let usage = &node["usage"];
    let tokens = |name: &str| usage[name].as_u64().map(number);
    html! {
        div {
            p.small.dim { code { (visible(&id_of(node))) } }
            h2.node { (glyph::drawn(status)) span { @if node["kind"] == "item" { "element " } (visible(node["name"].as_str().unwrap_or_default())) ", " (glyph::word(status).to_lowercase()) } }
            p.line-facts {
                @if let Some(model) = node["model"].as_str() { span { "Model " b { (visible(model)) } } }
                @if let Some(count) = tokens("input_tokens") { span { "Input " b { (count) } " tokens" } }
                @if let Some(count) = tokens("output_tokens") { span { "Output " b { (count) } " tokens" } }
                @if usage["cost_usd"].is_number() { span { "Cost " b { (money(&usage["cost_usd"])) } } }
                @if node["duration_ms"].is_u64() { span { "Duration " b { (duration_of(&node["duration_ms"])) } } }
                @if node["started_at"].is_string() { span { "Started " b { (shell.zone.moment(&node["started_at"])) } } }
                @if let Some(attempts) = attempts(node) { span { "Attempts " b { (attempts) } } }
            }
        }
    }
}

/// The check that rejected a response, with its reasons.
fn rejection(error: &Value) -> Markup {
    let reasons = error["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    html! {
        @if error.is_object() {
            div.rejection {
                header { "Rejected by " code { (visible(error["rejected_by"].as_str().unwrap_or("a check"))) } }
                ul { @for reason in reasons {
                    li {
                        @if let Some(pointer) = reason["pointer"].as_str() { code { (visible(pointer)) } " " }
                        (marked(reason["message"].as_str().or(reason["detail"].as_str()).or(reason.as_str()).unwrap_or_default()))
                    }
                } }
            }
        }
    }
}

/// The difference between a rejected response and that of the next attempt.
async fn correction(call: &Call, shown: &Shown, node: &Value) -> Result<Option<Markup>, Problem> {
    let (id, Some(attempt)) = (id_of(node), node["attempt"].as_u64()) else { return Ok(None) };
    let Some(base) = id.strip_suffix(&format!("#{attempt}")).filter(|_| node["status"] == "rejected") else {
        return Ok(None);
    };
    let next = format!("{base}#{}", attempt + 1);
    let (before, after) = (response(call, shown, &id).await?, response(call, shown, &next).await?);
    let (Some(before), Some(after)) = (before, after) else { return Ok(None) };
    let changes = lines::changed(&before, &after);
    Ok(Some(html! {
        section.block {
            header { h2 { "Changed in attempt " (attempt + 1) } }
            @if changes.is_empty() { p.dim { "No change: the response was the same." } } @else {
                pre.code.diff tabindex="0" { @for change in changes {
                    @let (class, sign, text) = match change { Line::Added(text) => ("add", "+ ", text), Line::Removed(text) => ("del", "− ", text) };
                    span class=(class) { (sign) (text) }
                } }
            }
        }
    }))
}

/// The response of an attempt's model call.
async fn response(call: &Call, shown: &Shown, node: &str) -> Result<Option<String>, Problem> {
    let run = segment(shown.id());
    let document = source::get(call, &format!("/v1/runs/{run}/effects?node={}&limit={EFFECTS}", segment(node))).await?;
    let effects = document["effects"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_response = |effect: &&Value| {
        let mut streams = effect["streams"].as_array().into_iter().flatten();
        streams.any(|stream| stream == "answer")
    };
    let Some(effect) = effects.iter().find(has_response) else { return Ok(None) };
    let id = effect["id"].as_str().unwrap_or_default();
    let path = format!("/v1/runs/{run}/effects/{}/answer", segment(id));
    let (bytes, _) = source::range(call, &path, 0, PREVIEW).await?;
    let text = String::from_utf8_lossy(&bytes);
    let is_json = etude_core::tree::is_json(&text);
    Ok(Some(if is_json { json::pretty(&text, json::MAX_SHOWN) } else { visible(&text).into_owned() }))
}

fn step_of<'s>(shown: &'s Shown, node: &Value) -> Option<&'s Value> {
    let steps = shown.run["steps"].as_array()?;
    steps.iter().find(|step| node["kind"] == "step" && step["name"] == node["name"] && step["phase"] == node["phase"])
}

fn effect_markup(shell: &Shell, shown: &Shown, effect: &Value, streams: Markup) -> Markup {
    let id = effect["id"].as_str().unwrap_or_default();
    let status = inspect::status_of(effect);
    let is_failed = status == "failed";
    let at = shell.link(&format!("/runs/{}?at={}", segment(shown.id()), segment(id)));
    html! {
        section.block id={ "effect-" (id) } {
            header {
                (glyph::drawn(status))
                h2 { a.plain href=(at) { (visible(effect["place"].as_str().unwrap_or(id))) } }
            }
            p.small.bad[is_failed].second[!is_failed] { (marked(effect["summary"].as_str().unwrap_or_default())) }
            (streams)
        }
    }
}

/// The streams of an effect; all but the last are folded.
async fn streams(call: &Call, shell: &Shell, shown: &Shown, effect: &Value) -> Result<Markup, Problem> {
    let id = effect["id"].as_str().unwrap_or_default();
    let words: Vec<&str> = effect["streams"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut parts = Vec::new();
    for word in &words {
        let place = format!("/runs/{}/effects/{}/{word}", segment(shown.id()), segment(id));
        let (head, total) = match source::range(call, &format!("/v1{place}"), 0, PREVIEW).await {
            Ok(read) => read,
            // After a change of the definition, stdin cannot be reconstructed.
            Err(problem) if problem.code() == crate::problem::Code::NotFound => continue,
            Err(problem) => return Err(problem),
        };
        let text = String::from_utf8_lossy(&head);
        let is_whole = total <= PREVIEW;
        let text = match is_whole && etude_core::tree::is_json(&text) {
            true => json::indented(&text, json::MAX_SHOWN),
            false => text.into_owned(),
        };
        let log = shell.link(&format!("/runs/{}/log/{}/{word}", segment(shown.id()), segment(id)));
        let is_open = matches!(*word, "stdout" | "answer" | "result" | "stderr");
        parts.push(html! {
            details.fold open[is_open] data-key={ (id) " " (word) } {
                summary { (title(word)) span.dim.small { (bytes(total)) } }
                div {
                    @if text.is_empty() { p.dim { "Empty." } } @else { pre.code data-copied tabindex="0" { (copied(&text)) } }
                    div.actions.small {
                        @if !is_whole { span.dim { "The first " (bytes(PREVIEW)) "." } }
                        a href=(log) { "Whole text" }
                        a href=(shell.link(&format!("/v1{place}"))) download=(format!("{word}.txt")) { "Download" }
                        @if is_whole { button.link type="button" data-copy hidden { "Copy" } }
                    }
                }
            }
        });
    }
    Ok(html! { @for part in &parts { (part) } })
}

fn title(stream: &str) -> &str {
    match stream {
        "stdin" => "Input (stdin)",
        "stdout" => "Output (stdout)",
        "stderr" => "Messages (stderr)",
        "prompt" => "Prompt",
        "answer" => "Response",
        "result" => "Result",
        other => other,
    }
}

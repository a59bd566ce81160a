//! Pages of learned pipelines: evidence, sources of values, comparisons with the agent, and promotion.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::shell::{Section, Shell};
use super::text::{ABSENT, list_of, marked, text, visible};
use super::{detail, glyph, json as pretty, see, segment, source};
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::token::Scope;

/// Maximum number of comparisons on a page.
const MAX_COMPARISONS: usize = 50;

fn count(of: &Value, pointer: &str) -> u64 {
    of.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// The path of the list of an app's learned pipelines.
fn base(call: &Call) -> String {
    format!("/apps/{}/learned", segment(call.param("app")))
}

/// `GET /apps/{app}/learned`: all learned pipelines of the app.
pub(crate) async fn list(call: Call) -> Respond {
    let (shell, base) = (Shell::new(&call).await?, base(&call));
    let document = source::get(&call, &format!("/v1{base}")).await?;
    let rows = list_of(&document, "pipelines");
    let body = html! {
        div.head { (crumbs(&shell, &call, None)) div.line { h1 { "Learned pipelines" } } }
        div.body.flush { div.card id="learned" data-live {
            @if rows.is_empty() { div.empty {
                p { "No learned pipelines in this app. After several similar runs in skill mode, this command makes a pipeline of them:" }
                div.command { code { "etude learn" } button.link type="button" data-copy hidden { "Copy" } }
            } } @else { table.runs.list {
                caption.said { "Learned pipelines" }
                thead { tr { th scope="col" { "State" } th scope="col" { "Pipeline" } th scope="col" { "Evidence" } th scope="col" { "Waits for" } } }
                tbody { @for row in rows { (row_of(&shell, &base, row)) } }
            } }
        } }
    };
    Ok(shell.page(StatusCode::OK, "Learned pipelines", Section::Apps, body))
}

fn crumbs(shell: &Shell, call: &Call, name: Option<&str>) -> Markup {
    let app = call.param("app");
    html! {
        nav.crumbs aria-label="Path" {
            a href=(shell.link("/apps")) { "Apps" } "/"
            a href=(shell.link(&format!("/apps/{}", segment(app)))) { (visible(app)) } "/"
            @if name.is_some() { a href=(shell.link(&base(call))) { "learned" } } @else { span { "learned" } }
        }
    }
}

fn row_of(shell: &Shell, base: &str, row: &Value) -> Markup {
    let name = text(row, "name");
    let disagreed = count(row, "/evidence/live/disagreed");
    let compared = count(row, "/evidence/live/agreed") + disagreed;
    let waits: Vec<String> = list_of(row, "waits_for").iter().map(need).collect();
    html! {
        tr.run data-key=(visible(name)) {
            td.state-cell { (state(row)) }
            td.target-cell {
                a.target data-row href=(shell.link(&format!("{base}/{}", segment(name)))) { (visible(name)) } " "
                span.dim { (visible(text(row, "family"))) }
                @if row["demoted"].is_object() { p.reason { "Demoted: " (visible(&row["demoted"]["reason"].as_str().unwrap_or_default().replace('_', " "))) } }
            }
            td.wide {
                (count(row, "/evidence/requests")) " requests, " (compared) " live comparisons"
                @if disagreed > 0 { ", " (disagreed) " disagreed" }
            }
            td.wide.wrap.second { @if waits.is_empty() { (ABSENT) } @else { (waits.join(", ")) } }
        }
    }
}

/// A state as drawing and word.
fn state(row: &Value) -> Markup {
    let drawing = match text(row, "state") {
        "proposed" => "queued",
        "shadow" => "skipped",
        "assisted" => "waiting",
        "active" => "succeeded",
        "demoted" => "cancelled",
        _ => return glyph::named("failed", "Broken"),
    };
    glyph::named(drawing, &glyph::word(text(row, "state")))
}

/// A condition of the next state: the current value and the required one.
fn need(need: &Value) -> String {
    let number = etude_core::data::bare;
    match text(need, "need") {
        "comparisons" => format!("comparisons: {} of {}", number(&need["have"]), number(&need["want"])),
        "live_comparisons" => format!("live comparisons: {} of {}", number(&need["have"]), number(&need["want"])),
        "wrong_rate" => format!("rate of wrong writes: {}, at most {}", percent(&need["have"]), percent(&need["want"])),
        "new_evidence" => "a later run of an agent that does its task, because it was taken back".to_owned(),
        "unchanged_files" => "a test, because its files, tools or rules have changed: etude learn test".to_owned(),
        "open_hole" => "a source for every value of its write".to_owned(),
        word => format!("{}: {}, must be {}", word.replace('_', " "), number(&need["have"]), number(&need["want"])),
    }
}

fn percent(rate: &Value) -> String {
    rate.as_f64().map_or_else(|| ABSENT.to_owned(), |rate| format!("{:.1} %", rate * 100.0))
}

/// `GET /apps/{app}/learned/{pipeline}`.
pub(crate) async fn show(call: Call) -> Respond {
    page(&call, None).await
}

/// `POST` to the same: `act` is `promote` or `demote`.
pub(crate) async fn act(call: Call) -> Respond {
    let form = call.form(&["act", "to", "accept_risk", "reason", source::ONCE]).await?;
    let given = |name: &str| form.iter().find(|(of, value)| of == name && !value.is_empty()).map(|(_, value)| &**value);
    let act = given("act").unwrap_or_default();
    let body = match act {
        "promote" => json!({"to": given("to"), "accept_risk": given("accept_risk").is_some()}),
        "demote" => json!({"reason": given("reason")}),
        _ => return Err(Problem::not_found("there is no such action")),
    };
    let path = format!("{}/{}", base(&call), segment(call.param("pipeline")));
    match source::post(&call, &form, &format!("/v1{path}/{act}"), &body).await {
        Ok(_) => see(&call, &path),
        // The page shows the reason beside its subject.
        Err(problem) if matches!(problem.code(), Code::NotPromoted | Code::InputInvalid) => {
            page(&call, Some(problem)).await
        }
        Err(problem) => Err(problem),
    }
}

async fn page(call: &Call, refused: Option<Problem>) -> Respond {
    let (shell, name) = (Shell::new(call).await?, call.param("pipeline").to_owned());
    let path = format!("{}/{}", base(call), segment(&name));
    let one = source::get(call, &format!("/v1{path}")).await?;
    let body = html! {
        div.head id="head" data-live {
            (crumbs(&shell, call, Some(&name)))
            div.line { h1 { (visible(&name)) } (state(&one)) span.grow {} (actions(&shell, &path, &one)) }
            p.second { "Learned from " (count(&one, "/evidence/requests")) " requests that led to " code { (visible(text(&one, "family"))) } ", in " code { (visible(text(&one, "path"))) } }
            (notices(&one))
        }
        div.body { (refusal(refused.as_ref())) div.columns {
            div { (bindings(&one)) (conditions(&one)) (comparisons(&shell, &one)) (definition(&one)) }
            div { (evidence(&one)) (waits(&one)) (deviations(&one)) }
        } }
    };
    let status = if refused.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
    Ok(shell.page(status, &name, Section::Apps, body))
}

/// The reason why a form changed nothing. It stays, because it is outside of the live parts.
fn refusal(refused: Option<&Problem>) -> Markup {
    let hint = refused.and_then(|problem| problem.to_json("", "")["hint"].as_str().map(str::to_owned));
    html! {
        @if let Some(problem) = refused { div.notice.bad role="alert" { (glyph::drawn("failed")) p { (marked(&detail(problem))) @if let Some(hint) = hint { ". " (marked(&hint)) } } } }
    }
}

fn notices(one: &Value) -> Markup {
    html! {
        @if one["demoted"].is_object() {
            div.notice { (glyph::drawn("cancelled")) p { "Demoted: " (visible(&one["demoted"]["reason"].as_str().unwrap_or_default().replace('_', " "))) } }
        }
        @if one["edited"] == true { div.notice { (glyph::drawn("waiting")) p { "The files were edited after the pipeline was learned, so earlier evidence does not count." } } }
        @if let Some(by) = one["accepted_risk"]["by"].as_str() {
            div.notice { (glyph::drawn("waiting")) p { (visible(by)) " accepted the risk of a promotion without enough comparisons." } }
        }
    }
}

fn actions(shell: &Shell, path: &str, one: &Value) -> Markup {
    let path = shell.link(path);
    let next = match text(one, "state") {
        "proposed" => "shadow",
        "shadow" => "assisted",
        "assisted" => "active",
        "demoted" => "proposed",
        _ => "",
    };
    if let Some(lacking) = shell.lacks(Scope::Admin) {
        return lacking;
    }
    html! {
        div.actions {
            @if !matches!(text(one, "state"), "demoted" | "") { details.menu data-key="demote" {
                summary.button { "Demote" }
                div { form.form method="post" action=(path) {
                    (source::once())
                    div.field { label for="reason" { "Reason " span.kind { "optional" } } input id="reason" name="reason"; span.help { "The router no longer picks the pipeline. Its files stay." } }
                    div { button.primary name="act" value="demote" { "Demote the pipeline" } }
                } }
            } }
            @if !next.is_empty() { details.menu data-key={ "promote " (next) } {
                summary.button.primary name="act" value="promote" { "Promote to " (next) }
                div { form.form method="post" action=(path) {
                    (source::once())
                    // The page may be older than the state: only the shown promotion is made.
                    input type="hidden" name="to" value=(next);
                    p.second { (effect(next)) " etude runs its recorded cases first." }
                    div.field {
                        label.choice { input type="checkbox" name="accept_risk" value="yes"; "Accept the risk" }
                        span.help { "Promotes without enough comparisons and records your name and the time." }
                    }
                    div { button.primary name="act" value="promote" { "Promote to " (next) } }
                } }
            } }
        }
    }
}

/// The effect of a state, as a sentence.
fn effect(state: &str) -> &'static str {
    match state {
        "shadow" => "It runs after the agent, for comparison, and changes nothing.",
        "assisted" => "The router picks it, and a person confirms each write.",
        "active" => "The router picks it.",
        _ => "The router does not pick it.",
    }
}

/// The sources of the pipeline's values.
fn bindings(one: &Value) -> Markup {
    let (rows, holes) = (list_of(one, "bindings"), list_of(one, "holes"));
    html! {
        section.card id="values" {
            header { h2.grow { "Sources of values" } }
            @if rows.is_empty() && holes.is_empty() { p.pad.dim { "The calls of this pipeline have no arguments, or it was not learned from runs." } }
            ul.rows {
                @for row in rows { li { div {
                    p { code { (visible(text(row, "step"))) (visible(text(row, "argument"))) } " = " code { (visible(text(row, "expression"))) } }
                    p.small.second { (source_of(text(row, "source"))) ", correct in " (count(row, "/held")) " of " (count(row, "/of")) " runs" }
                    @if !list_of(row, "alternatives").is_empty() { p.small.dim { "Also matched: " @for (nth, other) in list_of(row, "alternatives").iter().enumerate() { @if nth > 0 { ", " } code { (visible(other.as_str().unwrap_or_default())) } } } }
                } } }
                @for hole in holes { li { div {
                    p { code { (visible(text(hole, "step"))) (visible(text(hole, "argument"))) } " is asked" }
                    p.small.second { (hole_of(hole)) }
                } } }
            }
        }
    }
}

fn source_of(word: &str) -> &str {
    match word {
        "input" => "From the request",
        "result" => "From a result",
        "element" => "From an element of a list",
        "argument" => "From another argument",
        "constant" => "Always the same",
        "computed" => "Computed",
        "question" => "From a model's response",
        other => other,
    }
}

fn hole_of(hole: &Value) -> Markup {
    html! {
        @match &hole["set"] {
            Value::Null => "No closed set of values: the agent takes over here.",
            Value::String(set) if set == "request" => "One of the words of the request.",
            Value::String(set) => { "One of " code { (visible(set)) } },
            set => { "One of " code { (visible(&set.to_string())) } },
        }
    }
}

/// The conditions of a write.
fn conditions(one: &Value) -> Markup {
    let guards = list_of(one, "guards");
    let eligibility = match text(&one["eligibility"], "kind") {
        "trusted" => "No model checks the rules: a person has confirmed that they allow these requests.",
        _ => "A model checks that the rules allow the request. On any response except yes, the agent takes over.",
    };
    html! {
        section.card id="conditions" {
            header { h2.grow { "Conditions" } }
            ul.rows {
                @for guard in guards { li { div {
                    p { code { (visible(text(guard, "step"))) } " requires " code { (visible(&guard["condition"].to_string())) } }
                    @let violated = count(guard, "/violated");
                    p.small.second { "False in " (violated) @if violated == 1 { " other run" } @else { " other runs" } ", where the agent did not make this write." }
                } } }
                li { p.second { (eligibility) } }
            }
        }
    }
}

/// Comparisons of the pipeline with the agent; disagreements first.
fn comparisons(shell: &Shell, one: &Value) -> Markup {
    let mut all: Vec<&Value> = list_of(one, "comparisons").iter().collect();
    let total = all.len();
    all.sort_by_key(|row| match text(row, "kind") {
        "disagreed" => 0,
        "fell_back" => 1,
        _ => 2,
    });
    all.truncate(MAX_COMPARISONS);
    html! {
        section.card id="comparisons" data-live {
            header { h2.grow { "Beside the agent" } span.dim { (total) } }
            @if all.is_empty() { p.pad.dim { "No comparison yet. In the state shadow, the pipeline runs after the agent, for comparison." } }
            @if total > all.len() { p.pad.small.dim { "The first " (all.len()) " are shown; " code { "etude learn show" } " lists all of them." } }
            @for row in all {
                @let is_same = text(row, "kind") == "agreed";
                details.fold open[text(row, "kind") == "disagreed"] {
                    summary {
                        (glyph::named(if is_same { "succeeded" } else if text(row, "kind") == "fell_back" { "skipped" } else { "rejected" }, &glyph::word(text(row, "kind"))))
                        span.dim { code { (visible(text(row, "run"))) } }
                    }
                    div {
                        p.inset.second {
                            @if let Some(reason) = row["reason"].as_str() { (visible(&reason.replace('_', " "))) ". " }
                            "Compared in " a href=(shell.link(&format!("/runs/{}", segment(text(row, "run"))))) { "this run of the agent" } "."
                        }
                        div.two { section { header { h2 { "Agent" } } (calls(&row["agent"])) } section { header { h2 { "Pipeline" } } (calls(&row["pipeline"])) } }
                    }
                }
            }
        }
    }
}

fn calls(calls: &Value) -> Markup {
    let calls = calls.as_array().map(Vec::as_slice).unwrap_or_default();
    html! {
        @if calls.is_empty() { p.dim { "No write" } }
        @for call in calls {
            p { code { (visible(text(call, "tool"))) } }
            pre.code { (pretty::pretty(&call["arguments"].to_string(), pretty::MAX_SHOWN)) }
        }
    }
}

fn definition(one: &Value) -> Markup {
    html! {
        section.card { details.fold {
            summary { "Definition" span.dim { code { (visible(text(one, "path"))) "/pipeline.yaml" } } }
            div.inset { pre.code { (pretty::pretty(&one["definition"].to_string(), pretty::MAX_SHOWN)) } }
        } }
    }
}

fn evidence(one: &Value) -> Markup {
    let of = |kind: &str, verdict: &str| count(one, &format!("/evidence/{kind}/{verdict}"));
    html! {
        section.card id="evidence" data-live {
            header { h2 { "Evidence" } }
            div.pad { dl.table {
                dt { "Requests" } dd { (count(one, "/evidence/requests")) " in " (count(one, "/evidence/runs")) " runs" }
                @for (kind, name) in [("leave_one_out", "Leave one out"), ("live", "Beside the agent")] {
                    dt { (name) } dd { (of(kind, "agreed")) " agreed, " (of(kind, "fell_back")) " fell back, " span.bad[of(kind, "disagreed") > 0] { (of(kind, "disagreed")) " disagreed" } }
                }
                dt { "Wrong writes" } dd { "at most " (percent(&one["evidence"]["wrong_rate_bound"])) }
                dt { "Requests covered" } dd { (list_of(one, "covers").len()) " of " (list_of(one, "covers").len() + list_of(one, "not_covered").len()) }
            } }
        }
    }
}

fn waits(one: &Value) -> Markup {
    let waits = list_of(one, "waits_for");
    html! {
        @if !waits.is_empty() { section.card id="waits" data-live {
            header { h2 { "Waits for" } }
            ul.rows { @for one in waits { li { (need(one)) } } }
        } }
    }
}

fn deviations(one: &Value) -> Markup {
    let rows = list_of(one, "deviations");
    html! {
        @if !rows.is_empty() { section.card id="deviations" data-live {
            header { h2 { "Deviations of the last runs" } }
            ul.rows { @for row in rows { li { code { (visible(text(row, "step"))) } span.grow { (visible(&text(row, "reason").replace('_', " "))) } span { (count(row, "/count")) } } } }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A person reads what a pipeline waits for as a sentence, and not as two truth values.
    #[test]
    fn conditions_without_a_number_are_sentences() {
        let shown = |word: &str, have: bool| need(&json!({"need": word, "have": have, "want": !have}));
        for (word, have) in [("new_evidence", false), ("unchanged_files", false), ("open_hole", true)] {
            let text = shown(word, have);
            assert!(text.starts_with("a ") && !text.contains("false") && !text.contains("true"), "{text}");
        }
        assert_eq!(need(&json!({"need": "tests", "have": 2, "want": 3})), "tests: 2, must be 3");
    }
}

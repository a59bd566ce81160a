//! The page of a pipeline or a machine: its graph, its input form, and figures of its last runs.

use std::collections::BTreeMap;

use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::form::Form;
use super::graph::Drawing;
use super::shell::{Section, Shell};
use super::text::{ABSENT, duration_of, marked, money, tokens, visible};
use super::{apps, chart, detail, faults, glyph, json as pretty, row, see, segment, source, status_of};
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::token::Scope;

/// Number of runs in the charts and figures.
const CHARTED: usize = 100;

/// Number of runs in the list.
const LISTED: usize = 20;

/// The pipeline or machine that the path names.
struct Target {
    app: String,
    name: String,
    /// `pipeline` or `machine`.
    kind: &'static str,
}

impl Target {
    fn read(call: &Call) -> Self {
        let (name, kind) = match call.param("machine") {
            "" => (call.param("pipeline"), "pipeline"),
            machine => (machine, "machine"),
        };
        Self { app: call.param("app").to_owned(), name: name.to_owned(), kind }
    }

    fn path(&self) -> String {
        format!("/apps/{}/{}s/{}", segment(&self.app), self.kind, segment(&self.name))
    }

    fn filter(&self) -> String {
        format!("app={}&{}={}", segment(&self.app), self.kind, segment(&self.name))
    }
}

/// The outcome of a form of the page.
#[derive(Default)]
struct Sent {
    fields: Vec<(String, String)>,
    refused: Option<Problem>,
    /// The document of a dry run.
    dry: Option<String>,
}

/// `GET /apps/{app}/pipelines/{pipeline}` and `…/machines/{machine}`.
pub(crate) async fn show(call: Call) -> Respond {
    page(&call, Sent::default()).await
}

/// `POST` to the same path: starts a run, or a dry one.
pub(crate) async fn start(call: Call) -> Respond {
    let target = Target::read(&call);
    let fields = call.fields().await?;
    let definition = source::get(&call, &format!("/v1{}", target.path())).await?;
    let form = Form { prefix: "input", schema: &definition["input"], sent: &fields, faults: &[] };
    let body = format!(
        "{{\"app\":{},\"{}\":{},\"input\":{}}}",
        json!(target.app),
        target.kind,
        json!(target.name),
        form.value()
    );
    let is_dry = fields.iter().any(|(name, _)| name == "dry");
    let path = if is_dry { "/v1/runs?dry_run=true" } else { "/v1/runs" };
    let started = match form.unreadable("/input") {
        Some(problem) => Err(problem),
        None if is_dry => source::act(&call, &[], path, body).await,
        None => source::act(&call, &fields, path, body).await,
    };
    match started {
        Ok(document) if is_dry => page(&call, Sent { dry: Some(document.to_string()), fields, refused: None }).await,
        Ok(run) => see(&call, &row::path(&run)),
        // Typed text is not lost.
        Err(problem) if matches!(problem.code().status(), 409 | 422 | 429 | 503) => {
            page(&call, Sent { refused: Some(problem), fields, dry: None }).await
        }
        Err(problem) => Err(problem),
    }
}

async fn page(call: &Call, sent: Sent) -> Respond {
    let (shell, target) = (Shell::new(call).await?, Target::read(call));
    let definition = match source::get(call, &format!("/v1{}", target.path())).await {
        Err(problem) if problem.code() == Code::DefinitionInvalid => return Ok(broken(&shell, &target, &problem)),
        definition => definition?,
    };
    let app = source::get(call, &format!("/v1/apps/{}", segment(&target.app))).await?;
    let about = app[format!("{}s", target.kind)]
        .as_array()
        .and_then(|list| list.iter().find(|one| one["name"] == *target.name).cloned());
    let rows = source::get(call, &format!("/v1/runs?{}&limit={CHARTED}", target.filter())).await?;
    let stats = source::get(call, &format!("/v1/runs/stats?{}&limit={CHARTED}", target.filter())).await?;
    let runs = rows["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    // The last run that has begun has states.
    let last = runs.iter().find(|run| run["started_at"].is_string());
    let drawn = match last.and_then(|run| run["run_id"].as_str()) {
        Some(run) => source::get(call, &format!("/v1{}/graph?run={}", target.path(), segment(run))).await?,
        None => definition["graph"].clone(),
    };
    let body = html! {
        div.head {
            nav.crumbs aria-label="Path" { a href=(shell.link("/apps")) { "Apps" } "/" a href=(shell.link(&format!("/apps/{}", segment(&target.app)))) { (visible(&target.app)) } "/" span { (target.kind) "s" } }
            div.line { h1 { (visible(&target.name)) } @if let Some(text) = about.as_ref().and_then(|about| about["description"].as_str()) { span.second { (visible(text)) } } }
        }
        div.body { div.columns {
            div {
                @if let Some(dry) = &sent.dry { (dry_run(dry)) }
                div id="figures" data-live { (figures(runs, &stats)) }
                (graph(&shell, &drawn, last))
                div id="last-runs" data-live { (last_runs(&shell, &target, runs, &stats)) }
            }
            div {
                (form(&shell, &target, &definition, &sent))
                @let problems = definition["diagnostics"].as_array().map(Vec::as_slice).unwrap_or_default();
                @if !problems.is_empty() { (apps::diagnostics(problems)) }
                (parts(&definition))
                (by_model(&stats))
                (by_failure(&stats))
            }
        } }
    };
    let status = sent.refused.as_ref().map_or(StatusCode::OK, status_of);
    Ok(shell.page(status, &target.name, Section::Apps, body))
}

fn broken(shell: &Shell, target: &Target, problem: &Problem) -> axum::response::Response {
    let document = problem.to_json("", "");
    let body = html! {
        div.head { div.line { h1 { (visible(&target.name)) } } div.notice.bad { p { (marked(&detail(problem))) } } }
        div.body { (apps::diagnostics(document["diagnostics"].as_array().map(Vec::as_slice).unwrap_or_default())) }
    };
    shell.page(StatusCode::UNPROCESSABLE_ENTITY, &target.name, Section::Apps, body)
}

fn dry_run(document: &str) -> Markup {
    html! { section.card role="status" { header { h2 { "Dry run: nothing was started" } } div.pad { pre.code tabindex="0" { (pretty::pretty(document, pretty::MAX_SHOWN)) } } } }
}

fn figures(runs: &[Value], stats: &Value) -> Markup {
    let of = &stats["stats"];
    let over = ["succeeded", "failed", "cancelled"].iter().filter_map(|name| of[*name].as_u64()).sum::<u64>();
    let rate = of["success_rate"].as_f64().map(|rate| format!("{:.0} %", rate * 100.0));
    #[expect(clippy::cast_precision_loss, reason = "an amount of money needs no more digits")]
    let each = of["cost_usd"].as_f64().map(|cost| cost / of["runs"].as_u64().unwrap_or(1).max(1) as f64);
    html! {
        section.card { dl.figures {
            div { dt { "Success rate" } dd { (rate.as_deref().unwrap_or(ABSENT)) @if over > 0 { " " small { (of["succeeded"]) " of " (over) } } } }
            div { dt { "Duration p50" } dd { (duration_of(&of["duration_ms"]["p50"])) } }
            div { dt { "Duration p95" } dd { (duration_of(&of["duration_ms"]["p95"])) } }
            div { dt { "Cost per run" } dd { (money(&json!(each))) } }
            div { dt { "Last run" } dd.last { @match runs.first() { Some(run) => (glyph::state(run["status"].as_str().unwrap_or_default())), None => (ABSENT) } } }
        } }
    }
}

fn graph(shell: &Shell, graph: &Value, last: Option<&Value>) -> Markup {
    let link = |id: &str| match last {
        Some(run) => shell.link(&format!("{}?at={}", row::path(run), segment(id))),
        None => format!("#step-{}", segment(id)),
    };
    html! {
        section.card {
            header { h2.grow { "Graph" }
                div.zoom role="group" aria-label="Size of the graph" data-zoom hidden {
                    button type="button" value="fit" { "Fit" }
                    button type="button" value="out" aria-label="Smaller" { "−" }
                    button type="button" value="whole" { output { "100 %" } span.said { " Full size" } }
                    button type="button" value="in" aria-label="Larger" { "+" }
                }
                @if let Some(run) = last { span.dim.small { "States of run " a href=(shell.link(&row::path(run))) { code { (row::short(run["run_id"].as_str().unwrap_or_default())) } } } } }
            div.graph id="graph" data-live tabindex="0" { (Drawing { graph, link: &link }.render()) }
        }
    }
}

fn last_runs(shell: &Shell, target: &Target, runs: &[Value], stats: &Value) -> Markup {
    let p50 = stats["stats"]["duration_ms"]["p50"].as_u64();
    let shown = &runs[..runs.len().min(LISTED)];
    // The chart has only these.
    let has_ended = runs.iter().any(|run| run["ended_at"].is_string());
    html! {
        section.card {
            header {
                h2.grow { @if runs.len() > 1 { "Last " (runs.len()) " runs" } @else { "Runs" } }
                @if has_ended { span.legend-inline { span { svg viewBox="0 0 20 10" aria-hidden="true" { line.median x1="0" x2="20" y1="5" y2="5" {} } "p50 " (duration_of(&stats["stats"]["duration_ms"]["p50"])) } span { svg viewBox="0 0 20 10" aria-hidden="true" { rect.bar-rejected x="0.5" y="0.5" width="19" height="9" rx="2" {} } "Failed" } } }
                a href=(shell.link(&format!("/?{}", target.filter()))) { "All" }
            }
            @if runs.is_empty() {
                div.empty { p { "No run yet. Start one with the form, or:" } div.command { code { "etude run --" (target.kind) " " (visible(&target.name)) } button.link type="button" data-copy hidden { "Copy" } } }
            } @else {
                @if has_ended { div.pad { (chart::runs(shell, runs, p50)) } }
                table.runs {
                    caption.said { "Last runs" }
                    thead { tr { th scope="col" { "State" } th scope="col" { "Run" } th scope="col" { "Cause" } th.num scope="col" { "Started" } th.num scope="col" { "Duration" } th scope="col" { "Steps" } th.num.tokens scope="col" { "Tokens" } th.num scope="col" { "Cost" } th.labels scope="col" { "Labels" } } }
                    tbody { @for run in shown { (row::row(shell, run)) } }
                }
            }
        }
    }
}

fn form(shell: &Shell, target: &Target, definition: &Value, sent: &Sent) -> Markup {
    let faults = sent.refused.as_ref().map(|problem| faults(problem, "/input")).unwrap_or_default();
    let schema = &definition["input"];
    html! {
        section.card {
            header { h2 { "Run this " (target.kind) } }
            form.form.pad method="post" action=(shell.link(&target.path())) id="start" {
                @if let Some(problem) = &sent.refused { p.fault.bad role="alert" { (marked(&detail(problem))) } }
                (Form { prefix: "input", schema, sent: &sent.fields, faults: &faults }.render())
                @if schema["properties"].as_object().is_none_or(serde_json::Map::is_empty) { p.dim { "It takes no input." } }
                @match shell.lacks(Scope::Run) {
                    Some(lacking) => { (lacking) },
                    None => { (source::once()) div.actions { button.primary { "Run" } button name="dry" value="true" formnovalidate { "Dry run" } } },
                }
            }
        }
    }
}

/// The steps or stages as text, for readers who do not use the drawing.
fn parts(definition: &Value) -> Markup {
    let nodes = definition["graph"]["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let steps: Vec<&Value> =
        nodes.iter().filter(|node| !matches!(node["type"].as_str(), Some("constructor" | "destructor"))).collect();
    let is_machine = steps.iter().any(|node| node["type"] == "stage");
    let mut following: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for edge in definition["graph"]["edges"].as_array().into_iter().flatten() {
        if let (Some(from), Some(to)) = (edge["from"].as_str(), edge["to"].as_str()) {
            following.entry(from).or_default().push(to);
        }
    }
    html! {
        section.card {
            header { h2.grow { @if is_machine { "Stages" } @else { "Steps" } } span.dim { (steps.len()) } }
            ul.rows { @for node in &steps {
                li id={ "step-" (segment(node["id"].as_str().unwrap_or_default())) } {
                    code.value { (visible(node["name"].as_str().unwrap_or_default())) } span.dim.small { (node["type"].as_str().unwrap_or_default()) @if node["for_each"].is_object() { " · for_each" } }
                    span.grow {}
                    @if let Some(tier) = node["tier"].as_str() { span.small { (visible(tier)) } }
                    @if node["phase"] != "business" { span.small.dim { (node["phase"].as_str().unwrap_or_default()) } }
                    @if let Some(tools) = node["allowedTools"].as_array().filter(|tools| !tools.is_empty()) {
                        p.small.second { "May call " @for (nth, tool) in tools.iter().filter_map(Value::as_str).enumerate() { @if nth > 0 { ", " } code { (visible(tool)) } } }
                    }
                    @if is_machine {
                        @if let Some(next) = node["id"].as_str().and_then(|id| following.get(id)) { p.small.dim { "then " (next.join(" or ")) } }
                    }
                }
            } }
        }
    }
}

fn by_model(stats: &Value) -> Markup {
    let models = stats["models"].as_array().into_iter().flatten();
    let rows: Vec<(String, u64, String)> = models
        .filter_map(|model| {
            Some((model["model"].as_str()?.to_owned(), model["tokens"].as_u64()?, money(&model["cost_usd"])))
        })
        .filter(|(_, count, _)| *count > 0)
        .collect();
    let total: u64 = rows.iter().map(|(_, count, _)| count).sum();
    html! { @if !rows.is_empty() { section.card { header { h2.grow { "Tokens by model" } span.dim { (tokens(total)) } } (chart::shares("ok", &rows)) } } }
}

fn by_failure(stats: &Value) -> Markup {
    let failures = stats["stats"]["failures"].as_array().into_iter().flatten();
    let rows: Vec<(String, u64, String)> = failures
        .filter_map(|one| Some((one["reason"].as_str()?.to_owned(), one["runs"].as_u64()?, "runs".to_owned())))
        .collect();
    html! { @if !rows.is_empty() { section.card { header { h2 { "Failures by step" } } (chart::shares("failed", &rows)) } } }
}

//! The list of runs.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;
use url::form_urlencoded;

use super::shell::{Section, Shell};
use super::text::{number, visible};
use super::{glyph, row, segment, source};
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};

/// The parameters that select runs: those of the API, and `days`, from which `since` is computed.
pub(crate) const PARAMETERS: &[&str] =
    &["status", "app", "pipeline", "machine", "cause", "label", "q", "since", "until", "days", "cursor"];

/// The states in the order of their urgency.
const STATES: [&str; 8] =
    ["queued", "running", "waiting", "sleeping", "interrupted", "succeeded", "failed", "cancelled"];

const CAUSES: [&str; 5] = ["cli", "api", "schedule", "webhook", "mcp"];

const DAYS: [(&str, &str); 3] = [("1", "Last 24 hours"), ("7", "Last 7 days"), ("30", "Last 30 days")];

/// Maximum number of rows that are shown besides those of the list.
const MAX_BEYOND: usize = 50;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The filters of the URL.
struct Filters(Vec<(String, String)>);

impl Filters {
    fn read(call: &Call) -> Self {
        let pairs =
            PARAMETERS.iter().flat_map(|name| call.query.all(name).map(|value| ((*name).to_owned(), value.to_owned())));
        Self(pairs.filter(|(_, value)| !value.is_empty()).collect())
    }

    fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The query string of these filters without `dropped`, and with `added`.
    fn query(&self, dropped: &[&str], added: &[(&str, &str)]) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.0.iter().filter(|(name, _)| !dropped.contains(&name.as_str())));
        query.extend_pairs(added);
        match query.finish() {
            empty if empty.is_empty() => empty,
            query => format!("?{query}"),
        }
    }

    /// The query string for the API.
    fn of_api(&self, dropped: &[&str], now_ms: i64) -> Result<String, Problem> {
        let dropped = [dropped, &["days"]].concat();
        match self.get("days") {
            "" => Ok(self.query(&dropped, &[])),
            days => {
                let number = days.parse::<i64>().ok().filter(|days| (1..=3_650).contains(days));
                let number =
                    number.ok_or_else(|| crate::query::invalid("days", "`days` must be a number from 1 to 3650"))?;
                // Whole minutes, so that the pages of one list have the same filters.
                let since = crate::clock::rfc3339((now_ms - number * DAY_MS) / 60_000 * 60_000);
                Ok(self.query(&[dropped.as_slice(), &["since"]].concat(), &[("since", &since)]))
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|(name, _)| name == "cursor")
    }
}

/// `GET /`.
pub(crate) async fn list(call: Call) -> Respond {
    let (filters, now_ms) = (Filters::read(&call), call.server.clock().now_ms());
    let shell = Shell::new(&call).await?;
    let counts =
        source::get(&call, &format!("/v1/runs/counts{}", filters.of_api(&["status", "cursor"], now_ms)?)).await?;
    let page = source::get(&call, &format!("/v1/runs{}", filters.of_api(&[], now_ms)?)).await?;
    let body = html! {
        div.head {
            div.line { h1.grow { "Runs" } a.button.primary href=(shell.link("/apps")) { "Start a run" } }
            (tabs(&shell, &filters, &counts))
            (form(&shell, &call, &filters))
        }
        div.body.flush {
            div.card id="runs" data-live="rows" { (table(&shell, &filters, &page, now_ms)) }
            (pager(&shell, &filters, &page))
            (beyond(&call, &shell, &page).await?)
        }
    };
    Ok(shell.page(StatusCode::OK, "Runs", Section::Runs, body))
}

/// The rows of runs that the reader still sees, although they have left the list: a script takes them from here.
async fn beyond(call: &Call, shell: &Shell, page: &Value) -> Result<Markup, Problem> {
    let listed = |id: &&str| page["runs"].as_array().is_some_and(|runs| runs.iter().any(|run| run["run_id"] == **id));
    let mut rows = Vec::new();
    let shown = call.query.get("shown").unwrap_or_default();
    for id in shown.split(',').filter(|id| !id.is_empty() && !listed(id)).take(MAX_BEYOND) {
        match source::get(call, &format!("/v1/runs/{}?brief=true", segment(id))).await {
            Ok(run) => rows.push(run),
            Err(problem) if problem.code() == Code::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(
        html! { @if !rows.is_empty() { table id="beyond" hidden { tbody { @for run in &rows { (row::row(shell, run)) } } } } },
    )
}

fn tabs(shell: &Shell, filters: &Filters, counts: &Value) -> Markup {
    let chosen = filters.get("status");
    let count = |state: &str| counts[state].as_u64().unwrap_or(0);
    let link = |state: &str| {
        let added: &[(&str, &str)] = if state.is_empty() { &[] } else { &[("status", state)] };
        shell.link(&format!("/{}", filters.query(&["status", "cursor"], added)))
    };
    html! {
        nav.tabs id="counts" data-live aria-label="States" {
            a href=(link("")) aria-current=[chosen.is_empty().then_some("page")] {
                "All" span.n { (number(STATES.iter().map(|state| count(state)).sum())) }
            }
            @for state in STATES {
                a href=(link(state)) aria-current=[(chosen == state).then_some("page")] {
                    (glyph::drawn(state)) (glyph::word(state)) span.n { (number(count(state))) }
                }
            }
        }
    }
}

fn form(shell: &Shell, call: &Call, filters: &Filters) -> Markup {
    let apps = &call.server.settings().apps;
    let fixed = ["status", "pipeline", "machine", "label", "since", "until"];
    html! {
        form.filters method="get" action=(shell.link("/")) role="search" {
            @for (name, value) in filters.0.iter().filter(|(name, _)| fixed.contains(&name.as_str())) {
                input type="hidden" name=(name) value=(value);
            }
            input type="search" name="q" value=(filters.get("q")) placeholder="Id, target or label" aria-label="Search runs by id, target or label" data-search;
            @if apps.len() > 1 {
                (select("app", "App", "All apps", filters, apps.iter().map(|app| (app.slug.as_str(), app.slug.as_str()))))
            }
            (select("cause", "Cause", "Any cause", filters, CAUSES.iter().map(|cause| (*cause, *cause))))
            (select("days", "Age", "Any time", filters, DAYS.iter().copied()))
            button { "Filter" }
            @for (name, value) in filters.0.iter().filter(|(name, _)| ["pipeline", "machine", "label", "since", "until"].contains(&name.as_str())) {
                span.tag { (name) " " (visible(value)) }
            }
            @if !filters.is_empty() { a href=(shell.link("/")) { "Clear" } }
        }
    }
}

fn select<'s>(
    name: &str,
    label: &str,
    any: &str,
    filters: &Filters,
    values: impl Iterator<Item = (&'s str, &'s str)>,
) -> Markup {
    let chosen = filters.get(name);
    html! {
        select name=(name) aria-label=(label) data-submit {
            option value="" { (any) }
            @for (value, text) in values { option value=(value) selected[value == chosen] { (text) } }
        }
    }
}

fn table(shell: &Shell, filters: &Filters, page: &Value, now_ms: i64) -> Markup {
    let runs = page["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if runs.is_empty() {
        return empty(shell, filters);
    }
    let days: Vec<String> = runs.iter().map(|run| shell.zone.day(&run["created_at"], now_ms)).collect();
    html! {
        table.runs {
            caption.said { "Runs, newest first" }
            thead { tr {
                th scope="col" { "State" } th scope="col" { "Target" } th scope="col" { "Cause" } th.num scope="col" { "Started" }
                th.num scope="col" { "Duration" } th scope="col" { "Steps" } th.num.tokens scope="col" { "Tokens" }
                th.num scope="col" { "Cost" } th.labels scope="col" { "Labels" }
            } }
            tbody {
                @for (nth, run) in runs.iter().enumerate() {
                    @if nth == 0 || days[nth] != days[nth - 1] {
                        tr.day data-key=(days[nth]) { th colspan="9" scope="colgroup" { (days[nth]) } }
                    }
                    (row::row(shell, run))
                }
            }
        }
    }
}

fn empty(shell: &Shell, filters: &Filters) -> Markup {
    html! {
        div.empty {
            @if filters.is_empty() {
                p { "No runs yet. Start one on the page of " a href=(shell.link("/apps")) { "a pipeline" } ", or with:" }
                div.command { code { "etude run --pipeline NAME" } button.link type="button" data-copy hidden { "Copy" } }
            } @else {
                p { "No run matches these filters." }
                a.button href=(shell.link("/")) { "Show all runs" }
            }
        }
    }
}

fn pager(shell: &Shell, filters: &Filters, page: &Value) -> Markup {
    let next = page["next"].as_str();
    html! {
        div.pager {
            p.keys { span { kbd { "j" } " " kbd { "k" } " move" } span { kbd { "Enter" } " open" } span { kbd { "/" } " search" } }
            div.right {
                @if !filters.get("cursor").is_empty() { a.button href=(shell.link(&format!("/{}", filters.query(&["cursor"], &[])))) { "Newest" } }
                @if let Some(next) = next {
                    a.button href=(shell.link(&format!("/{}", filters.query(&["cursor"], &[("cursor", next)])))) rel="next" { "Older" }
                }
            }
        }
    }
}

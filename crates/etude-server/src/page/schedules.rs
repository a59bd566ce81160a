//! Pages of schedules: their times, the outcomes of their ticks, and the actions on them.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::shell::{Section, Shell};
use super::text::{ABSENT, Zone, duration, duration_of, list_of, marked, sentence, text, visible};
use super::{glyph, row, see, segment, source};
use crate::problem::Problem;
use crate::request::{Call, Respond};
use crate::token::Scope;

/// Number of ticks in a strip.
const STRIP: usize = 30;

/// The path of a schedule's page.
fn path(schedule: &Value) -> String {
    format!("/schedules/{}/{}", segment(text(schedule, "app")), segment(text(schedule, "name")))
}

/// `GET /schedules`: all schedules.
pub(crate) async fn list(call: Call) -> Respond {
    let shell = Shell::new(&call).await?;
    let document = source::get(&call, "/v1/schedules").await?;
    let mut rows = Vec::new();
    for schedule in list_of(&document, "schedules") {
        let ticks = source::get(&call, &format!("/v1{}/ticks?limit={STRIP}", path(schedule))).await?;
        rows.push(row_of(&shell, schedule, list_of(&ticks, "ticks")));
    }
    let body = html! {
        div.head { div.line { h1 { "Schedules" } } }
        div.body.flush {
            div.card id="schedules" data-live { @if rows.is_empty() { (empty(&shell)) } @else {
                table.runs.list {
                    caption.said { "Schedules" }
                    thead { tr { th scope="col" { "State" } th scope="col" { "Schedule" } th scope="col" { "When" } th scope="col" { "Next tick" } th scope="col" { "Last ticks" } } }
                    tbody { @for row in &rows { (row) } }
                }
            } }
        }
    };
    Ok(shell.page(StatusCode::OK, "Schedules", Section::Schedules, body))
}

fn empty(shell: &Shell) -> Markup {
    html! {
        div.empty {
            p { "No schedule yet. Write one into " (shell.file_of_automation()) "; the server uses it within two seconds:" }
            div.command { code { "schedules: {nightly: {pipeline: NAME, cron: \"30 2 * * *\", timezone: Europe/Berlin}}" } button.link type="button" data-copy hidden { "Copy" } }
        }
    }
}

fn state(schedule: &Value) -> Markup {
    match () {
        () if schedule["broken"].is_array() => glyph::named("failed", "Broken"),
        () if schedule["paused"] == true => glyph::state("paused"),
        () => glyph::state("active"),
    }
}

fn row_of(shell: &Shell, schedule: &Value, ticks: &[Value]) -> Markup {
    let next = &schedule["next_at"];
    html! {
        tr.run data-key={ (text(schedule, "app")) "/" (text(schedule, "name")) } {
            td.state-cell { (state(schedule)) }
            td.target-cell {
                a.target href=(shell.link(&path(schedule))) { (visible(text(schedule, "name"))) } " "
                span.dim { (visible(row::target(schedule))) }
                // All in the zone of the schedule, like the description.
                p.phone.small.dim {
                    (when(schedule)) " · " (visible(zone_name(schedule)))
                    @if next.is_string() { " · next " (zone(schedule).tick(next)) " " (yours(shell, schedule, next)) }
                }
                @if let Some(why) = trouble(schedule, ticks) { p.reason { (marked(&why)) } }
            }
            td.wide.wrap { (when(schedule)) p.also.dim { (pattern(schedule)) } }
            td.wide { @if next.is_string() { (zone(schedule).tick(next)) br; (yours(shell, schedule, next)) } @else { (ABSENT) } }
            td.wide { (strip(ticks)) }
        }
    }
}

/// The trouble to show before the schedule is opened.
fn trouble(schedule: &Value, ticks: &[Value]) -> Option<String> {
    if let Some(broken) = schedule["broken"].as_array() {
        return broken.first().map(|fault| text(fault, "message").to_owned());
    }
    if schedule["paused"] == true {
        return schedule["reason"].as_str().map(str::to_owned);
    }
    let skipped = ticks.iter().take_while(|tick| tick["outcome"] == "skipped" && tick["reason"] != "paused").count();
    let reason = reason(text(ticks.first()?, "reason"));
    (skipped > 0).then(|| format!("the last {} no run: {reason}", ticks_made(skipped)))
}

fn ticks_made(count: usize) -> String {
    if count == 1 { "tick started".to_owned() } else { format!("{count} ticks started") }
}

/// The reason why a tick started no run, as a phrase.
fn reason(word: &str) -> &str {
    match word {
        "overlap" => "an earlier run had not ended",
        "paused" => "the schedule was paused",
        "missed" => "no server was running",
        "queue_full" => "the queue was full",
        "budget_spent" => "the budget was spent",
        "definition_invalid" => "the definition had errors",
        other => other,
    }
}

fn when(schedule: &Value) -> String {
    sentence(schedule["description"].as_str().unwrap_or(ABSENT))
}

fn pattern(schedule: &Value) -> Markup {
    html! {
        @if let Some(cron) = schedule["cron"].as_str() { code { (visible(cron)) } " · " }
        (visible(zone_name(schedule)))
    }
}

fn zone_name(schedule: &Value) -> &str {
    schedule["timezone"].as_str().unwrap_or("UTC")
}

fn zone(schedule: &Value) -> Zone {
    Zone::of_schedule(zone_name(schedule))
}

/// The time in the reader's zone, if it differs.
fn yours(shell: &Shell, schedule: &Value, at: &Value) -> Markup {
    let (theirs, own) = (zone(schedule).tick(at), shell.zone.tick(at));
    html! { @if theirs.0 != own.0 { span.also.dim { "yours: " (own) } } }
}

/// The look of a tick in the strip.
fn look(tick: &Value) -> &'static str {
    match (text(tick, "outcome"), text(tick, "reason")) {
        ("ran", _) => "ran",
        ("waiting", _) => "waiting",
        (_, "missed") => "missed",
        (_, "paused") => "paused",
        _ => "skipped",
    }
}

/// The last ticks, oldest first. Each look has a height of its own, so that colour is not needed.
fn strip(ticks: &[Value]) -> Markup {
    if ticks.is_empty() {
        return html! { span.dim { "None yet" } };
    }
    let ran = ticks.iter().filter(|tick| tick["outcome"] == "ran").count();
    let width = ticks.len() * 6;
    html! {
        span.strip {
            svg width=(width) height="16" viewBox={ "0 0 " (width) " 16" } aria-hidden="true" {
                @for (nth, tick) in ticks.iter().rev().enumerate() { (bar(nth * 6, look(tick))) }
            }
            span { (ran) " of " (ticks.len()) " ran" }
        }
    }
}

/// The looks of a strip in words, if there are several.
fn legend(ticks: &[Value]) -> Markup {
    let has = |look: &&str| ticks.iter().any(|tick| self::look(tick) == *look);
    let looks: Vec<&str> = ["ran", "waiting", "skipped", "missed", "paused"].into_iter().filter(has).collect();
    html! {
        @if looks.len() > 1 { p.legend {
            @for look in looks { span.strip { svg width="6" height="16" viewBox="0 0 6 16" aria-hidden="true" { (bar(0, look)) } (glyph::word(look)) } }
        } }
    }
}

fn bar(x: usize, look: &str) -> Markup {
    let (y, height) = match look {
        "ran" => ("0", "16"),
        "skipped" => ("10", "6"),
        "waiting" => ("6.5", "9"),
        "missed" => ("2.5", "13"),
        _ => ("12.5", "3"),
    };
    let (x, width) = if matches!(look, "ran" | "skipped") { (x.to_string(), "4") } else { (format!("{x}.5"), "3") };
    html! { rect class=(look) x=(x) y=(y) width=(width) height=(height) rx="1" {} }
}

/// `GET /schedules/{app}/{name}`.
pub(crate) async fn show(call: Call) -> Respond {
    let shell = Shell::new(&call).await?;
    let base = format!("/v1/schedules/{}/{}", segment(call.param("app")), segment(call.param("name")));
    let schedule = source::get(&call, &base).await?;
    let next = source::get(&call, &format!("{base}/next")).await?;
    let strip = source::get(&call, &format!("{base}/ticks?limit={STRIP}")).await?;
    let cursor = call.query.get("cursor").map(|cursor| format!("?cursor={}", segment(cursor))).unwrap_or_default();
    let ticks = source::get(&call, &format!("{base}/ticks{cursor}")).await?;
    let of = format!("app={}&schedule={}", segment(call.param("app")), segment(call.param("name")));
    let actions = source::actions(&call, &of).await?;
    let title = text(&schedule, "name").to_owned();
    let body = html! {
        (head(&shell, &schedule))
        div.body { div.columns {
            div { section.card id="ticks" data-live {
                header { h2.grow { "Ticks" } (self::strip(list_of(&strip, "ticks"))) }
                (legend(list_of(&strip, "ticks")))
                (table(&shell, list_of(&ticks, "ticks")))
                @if !cursor.is_empty() || ticks["next"].is_string() { div.pad { div.pager { div.right {
                    @if !cursor.is_empty() { a.button href=(shell.link(&path(&schedule))) { "Newest" } }
                    @if let Some(next) = ticks["next"].as_str() { a.button rel="next" href=(shell.link(&format!("{}?cursor={}", path(&schedule), segment(next)))) { "Older" } }
                } } } }
            } }
            div {
                section.card id="next" data-live {
                    header { h2.grow { "Next ticks" } span.dim.small { (visible(zone_name(&schedule))) } }
                    @if list_of(&next, "times").is_empty() { p.pad.dim { "None." } }
                    ul.rows { @for at in list_of(&next, "times") { li { span.grow { (zone(&schedule).tick(at)) } (yours(&shell, &schedule, at)) } } }
                }
                (settings(&shell, &schedule))
                @if !actions.is_empty() {
                    section.card id="actions" data-live {
                        header { h2 { "Actions" } }
                        ul.rows { @for action in &actions { li { span { (row::action(&shell, action)) } } } }
                    }
                }
            }
        } }
    };
    Ok(shell.page(StatusCode::OK, &title, Section::Schedules, body))
}

fn head(shell: &Shell, schedule: &Value) -> Markup {
    html! {
        div.head id="head" data-live {
            nav.crumbs aria-label="Path" { a href=(shell.link("/schedules")) { "Schedules" } "/" span { (visible(text(schedule, "app"))) } }
            div.line {
                h1 { (visible(text(schedule, "name"))) } (state(schedule))
                span.grow {}
                (actions(shell, schedule))
            }
            p.second { (when(schedule)) " " span.dim { (pattern(schedule)) } }
            @for fault in list_of(schedule, "broken") {
                div.notice.bad role="alert" { (glyph::drawn("failed")) p {
                    "The schedule starts no runs: " (marked(text(fault, "message")))
                    @if let Some(hint) = fault["hint"].as_str() { " " span { (marked(hint)) } }
                } }
            }
            @if schedule["paused"] == true {
                div.notice { (glyph::drawn("paused")) p { "Ticks start no runs while the schedule is paused" @if let Some(reason) = schedule["reason"].as_str() { ": " (visible(reason)) } @else { "." } } }
            }
        }
    }
}

fn actions(shell: &Shell, schedule: &Value) -> Markup {
    let act = |what: &str| shell.link(&format!("{}/{what}", path(schedule)));
    let is_broken = schedule["broken"].is_array();
    if let Some(lacking) = shell.lacks(Scope::Run) {
        return lacking;
    }
    html! {
        div.actions {
            @if schedule["paused"] == true {
                form method="post" action=(act("unpause")) data-key="unpause" { (source::once()) button { "Resume" } }
            } @else {
                details.menu data-key="pause" {
                    summary.button { "Pause" }
                    div { form.form method="post" action=(act("pause")) {
                        (source::once())
                        div.field { label for="reason" { "Reason " span.kind { "optional" } } input id="reason" name="reason"; span.help { "Shown until someone resumes the schedule." } }
                        div { button.primary { "Pause the schedule" } }
                    } }
                }
            }
            @if !is_broken {
                details.menu data-key="backfill" {
                    summary.button { "Backfill" }
                    div { form.form method="post" action=(act("backfill")) {
                        (source::once())
                        div.field { label for="from" { "From" } input id="from" name="from" type="datetime-local" required; }
                        div.field { label for="to" { "To (exclusive)" } input id="to" name="to" type="datetime-local" required;
                            span.help { "Times of " (visible(zone_name(schedule))) ". Each past tick in this range that has no run starts one." } }
                        div { button.primary { "Backfill" } }
                    } }
                }
                form method="post" action=(act("fire")) data-key="fire" { (source::once()) button.primary { "Run now" } }
            }
        }
    }
}

fn table(shell: &Shell, ticks: &[Value]) -> Markup {
    if ticks.is_empty() {
        return html! { div.empty { p { "No tick yet. " b { "Run now" } " starts a run immediately." } } };
    }
    html! {
        table.runs.list {
            caption.said { "Ticks, newest first" }
            thead { tr { th scope="col" { "Outcome" } th scope="col" { "Tick" } th scope="col" { "Kind" } th scope="col" { "Run" } } }
            tbody { @for tick in ticks {
                @let run = tick["run_id"].as_str();
                tr {
                    td.state-cell { @match text(tick, "outcome") { "ran" => (glyph::named("succeeded", "Ran")), outcome => (glyph::state(outcome)) } }
                    td.target-cell {
                        (shell.zone.tick(&tick["at"]))
                        @if tick["due_at"] != tick["at"] { span.dim { ", due " (shell.zone.clock(&tick["due_at"])) } }
                        @if tick["late_ms"].is_u64() { span.dim { ", " (duration_of(&tick["late_ms"])) " late" } }
                        @if let Some(word) = tick["reason"].as_str() { p.reason { (visible(reason(word))) } }
                        p.phone.small.dim { (text(tick, "kind")) }
                    }
                    td.wide.second { (text(tick, "kind")) }
                    td.took { @match run { Some(id) => { a href=(shell.link(&format!("/runs/{}", segment(id)))) { code { (row::short(id)) } } }, None => (ABSENT) } }
                }
            } }
        }
    }
}

fn settings(shell: &Shell, schedule: &Value) -> Markup {
    let app = segment(text(schedule, "app"));
    let target = match (schedule["pipeline"].as_str(), schedule["machine"].as_str()) {
        (Some(name), _) => Some((name, format!("/apps/{app}/pipelines/{}", segment(name)))),
        (None, Some(name)) => Some((name, format!("/apps/{app}/machines/{}", segment(name)))),
        (None, None) => None,
    };
    let span = |name: &str| match schedule[name].as_u64() {
        None | Some(0) => "none".to_owned(),
        Some(ms) => [" 00 h", " 00 min", " 00 s"].iter().fold(duration(ms), |text, rest| text.replace(rest, "")),
    };
    html! {
        section.card {
            header { h2 { "Definition" } }
            div.pad { dl.table {
                dt { "Runs" } dd { @match target { Some((name, path)) => { a href=(shell.link(&path)) { (visible(name)) } }, None => (ABSENT) } }
                dt { "Overlap" } dd { code { (text(schedule, "overlap")) } }
                dt { "Catch up" } dd { code { (text(schedule, "catch_up")) } " within " (span("catch_up_within_ms")) }
                dt { "Jitter" } dd { (span("jitter_ms")) }
            } }
        }
    }
}

/// `POST /schedules/{app}/{name}/{action}`.
pub(crate) async fn act(call: Call) -> Respond {
    let form = call.form(&["reason", "from", "to", source::ONCE]).await?;
    let base = format!("/v1/schedules/{}/{}", segment(call.param("app")), segment(call.param("name")));
    let schedule = source::get(&call, &base).await?;
    let zone = zone(&schedule);
    let mut body = json!({});
    for (name, value) in form.iter().filter(|(name, value)| !value.is_empty() && name != source::ONCE) {
        let value = if name == "reason" { value.clone() } else { zone.instant(value).unwrap_or_else(|| value.clone()) };
        body[name.as_str()] = value.into();
    }
    let action = call.param("action").to_owned();
    if !["pause", "unpause", "fire", "backfill"].contains(&action.as_str()) {
        return Err(Problem::not_found("there is no such action"));
    }
    source::post(&call, &form, &format!("{base}/{action}"), &body).await?;
    see(&call, &path(&schedule))
}

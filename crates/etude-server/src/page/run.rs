//! The page of a run: its course, its result, and the actions on it.

use etude_runs::listing::is_question;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::shell::{Section, Shell};
use super::text::{ABSENT, bytes, copied, duration_so_far, marked, money, number, title, visible};
use super::{glyph, node, row, see, segment, source, tree};
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::token::Scope;

/// The modes of runs that can be run again.
const AGAIN: [&str; 2] = ["pipeline", "machine"];

/// Maximum number of bytes of a value that a page reads.
const MAX_SHOWN: u64 = super::json::MAX_SHOWN as u64;

/// The document of a run, and the beginnings of its input and output, which keep their digits.
pub(super) struct Shown {
    pub(super) run: Value,
    /// The last actions of tokens on the run, newest first.
    actions: Vec<Value>,
    input: Beginning,
    output: Beginning,
}

/// The beginning of the text of a value.
struct Beginning {
    text: String,
    /// The path of the whole text.
    path: String,
    /// Length of the whole text, in bytes.
    total: u64,
}

impl Beginning {
    async fn read(call: &Call, path: String) -> Result<Self, Problem> {
        // Four more bytes complete a character at the end of the page.
        let (read, total) = match source::range(call, &path, 0, MAX_SHOWN + 4).await {
            // The header of the run is damaged. The rest of the page is still useful.
            Err(problem) if problem.code() == Code::JournalUnavailable => (b"null".to_vec(), 4),
            read => read?,
        };
        Ok(Self { text: String::from_utf8_lossy(&read).trim_end_matches('\u{fffd}').to_owned(), path, total })
    }
}

impl Shown {
    async fn read(call: &Call, id: &str) -> Result<Self, Problem> {
        let path = format!("/v1/runs/{}", segment(id));
        let run = source::get(call, &format!("{path}?brief=true")).await?;
        let actions = source::actions(call, &format!("run={}", segment(id))).await?;
        let input = Beginning::read(call, format!("{path}/input")).await?;
        Ok(Self { run, actions, input, output: Beginning::read(call, format!("{path}/output")).await? })
    }

    pub(super) fn id(&self) -> &str {
        self.run["run_id"].as_str().unwrap_or_default()
    }

    pub(super) fn status(&self) -> &str {
        self.run["status"].as_str().unwrap_or_default()
    }
}

/// `GET /runs/{id}`.
pub(crate) async fn show(call: Call) -> Respond {
    let shell = Shell::new(&call).await?;
    let shown = Shown::read(&call, call.param("id")).await?;
    let tree = tree::Tree::read(&call, &shown).await?;
    let details = node::details(&call, &shell, &shown, &tree).await?;
    let title = format!("{} {}", row::target(&shown.run), glyph::word(shown.status()));
    let body = html! {
        (head(&shell, &shown))
        div.panes {
            div.main {
                div id="tree-pane" data-live { (tree.render(&shell, &shown)) }
                div.two id="values" data-live {
                    (value(&shell, &shown, "Input", &shown.input))
                    (value(&shell, &shown, "Output", &shown.output))
                }
            }
            aside.side id="details" data-live aria-label="Selected node" { (details) }
        }
    };
    Ok(shell.page(StatusCode::OK, &title, Section::Runs, body))
}

fn value(shell: &Shell, shown: &Shown, title: &str, Beginning { text, path, total }: &Beginning) -> Markup {
    html! {
        section {
            @let shown_text = super::json::indented(text, super::json::MAX_SHOWN);
            @let is_whole = *total <= MAX_SHOWN && super::json::is_whole(&shown_text);
            header { h2 { (title) } @if text != "null" && is_whole { button.link type="button" data-copy hidden { "Copy" } } }
            @if text == "null" {
                p.dim { @if matches!(shown.status(), "queued" | "running" | "waiting" | "sleeping") { "None yet." } @else { "None." } }
            } @else {
                pre data-copied { (copied(&shown_text)) }
                @if !is_whole {
                    div.actions.small {
                        span.dim { "The beginning of " (bytes(*total)) "." }
                        a href=(shell.link(path)) download={ (title) ".json" } { "Download" }
                    }
                }
            }
        }
    }
}

fn head(shell: &Shell, shown: &Shown) -> Markup {
    let (run, status) = (&shown.run, shown.status());
    let target = row::target(run);
    let definition = match (run["app"].as_str(), run["machine"].as_str()) {
        (Some(app), Some(machine)) => Some(format!("/apps/{}/machines/{}", segment(app), segment(machine))),
        (Some(app), None) => {
            run["pipeline"].as_str().map(|name| format!("/apps/{}/pipelines/{}", segment(app), segment(name)))
        }
        (None, _) => None,
    };
    html! {
        div.head id="head" data-live {
            nav.crumbs aria-label="Path" {
                a href=(shell.link("/")) { "Runs" } "/"
                @match definition {
                    Some(path) => { a href=(shell.link(&path)) { (visible(target)) } },
                    None => { span { (visible(target)) } },
                }
                "/" code { (row::short(shown.id())) }
            }
            div.line {
                (glyph::drawn(status))
                h1 { (visible(target)) }
                span.value role="status" { (glyph::word(status)) }
                span.grow {}
                (actions(shell, shown))
            }
            (facts(shell, shown))
            (failures(shown))
            @if status == "waiting" { (questions(shell, run)) }
            @if let (true, Some(why)) = (status == "interrupted" && run["reason"].is_string(), row::reason(run)) {
                div.notice { p { (visible(&why)) } }
            }
        }
    }
}

fn facts(shell: &Shell, shown: &Shown) -> Markup {
    let run = &shown.run;
    let usage = &run["usage"];
    let steps = run["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let done = steps.iter().filter(|step| step["status"] == "succeeded").count();
    let tokens = |name: &str| usage[name].as_u64().map_or_else(|| ABSENT.to_owned(), number);
    html! {
        dl.facts {
            div { dt { "Started" } dd { @if run["started_at"].is_null() { (shell.zone.moment(&run["created_at"])) span.dim { " queued" } } @else { (shell.zone.moment(&run["started_at"])) } } }
            div { dt { "Duration" } dd { (duration_so_far(run)) } }
            @if !steps.is_empty() { div { dt { "Steps" } dd { (done) " of " (steps.len()) } } }
            div.more { dt { "Tokens" } dd { (tokens("input_tokens")) " in · " (tokens("output_tokens")) " out" } }
            div { dt { "Cost" } dd { (money(&usage["cost_usd"])) @if run["limits"]["max_cost_usd"].is_number() { span.dim { " of " (money(&run["limits"]["max_cost_usd"])) } } } }
            div.more { dt { "Cause" } dd { (run["cause"].as_str().unwrap_or(ABSENT)) @if let Some(by) = run["by"].as_str() { " " span.dim { (visible(by)) } } } }
            @if let Some(again) = run["again_of"].as_str() { div.more { dt { "Rerun of" } dd { a href=(shell.link(&format!("/runs/{}", segment(again)))) { code { (row::short(again)) } } } } }
            @if let Some(position) = run["queue"]["position"].as_u64() { div { dt { "Queue" } dd { "position " (position) span.dim { ", " (waits_for(shell, run)) } } } }
            @if run["labels"].as_object().is_some_and(|labels| !labels.is_empty()) { div.more { dt { "Labels" } dd { (row::labels(shell, run)) } } }
            @if !shown.actions.is_empty() { div.more { dt { "Actions" } dd { @for action in &shown.actions { p { (row::action(shell, action)) } } } } }
        }
    }
}

/// The reason why a queued run waits.
fn waits_for(shell: &Shell, run: &Value) -> Markup {
    html! { @match run["queue"]["reason"].as_str().unwrap_or_default() {
        "not_before" => { "not before " (shell.zone.moment(&run["not_before"])) },
        "pipeline" => { "for a run of its pipeline to end" },
        _ => { "for a run of the server to end" },
    } }
}

fn failures(shown: &Shown) -> Markup {
    let errors = shown.run["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    html! {
        @for error in errors {
            div.notice.bad role="alert" {
                (glyph::drawn("failed"))
                p {
                    @if let Some(step) = error["step"].as_str() { code { (visible(step)) } ": " }
                    (marked(error["message"].as_str().unwrap_or_default()))
                    @if let Some(hint) = error["hint"].as_str() { " " span.second { (marked(hint)) } }
                }
            }
        }
    }
}

fn questions(shell: &Shell, run: &Value) -> Markup {
    html! {
        @for waiting in run["waiting"].as_array().into_iter().flatten() {
            div.notice {
                (glyph::drawn("waiting"))
                p {
                    (marked(title(waiting["payload"]["message"].as_str().unwrap_or("the run waits for an answer")).0)) " "
                    @let id = waiting["id"].as_str().unwrap_or_default();
                    @if is_question(waiting) { a href=(shell.link(&format!("/decisions?at={}", segment(id)))) { "Decide" } }
                }
                @if !is_question(waiting) {
                    @let run = run["run_id"].as_str().unwrap_or_default();
                    @if shell.may(Scope::Run) { form method="post" action=(shell.link(&format!("/runs/{}/resume", segment(run)))) { (source::once()) button { "Resume" } } }
                }
            }
        }
    }
}

/// The possible actions on the run in its state.
fn actions(shell: &Shell, shown: &Shown) -> Markup {
    let act = |what: &str| shell.link(&format!("/runs/{}/{what}", segment(shown.id())));
    let is_open = matches!(shown.status(), "queued" | "running" | "waiting" | "sleeping" | "interrupted");
    let steps = shown.run["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(lacking) = shell.lacks(Scope::Run) {
        return lacking;
    }
    // Each part has a key: a part that the reader has opened or that has the focus never becomes another action.
    html! {
        div.actions {
            @if matches!(shown.status(), "interrupted" | "failed" | "cancelled") {
                form method="post" action=(act("resume")) data-key="resume" { (source::once()) button { "Resume" } }
            }
            @if !is_open && shown.status() != "moved" && !steps.is_empty() {
                details.menu data-key="retry" {
                    summary.button { "Retry from step" }
                    div { form.form method="post" action=(act("retry")) {
                        (source::once())
                        div.field { label for="from" { "Step" } select id="from" name="from" {
                            @for step in steps { @let name = step["name"].as_str().unwrap_or_default(); option value=(name) selected[step["status"] == "failed"] { (visible(name)) } }
                        } span.help { "Steps before it keep their outputs." } }
                        div { button.primary { "Retry" } }
                    } }
                }
            }
            @if is_open {
                details.menu data-key="cancel" {
                    summary.button.danger { "Cancel" }
                    div { form.form method="post" action=(act("cancel")) {
                        (source::once())
                        div.field { label for="reason" { "Reason " span.kind { "optional" } } input id="reason" name="reason"; span.help { "The destructor still runs, unless you kill the run." } }
                        div.actions { button.danger name="mode" value="cancel" { "Cancel the run" } button.danger name="mode" value="kill" { "Kill" } }
                    } }
                }
            } @else if AGAIN.contains(&shown.run["mode"].as_str().unwrap_or_default()) {
                form method="post" action=(act("again")) data-key="again" { (source::once()) button.primary { "Run again" } }
            }
        }
    }
}

/// `POST /runs/{id}/{action}`: a form of the page, as a request to the API.
pub(crate) async fn act(call: Call) -> Respond {
    let form = call.form(&["reason", "mode", "from", "accept_changes", source::ONCE]).await?;
    let mut body = json!({});
    for (name, value) in form.iter().filter(|(name, value)| !value.is_empty() && name != source::ONCE) {
        body[name.as_str()] = if name == "accept_changes" { (value == "true").into() } else { value.as_str().into() };
    }
    let (id, action) = (segment(call.param("id")), call.param("action").to_owned());
    if !["cancel", "resume", "retry", "again"].contains(&action.as_str()) {
        return Err(Problem::not_found("there is no such action"));
    }
    match source::post(&call, &form, &format!("/v1/runs/{id}/{action}"), &body).await {
        Ok(run) => see(&call, &row::path(&run)),
        // The request of the first click is in progress.
        Err(problem) if problem.code() == Code::KeyInUse => see(&call, &format!("/runs/{id}")),
        Err(problem) if problem.code() == Code::DefinitionChanged && call.caller()?.may(Scope::Read) => {
            changed(&call, &action, &form, &problem).await
        }
        Err(problem) => Err(problem),
    }
}

/// The changes in the definition of a run that should continue, and the form that accepts them.
async fn changed(call: &Call, action: &str, form: &[(String, String)], problem: &Problem) -> Respond {
    let shell = Shell::new(call).await?;
    let id = call.param("id");
    let document = problem.to_json("", "");
    let verb = if action == "retry" { "Retry" } else { "Resume" };
    let kept = form.iter().filter(|(name, value)| name == "from" && !value.is_empty());
    let body = html! {
        div.head {
            nav.crumbs aria-label="Path" { a href=(shell.link("/")) { "Runs" } "/" a href=(shell.link(&format!("/runs/{}", segment(id)))) { code { (row::short(id)) } } }
            div.line { h1 { "The definition has changed since the run began" } }
            p.second { "Succeeded steps keep their outputs. The other steps run with the current definition." }
            form method="post" action=(shell.link(&format!("/runs/{}/{action}", segment(id)))) {
                (source::once())
                input type="hidden" name="accept_changes" value="true";
                @for (name, value) in kept { input type="hidden" name=(name) value=(value); }
                div.actions { button.primary { (verb) " with the changes" } a.button href=(shell.link(&format!("/runs/{}", segment(id)))) { "Back to the run" } }
            }
        }
        div.body { @for change in document["changes"].as_array().into_iter().flatten() { section.card {
            header { h2.grow { code { (visible(change["path"].as_str().unwrap_or_default())) } } span.dim { (change["what"].as_str().unwrap_or_default()) } }
            @if let Some(diff) = change["diff"].as_str().filter(|diff| !diff.is_empty()) {
                div.pad { pre.code.diff tabindex="0" { @for line in diff.lines().filter(|line| !line.starts_with("---") && !line.starts_with("+++")) {
                    @let class = match line.get(..1) { Some("+") => "add", Some("-") => "del", _ => "" };
                    span class=(class) { (visible(line)) }
                } } }
            }
        } } }
    };
    Ok(shell.page(StatusCode::CONFLICT, "The definition has changed", Section::Runs, body))
}

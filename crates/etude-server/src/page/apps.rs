//! Pages of apps: their pipelines, machines and skills, with their diagnostics.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::shell::{Section, Shell};
use super::text::{marked, visible};
use super::{segment, source};
use crate::request::{Call, Respond};

/// `GET /apps`: all apps.
pub(crate) async fn list(call: Call) -> Respond {
    let shell = Shell::new(&call).await?;
    let document = source::get(&call, "/v1/apps").await?;
    let apps = document["apps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let body = html! {
        div.head { div.line { h1 { "Apps" } } }
        div.body {
            @if apps.is_empty() {
                div.card { div.empty { p { "The server serves no app. Start it in the directory of one, or name it:" } div.command { code { "etude serve DIR" } button.link type="button" data-copy hidden { "Copy" } } } }
            }
            @for app in apps { (card(&shell, app, true)) }
        }
    };
    Ok(shell.page(StatusCode::OK, "Apps", Section::Apps, body))
}

/// `GET /apps/{app}`.
pub(crate) async fn show(call: Call) -> Respond {
    let shell = Shell::new(&call).await?;
    let app = source::get(&call, &format!("/v1/apps/{}", segment(call.param("app")))).await?;
    let title = app["app"].as_str().unwrap_or_default().to_owned();
    let body = html! {
        div.head { nav.crumbs aria-label="Path" { a href=(shell.link("/apps")) { "Apps" } "/" span { (visible(&title)) } } div.line { h1 { (visible(&title)) } span.grow {} a href=(shell.link(&format!("/apps/{}/learned", segment(&title)))) { "Learned pipelines" } } }
        div.body { (card(&shell, &app, false)) }
    };
    Ok(shell.page(StatusCode::OK, &title, Section::Apps, body))
}

fn card(shell: &Shell, app: &Value, has_title: bool) -> Markup {
    let slug = app["app"].as_str().unwrap_or_default();
    let base = format!("/apps/{}", segment(slug));
    let of = |kind: &str| app[kind].as_array().cloned().unwrap_or_default();
    let (pipelines, machines, skills) = (of("pipelines"), of("machines"), of("skills"));
    let problems = of("diagnostics");
    html! {
        section.card {
            @if has_title { header { h2 { a href=(shell.link(&base)) { (visible(slug)) } } span.grow {} a href=(shell.link(&format!("{base}/learned"))) { "Learned" } a href=(shell.link(&format!("/?app={}", segment(slug)))) { "Runs" } } }
            @if pipelines.is_empty() && machines.is_empty() {
                div.empty {
                    p { "The app has no pipeline. A pipeline is a file " code { "pipelines/NAME/pipeline.yaml" } "; make one with:" }
                    div.command { code { "etude new pipeline NAME" } button.link type="button" data-copy hidden { "Copy" } }
                }
            }
            ul.rows {
                @for (kind, path, list) in [("pipeline", "pipelines", &pipelines), ("stage machine", "machines", &machines)] {
                    @for one in list {
                        @let name = one["name"].as_str().unwrap_or_default();
                        li {
                            a.value data-row href=(shell.link(&format!("{base}/{path}/{}", segment(name)))) { (visible(name)) }
                            span.dim.small { (kind) }
                            span.second { (visible(one["description"].as_str().unwrap_or_default())) }
                            @if one["valid"] == false { span.bad { "has errors" } }
                        }
                    }
                }
                @for skill in &skills { li { span.value { (visible(skill["name"].as_str().unwrap_or_default())) } span.dim.small { "skill" } span.second { (visible(skill["description"].as_str().unwrap_or_default())) } } }
            }
        }
        @if !problems.is_empty() { (diagnostics(&problems)) }
    }
}

/// Diagnostics with their file positions.
pub(super) fn diagnostics(found: &[Value]) -> Markup {
    html! {
        section.card {
            header { h2.grow { "Diagnostics" } span.dim { (found.len()) } }
            ul.rows {
                @for one in found {
                    @let is_error = one["severity"] == "error";
                    li { div {
                        p.small.dim { code { (visible(one["file"].as_str().or(one["path"].as_str()).unwrap_or_default())) @if let Some(line) = one["line"].as_u64() { ":" (line) } } }
                        p { span.value class=(if is_error { "bad" } else { "late" }) { (one["severity"].as_str().unwrap_or("problem")) " " code { (one["code"].as_str().unwrap_or_default()) } } ": " (marked(one["message"].as_str().unwrap_or_default())) }
                        @if let Some(hint) = one["hint"].as_str().or(one["help"].as_str()) { p.small.second { (marked(hint)) } }
                    } }
                }
            }
        }
    }
}

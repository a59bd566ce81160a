//! The HTML of the server. A page is a client of the API: all its content comes from the documents of the routes below `/v1`.

pub(crate) mod about;
pub(crate) mod apps;
mod asset;
mod chart;
pub(crate) mod decisions;
mod form;
mod glyph;
mod graph;
mod json;
pub(crate) mod learned;
pub(crate) mod log;
pub(crate) mod login;
mod node;
mod row;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schedules;
mod shell;
mod source;
pub(crate) mod target;
mod text;
mod timeline;
mod tree;
pub(crate) mod webhooks;

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY};
use http::{HeaderValue, StatusCode};
use maud::{Markup, html};

use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::server::Server;
use crate::token::Caller;
use shell::{Section, Shell};

pub(crate) use asset::asset;
pub(crate) use login::{Wanted, form as login_form, login};

/// The content security policy of all pages: nothing from other sites, and no inline script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types etude";

/// The response with a page, and with the headers that all pages have.
fn response(status: StatusCode, page: Markup) -> Response {
    let mut response = Response::new(Body::from(page.into_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // With `no-referrer`, the forms of a page would have the origin `null`.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// Redirects to the next page after a form (303).
fn see(call: &Call, path: &str) -> Respond {
    let to = format!("{}{path}", call.server.settings().base_path);
    let to = HeaderValue::from_str(&to).map_err(|_| Problem::new(Code::Bug, "a path has a control character"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(LOCATION, to);
    Ok(response)
}

/// Text as one percent-encoded segment of a path.
fn segment(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes()
        .map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// The faults of a refused form by their JSON pointers, relative to `root`.
fn faults(problem: &Problem, root: &str) -> Vec<(String, String)> {
    let document = problem.to_json("", "");
    let errors = document["errors"].as_array().into_iter().flatten();
    let fault = |error: &serde_json::Value| {
        let place = error["pointer"].as_str()?.strip_prefix(root)?.to_owned();
        Some((place, error["detail"].as_str()?.to_owned()))
    };
    errors.filter_map(fault).collect()
}

/// The detail of a problem.
fn detail(problem: &Problem) -> String {
    problem.to_json("", "")["detail"].as_str().unwrap_or_default().to_owned()
}

/// An HTML file that redirects a browser to a link of the server.
pub fn leading_to(link: &str) -> String {
    let page = html! {
        (maud::DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { "etude" } meta http-equiv="refresh" content={ "0;url=" (link) }; }
            body { a href=(link) { "Open etude" } }
        }
    };
    page.into_string()
}

/// `GET /problems/{code}`.
pub(crate) async fn problem(call: Call) -> Respond {
    let word = call.param("code");
    let code = Code::ALL.iter().find(|code| code.word() == word);
    let code = code.ok_or_else(|| Problem::not_found("there is no such problem code"))?;
    let page = html! {
        div.head { h1 { (code.word()) } p.second { "Status " (code.status()) ": " (code.title()) "." } }
    };
    let shell = Shell::reading(&call.server, call.caller.clone());
    Ok(shell.page(StatusCode::OK, code.word(), Section::None, page))
}

/// The error page for a failed request, as its reader may see it. `back` is the page with the form that was refused.
pub(crate) fn failed(
    server: &Server,
    reader: Option<Caller>,
    problem: &Problem,
    (request_id, back): (&str, Option<&str>),
) -> Response {
    let document = problem.to_json(&server.settings().base_path, request_id);
    let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
    let title = text::sentence(&text("title"));
    let page = html! {
        div.head {
            h1 { (text::marked(&title)) }
            p { (text::marked(&text("detail"))) }
            @if let Some(hint) = document["hint"].as_str() { p.second { (text::marked(hint)) } }
            @if let Some(run) = document["run_id"].as_str() { p { a href={ (server.settings().base_path) "/runs/" (segment(run)) } { "The run" } } }
            @for error in document["errors"].as_array().into_iter().flatten() {
                p.second {
                    code { (error["pointer"].as_str().or(error["parameter"].as_str()).unwrap_or_default()) } " "
                    (text::marked(error["detail"].as_str().unwrap_or_default()))
                }
            }
            p.dim.small { "Status " (problem.code().status()) ", " code { (problem.code().word()) } ", request " code { (request_id) } }
            p { @if let Some(back) = back { a href=(back) { "Back" } " · " } a href={ (server.settings().base_path) "/" } { "All runs" } }
        }
    };
    Shell::reading(server, reader).page(status_of(problem), &title, Section::None, page)
}

/// The status of a page that shows a problem.
fn status_of(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.code().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

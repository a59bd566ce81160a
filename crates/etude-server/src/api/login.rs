//! Login by code or token, logout, and login links.

use axum::body::Body;
use axum::response::Response;
use http::header::{LOCATION, SET_COOKIE};
use http::{HeaderValue, StatusCode};
use serde_json::json;

use crate::door;
use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::response::json_response;
use crate::token;

/// `POST /login`: a form with `code` or `token`.
pub(crate) async fn login(call: Call) -> Respond {
    // A form with other members is not a login.
    let unknown = |problem: Problem| match problem.code() {
        Code::UnknownMember => no_login(),
        _ => problem,
    };
    let form = call.form(&["code", "token", "next"]).await.map_err(unknown)?;
    let now = call.server.clock().now_ms();
    let given = |name: &str| form.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value);
    let token = match (given("code"), given("token")) {
        (Some(code), None) => match call.server.sessions().take_code(code, now) {
            Some(Some(token)) => Some(token),
            Some(None) => {
                let owner = call.server.tokens().owner().map_err(|e| door::tokens_failed(&e))?;
                Some(token::hash(&owner))
            }
            None => None,
        },
        (None, Some(token)) => {
            let found = call.server.tokens().find(token, now).map_err(|e| door::tokens_failed(&e))?;
            found.map(|_| token::hash(token))
        }
        _ => return Err(no_login()),
    };
    let base = &call.server.settings().base_path;
    let next = given("next").filter(|next| is_below(next, base)).cloned();
    let Some(token) = token else {
        let refused = if given("code").is_some() { door::wrong_link } else { door::wrong_token };
        let problem = refused(&call.server, &call.peer);
        // The form that is shown next leads to the same page.
        return Err(next.into_iter().fold(problem, |problem, next| problem.with("next", next)));
    };
    let cookie = call.server.sessions().begin(token, now);
    let (name, attributes) = call.server.cookie(&call.headers);
    redirect(&next.unwrap_or_else(|| format!("{base}/")), &format!("{name}={cookie}{attributes}"))
}

fn no_login() -> Problem {
    Problem::new(Code::Unauthenticated, "a login takes either `code` or `token`, and optionally `next`")
}

/// True for a path of this server; `base` is its base path. `//host/` and `/\\host/` lead to another server.
pub(crate) fn is_below(next: &str, base: &str) -> bool {
    let is_plain = next.chars().all(|c| c.is_ascii_graphic() && c != '\\');
    is_plain && !next.starts_with("//") && next.strip_prefix(base).is_some_and(|rest| rest.starts_with('/'))
}

/// `POST /logout`.
pub(crate) async fn logout(call: Call) -> Respond {
    let (name, attributes) = call.server.cookie(&call.headers);
    if let Some(cookie) = door::cookie(&call.headers, &name) {
        call.server.sessions().end(&cookie);
    }
    redirect(&format!("{}/login", call.server.settings().base_path), &format!("{name}={attributes}; Max-Age=0"))
}

fn redirect(to: &str, cookie: &str) -> Respond {
    let bug = |_| Problem::new(Code::Bug, "a header has a character that is not allowed");
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(LOCATION, HeaderValue::from_str(to).map_err(bug)?);
    response.headers_mut().insert(SET_COOKIE, HeaderValue::from_str(cookie).map_err(bug)?);
    Ok(response)
}

/// `POST /v1/server/links`: another login link.
pub(crate) async fn link(call: Call) -> Respond {
    call.json(&[]).await?;
    // A session has the rights of the token that made its link, and ends with it.
    let Some(token) = call.caller()?.token else {
        let detail = "a token of the issuer cannot start a session: the session would outlive the token";
        return Err(Problem::new(Code::ForbiddenScope, detail).hint("use a token of `etude token new`"));
    };
    let (url, expires_at_ms) = call.server.login_link_of(Some(token), "/");
    let document = json!({"url": url, "expires_at": etude_runtime::clock::rfc3339(expires_at_ms)});
    Ok(json_response(StatusCode::CREATED, &document))
}

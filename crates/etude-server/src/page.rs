//! The HTML of the server: login, the start page, and the pages of problem codes.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use http::{HeaderValue, StatusCode};

use crate::problem::{Code, Problem};
use crate::request::{Call, Respond};
use crate::server::Server;

/// What a page may load: nothing from elsewhere, and no inline script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types etude";

/// Sends the login code of a link, which is in the fragment and thus in no log.
const LOGIN_SCRIPT: &str = r#"const code = new URLSearchParams(location.hash.slice(1)).get("login");
if (code) {
  history.replaceState(null, "", location.pathname);
  const form = document.getElementById("login-by-code");
  form.elements.code.value = code;
  form.submit();
}
"#;

fn html(status: StatusCode, title: &str, body: &str) -> Response {
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<main>\n{body}</main>\n</html>\n"
    );
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // With `no-referrer`, the forms of a page would have the origin `null`.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// The login form, which needs no script for a token.
pub(crate) fn login_form(server: &Server, status: StatusCode) -> Response {
    let base = &server.settings().base_path;
    let refused = if status == StatusCode::UNAUTHORIZED { "<p>Log in to continue.</p>\n" } else { "" };
    let body = format!(
        "<h1>etude</h1>\n{refused}<form method=\"post\" action=\"{base}/login\">\n\
         <label>Token <input name=\"token\" type=\"password\" autocomplete=\"current-password\" required></label>\n\
         <button>Log in</button>\n</form>\n\
         <form method=\"post\" action=\"{base}/login\" id=\"login-by-code\" hidden><input name=\"code\" type=\"hidden\"></form>\n\
         <p>Print a login link with <code>etude serve --link</code>.</p>\n\
         <script src=\"{base}/assets/login.js\"></script>\n"
    );
    html(status, "Log in to etude", &body)
}

/// `GET /login`.
pub(crate) async fn login(call: Call) -> Respond {
    Ok(login_form(&call.server, StatusCode::OK))
}

/// `GET /assets/{name}`.
pub(crate) async fn asset(call: Call) -> Respond {
    if call.param("name") != "login.js" {
        return Err(Problem::not_found("there is no such asset"));
    }
    let mut response = Response::new(Body::from(LOGIN_SCRIPT));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
    Ok(response)
}

/// `GET /`.
pub(crate) async fn start(call: Call) -> Respond {
    let base = &call.server.settings().base_path;
    let body = format!(
        "<h1>etude</h1>\n<ul>\n<li><a href=\"{base}/v1/runs\">Runs</a></li>\n<li><a href=\"{base}/v1/decisions\">Decisions</a></li>\n\
         <li><a href=\"{base}/v1/openapi.json\">API</a></li>\n</ul>\n\
         <form method=\"post\" action=\"{base}/logout\"><button>Log out</button></form>\n"
    );
    Ok(html(StatusCode::OK, "etude", &body))
}

/// `GET /problems/{code}`.
pub(crate) async fn problem(call: Call) -> Respond {
    let word = call.param("code");
    let code = Code::ALL.iter().find(|code| code.word() == word);
    let code = code.ok_or_else(|| Problem::not_found("there is no such problem code"))?;
    let body = format!("<h1>{}</h1>\n<p>Status {}: {}.</p>\n", code.word(), code.status(), code.title());
    Ok(html(StatusCode::OK, code.word(), &body))
}

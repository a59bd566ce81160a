//! The login page, which needs no script for a token.

use axum::response::Response;
use http::StatusCode;
use maud::html;

use super::asset;
use super::shell::{Section, Shell};
use crate::request::{Call, Respond};
use crate::server::Server;

/// The login form.
pub(crate) fn form(server: &Server, status: StatusCode) -> Response {
    let base = &server.settings().base_path;
    let page = html! {
        div.login.form {
            h1 { "Log in to etude" }
            @if status == StatusCode::UNAUTHORIZED { p.second { "Log in to continue." } }
            form.form method="post" action={ (base) "/login" } {
                div.field {
                    label for="token" { "Token" }
                    input id="token" name="token" type="password" autocomplete="current-password" required;
                    span.help { "Of " code { "etude token new" } ", or the owner's." }
                }
                div { button.primary { "Log in" } }
            }
            form method="post" action={ (base) "/login" } id="login-by-code" hidden { input name="code" type="hidden"; input name="next" type="hidden"; }
            p.dim { "Or print a login link with " code { "etude serve --link" } "." }
        }
        script type="module" src={ (base) (asset::path("login.js")) } {}
    };
    Shell::bare(server).page(status, "Log in", Section::None, page)
}

/// `GET /login`.
pub(crate) async fn login(call: Call) -> Respond {
    Ok(form(&call.server, StatusCode::OK))
}

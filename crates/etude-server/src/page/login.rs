//! The login page, which needs no script for a token.

use axum::response::Response;
use http::StatusCode;
use maud::html;

use super::asset;
use super::shell::{Section, Shell};
use super::text::marked;
use crate::request::{Call, Respond};
use crate::server::Server;

/// What the login form says, and where it leads.
#[derive(Debug)]
pub(crate) struct Wanted<'w> {
    pub(crate) status: StatusCode,
    /// Why a login was refused.
    pub(crate) refused: Option<&'w str>,
    /// The page to continue with: a path of this server.
    pub(crate) next: Option<&'w str>,
}

/// The login form.
pub(crate) fn form(server: &Server, wanted: &Wanted<'_>) -> Response {
    let base = &server.settings().base_path;
    let page = html! {
        div.login.form {
            h1 { "Log in to etude" }
            @match wanted.refused {
                Some(why) => { p.bad role="alert" { (marked(why)) } },
                None => { @if wanted.status == StatusCode::UNAUTHORIZED { p.second { "Log in to continue." } } },
            }
            form.form method="post" action={ (base) "/login" } {
                @if let Some(next) = wanted.next { input type="hidden" name="next" value=(next); }
                div.field {
                    label for="token" { "Token" }
                    input id="token" name="token" type="password" autocomplete="current-password" required aria-invalid=[wanted.refused.map(|_| "true")];
                    span.help { "Of " code { "etude token new" } ", or the owner's." }
                }
                div { button.primary { "Log in" } }
            }
            form method="post" action={ (base) "/login" } id="login-by-code" hidden { input name="code" type="hidden"; input name="next" type="hidden"; }
            p.dim { "Or print a login link with " code { "etude serve --link" } "." }
        }
        script type="module" src={ (base) (asset::path("login.js")) } {}
    };
    Shell::bare(server).page(wanted.status, "Log in", Section::None, page)
}

/// `GET /login`.
pub(crate) async fn login(call: Call) -> Respond {
    Ok(form(&call.server, &Wanted { status: StatusCode::OK, refused: None, next: None }))
}

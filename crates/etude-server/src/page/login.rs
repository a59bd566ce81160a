//! The login page, which needs no script for a token.

use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::asset;
use super::shell::{Section, Shell};
use super::text::{marked, visible};
use crate::request::{Call, Respond};
use crate::server::Server;
use crate::unsent::{KEY, Unsent};

/// The contents and target of the login form.
#[derive(Debug)]
pub(crate) struct Wanted<'w> {
    pub(crate) status: StatusCode,
    /// The reason why a login was refused.
    pub(crate) refused: Option<&'w str>,
    /// The page after the login: a path of this server.
    pub(crate) next: Option<&'w str>,
    /// The form that arrived without a session.
    pub(crate) unsent: Option<&'w Unsent>,
}

/// The login form.
pub(crate) fn form(server: &Server, wanted: &Wanted<'_>) -> Response {
    let base = &server.settings().base_path;
    let page = html! {
        div.login.form {
            h1 { "Log in to etude" }
            @match wanted.refused {
                Some(why) => { p.bad role="alert" { (marked(why)) } },
                None => {
                    @if wanted.unsent.is_some() {
                        p.bad role="alert" { "Your session had expired, so the form was not processed. Log in in another tab, then send the form below again." }
                    } @else if wanted.status == StatusCode::UNAUTHORIZED { p.second { "Log in to continue." } }
                },
            }
            // The login opens another tab, so that typed text stays in this one.
            form.form method="post" action={ (base) "/login" } target=[wanted.unsent.map(|_| "_blank")] {
                @if let Some(next) = wanted.next { input type="hidden" name="next" value=(next); }
                div.field {
                    label for="token" { "Token" }
                    input id="token" name="token" type="password" autocomplete="current-password" required aria-invalid=[wanted.refused.map(|_| "true")];
                    span.help { "From " code { "etude token new" } ", or the owner token." }
                }
                div { button.primary { "Log in" } }
            }
            form method="post" action={ (base) "/login" } id="login-by-code" hidden { input name="code" type="hidden"; input name="next" type="hidden"; }
            p.dim { "Or print a login link with " code { "etude serve --link" } "." }
            @if let Some(unsent) = wanted.unsent { (retry_form(unsent)) }
        }
        script type="module" src={ (base) (asset::path("login.js")) } {}
    };
    Shell::bare(server).page(wanted.status, "Log in", Section::None, page)
}

/// A form that was refused, with the typed text, for another submission.
fn retry_form(unsent: &Unsent) -> Markup {
    let typed = unsent.fields.iter().filter(|(name, _)| name != KEY);
    html! {
        form.form method="post" action=(unsent.action) {
            h2 { "Unsent form" }
            @for (name, value) in &unsent.fields { input type="hidden" name=(name) value=(value); }
            @for (name, value) in typed {
                div.field { span.kind { (visible(name)) } pre { (visible(value)) } }
            }
            div { button { "Send it again" } }
        }
    }
}

/// `GET /login`.
pub(crate) async fn login(call: Call) -> Respond {
    Ok(form(&call.server, &Wanted { status: StatusCode::OK, refused: None, next: None, unsent: None }))
}

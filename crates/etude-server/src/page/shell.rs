//! The frame of all pages: head, top bar, and the reader's time zone.

use axum::response::Response;
use http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use super::text::{Zone, visible};
use super::{asset, glyph, response, source};
use crate::door;
use crate::problem::Problem;
use crate::request::Call;
use crate::server::Server;
use crate::token::{Caller, Scope};

/// The destination of the top bar that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Runs,
    Decisions,
    Apps,
    Schedules,
    Webhooks,
    Server,
    None,
}

/// Destinations of the top bar: section, name, path and the drawing above the name at phone width. A destination without a
/// drawing is not in the bar of a phone; the page of the server leads to it.
const DESTINATIONS: [(Section, &str, &str, &str); 6] = [
    (Section::Runs, "Runs", "/", "M2 4h12M2 8h12M2 12h12"),
    (Section::Decisions, "Decisions", "/decisions", "M8 2l6 6-6 6-6-6z"),
    (Section::Apps, "Apps", "/apps", "M2 2h5v5H2zM9 9h5v5H9zM7 4.5h4.5V9"),
    (Section::Schedules, "Schedules", "/schedules", ""),
    (Section::Webhooks, "Webhooks", "/webhooks", ""),
    (Section::Server, "Server", "/server", "M2 3h12v4H2zM2 9h12v4H2zM4.5 5h1M4.5 11h1"),
];

/// The frame of a page.
#[derive(Debug)]
pub(super) struct Shell {
    base: String,
    /// The configuration file that replaces those of the apps.
    config: Option<String>,
    /// The reader; `None` before the login.
    reader: Option<Caller>,
    /// The number of open questions.
    open: usize,
    pub(super) zone: Zone,
}

fn config_of(server: &Server) -> Option<String> {
    server.settings().config.as_ref().map(|file| file.display().to_string())
}

impl Shell {
    /// The frame for the caller.
    pub(super) async fn new(call: &Call) -> Result<Self, Problem> {
        let open = source::decisions(call).await?.len();
        Ok(Self {
            base: call.server.settings().base_path.clone(),
            config: config_of(&call.server),
            reader: call.caller.clone(),
            open,
            zone: Zone::of_cookie(door::cookie(&call.headers, "etude_zone").as_deref()),
        })
    }

    /// The frame without a reader.
    pub(super) fn bare(server: &Server) -> Self {
        Self::reading(server, None)
    }

    /// The frame of a page that has read nothing.
    pub(super) fn reading(server: &Server, reader: Option<Caller>) -> Self {
        let (base, config) = (server.settings().base_path.clone(), config_of(server));
        Self { base, config, reader, open: 0, zone: Zone::default() }
    }

    /// The file in which schedules, webhooks and notices are.
    pub(super) fn file_of_automation(&self) -> Markup {
        match &self.config {
            Some(file) => html! { code { (visible(file)) } },
            None => html! { "the app's " code { "etude.yaml" } },
        }
    }

    /// True if the reader has this scope.
    pub(super) fn may(&self, scope: Scope) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.may(scope))
    }

    /// The note in place of buttons that the reader may not use; `None` if the reader may.
    pub(super) fn lacks(&self, scope: Scope) -> Option<Markup> {
        let lacking = html! { p.dim.small { "Your token does not have the scope " code { (scope.word()) } ", which this action requires." } };
        (!self.may(scope)).then_some(lacking)
    }

    /// The link to a path of the server.
    pub(super) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// A complete page.
    pub(super) fn page(&self, status: StatusCode, title: &str, section: Section, body: Markup) -> Response {
        let count = if self.open > 0 { format!("({}) ", self.open) } else { String::new() };
        response(
            status,
            html! {
                (DOCTYPE)
                html lang="en" {
                    head {
                        meta charset="utf-8";
                        meta name="viewport" content="width=device-width, initial-scale=1";
                        meta name="color-scheme" content="light dark";
                        title { (count) (title) " · etude" }
                        link rel="icon" href=(self.link(&asset::path("icon.svg"))) type="image/svg+xml";
                        link rel="stylesheet" href=(self.link(&asset::path("etude.css")));
                        @if self.may(Scope::Read) { script type="module" src=(self.link(&asset::path("page.js"))) {} }
                    }
                    body data-base=(self.base) {
                        (glyph::sprite())
                        a.skip href="#main" { "Skip to the content" }
                        @if let Some(reader) = &self.reader { (self.top(&reader.name, section)) }
                        main id="main" tabindex="-1" { (body) }
                        @if self.reader.is_some() { (keys()) }
                    }
                }
            },
        )
    }

    fn top(&self, reader: &str, section: Section) -> Markup {
        html! {
            header.top {
                a.brand href=(self.link("/")) {
                    svg viewBox="0 0 16 16" aria-hidden="true" { path fill="none" stroke="currentColor" stroke-width="2" d="M1 3.5h14M1 8h10M1 12.5h12" {} }
                    "etude"
                }
                nav aria-label="Pages" {
                    @for (of, name, path, drawing) in DESTINATIONS {
                        a.far[drawing.is_empty()] href=(self.link(path)) aria-current=[(of == section).then_some("page")] {
                            svg viewBox="0 0 16 16" aria-hidden="true" { path fill="none" stroke="currentColor" stroke-width="1.5" d=(drawing) {} }
                            span.label { (name)
                                @if of == Section::Decisions {
                                    " " span.badge id="open" data-live hidden[self.open == 0] { (self.open) span.said { " open" } }
                                }
                            }
                        }
                    }
                }
                span.connection id="connection" role="status" { "Not live" }
                span.who.dim { (reader) }
                form.who method="post" action=(self.link("/logout")) { button.link { "Log out" } }
                button.link.who type="button" data-keys hidden { "Keys " kbd { "?" } }
            }
        }
    }
}

/// The list of keyboard shortcuts, which a script opens.
fn keys() -> Markup {
    let rows = [
        ("/", "search"),
        ("j k", "move"),
        ("Enter", "open"),
        ("← →", "close and open in a tree"),
        ("e", "next error"),
        ("a", "to the form of a decision; no single key decides"),
        ("?", "this list"),
    ];
    html! {
        dialog id="keys" aria-labelledby="keys-title" {
            h2 id="keys-title" { "Keys" }
            dl.table { @for (key, what) in rows { dt { @for key in key.split(' ') { kbd { (key) } " " } } dd { (what) } } }
            form method="dialog" { button { "Close" } }
        }
    }
}

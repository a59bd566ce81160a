//! A form of a page that arrives without a session, for example after a day. Its sender gets it back with the login, and the
//! server keeps nothing of it.

use axum::body::Body;
use http::{HeaderMap, Method, Request};
use url::form_urlencoded;

use crate::api::login::is_below;
use crate::body;
use crate::door;
use crate::listen::Peer;
use crate::request::check_media_type;
use crate::server::Server;

/// Maximum size of a form that is sent back, in bytes.
const MAX_FORM: usize = 256 * 1024;

/// The hidden field that distinguishes two visits of a page: it is not typed text.
pub(crate) const KEY: &str = "key";

/// A submitted form that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsent {
    /// The target of the form: a path of this server.
    pub(crate) action: String,
    /// The submitted fields.
    pub(crate) fields: Vec<(String, String)>,
}

impl Unsent {
    /// The form of a request; `None` if there is none, or if it is too large.
    pub(crate) async fn read(server: &Server, peer: &Peer, request: Request<Body>) -> Option<Self> {
        let action = request.uri().path_and_query()?.as_str().to_owned();
        let headers = request.headers();
        let is_own_form = *request.method() == Method::POST && is_form(headers) && is_own(server, headers);
        if !is_own_form || !is_below(&action, &server.settings().base_path) {
            return None;
        }
        // The sender has no token, so the form shares the room of strangers.
        let address = peer.own_address(server.settings().is_behind_proxy);
        let mut part = server.room().part(address);
        let bytes = body::read(request.into_body(), MAX_FORM, Some(&mut part)).await.ok()?;
        let fields = form_urlencoded::parse(&bytes).map(|(name, value)| (name.into_owned(), value.into_owned()));
        let fields: Vec<(String, String)> = fields.collect();
        (!fields.is_empty()).then_some(Self { action, fields })
    }
}

/// True if a page of this server sent the form. A form that another site has filled in must not come back to be sent with a
/// click.
fn is_own(server: &Server, headers: &HeaderMap) -> bool {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match value("origin") {
        Some(origin) => door::is_own_origin(server, headers, origin),
        None => value("sec-fetch-site") == Some("same-origin"),
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    check_media_type(headers, "application/x-www-form-urlencoded").is_ok()
}

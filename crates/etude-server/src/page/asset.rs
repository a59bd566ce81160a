//! Stylesheet, scripts and icon, embedded in the program.

use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::problem::Problem;
use crate::request::{Call, Respond};

/// The files by name, with their media types.
const ASSETS: &[(&str, &str, &[u8])] = &[
    ("count.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/count.js")),
    ("etude.css", "text/css; charset=utf-8", include_bytes!("../../assets/etude.css")),
    ("graph.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/graph.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../assets/icon.svg")),
    ("keys.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/keys.js")),
    ("live.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/live.js")),
    ("login.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/login.js")),
    ("page.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/page.js")),
];

/// The version of the files: the beginning of their hash.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = blake3::Hasher::new();
    for (name, _, bytes) in ASSETS {
        hasher.update(name.as_bytes()).update(&bytes.len().to_be_bytes()).update(bytes);
    }
    hasher.finalize().to_hex()[..16].to_owned()
});

/// The path of a file below the base path. Scripts import each other by relative paths, and so from the same version.
pub(super) fn path(name: &str) -> String {
    format!("/assets/{}/{name}", *VERSION)
}

/// `GET /assets/{version}/{name}`. Browsers keep a file of this version without asking again. A page from a server of another
/// version gets the current file.
pub(crate) async fn asset(call: Call) -> Respond {
    let name = call.param("name");
    let asset = ASSETS.iter().find(|(known, ..)| *known == name);
    let (_, kind, bytes) = asset.ok_or_else(|| Problem::not_found("there is no such asset"))?;
    let keep = if call.param("version") == *VERSION { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut response = Response::new(Body::from(*bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    Ok(response)
}

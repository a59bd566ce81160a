//! Stylesheet, scripts and icon, embedded in the program.

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::problem::Problem;
use crate::request::{Call, Respond};

/// The files by name, with their media type.
const ASSETS: &[(&str, &str, &[u8])] = &[
    ("etude.css", "text/css; charset=utf-8", include_bytes!("../../assets/etude.css")),
    ("graph.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/graph.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../assets/icon.svg")),
    ("keys.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/keys.js")),
    ("live.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/live.js")),
    ("login.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/login.js")),
    ("page.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/page.js")),
];

/// `GET /assets/{name}`. A name has the version as its query, so that browsers keep what does not change.
pub(crate) async fn asset(call: Call) -> Respond {
    let name = call.param("name");
    let asset = ASSETS.iter().find(|(known, ..)| *known == name);
    let (_, kind, bytes) = asset.ok_or_else(|| Problem::not_found("there is no such asset"))?;
    let mut response = Response::new(Body::from(*bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

//! Resources: runs, their outputs and streams, and pipelines.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::api::{Api, Request};
use crate::call::{escaped, read as run};
use crate::catalog::Catalog;
use crate::service::{Context, Service};
use crate::wire::{Params, Revision, RpcError};

/// Maximum size of the content that one read returns, in bytes.
const MAX_READ: usize = 256 * 1024;

/// The pipelines, for a caller that may read them. A list of runs would be too long; templates name them.
pub(crate) fn list(api: &dyn Api, catalog: &Catalog) -> Value {
    if !api.may("read") {
        return json!([]);
    }
    let pipelines = catalog.targets.iter().filter(|target| target.kind == "pipeline");
    let document = |target: &crate::catalog::Target| {
        json!({
            "uri": format!("etude://apps/{}/pipelines/{}", escaped(&target.app), escaped(&target.of)),
            "name": target.of, "description": target.description, "mimeType": "application/json",
        })
    };
    pipelines.map(document).collect()
}

/// The templates of addresses. Each address may have `?offset=BYTES`, the start of the read.
pub(crate) fn templates() -> Value {
    let template = |uri: &str, name: &str, description: &str, mime: Option<&str>| {
        let mut out = json!({"uriTemplate": uri, "name": name, "description": description});
        if let Some(mime) = mime {
            out["mimeType"] = mime.into();
        }
        out
    };
    let json = Some("application/json");
    json!([
        template("etude://runs/{id}", "run", "A run: state, steps, output, errors", json),
        template("etude://runs/{id}/output", "output", "The output of a run", json),
        template(
            "etude://runs/{id}/effects/{effect}/{stream}",
            "stream",
            "A stream of an effect, such as `stderr`",
            None
        ),
        template("etude://apps/{app}/pipelines/{name}", "pipeline", "The definition of a pipeline", json),
    ])
}

/// `resources/read`.
pub(crate) async fn read(service: &Service, context: &Context, params: &Params) -> Result<Value, RpcError> {
    let uri = params.text("uri")?;
    let found = match at(uri) {
        Some((address, offset)) => bytes(service, address, offset).await.and_then(|bytes| part(uri, &bytes, offset)),
        None => None,
    };
    let contents = found.ok_or_else(|| {
        let code = if context.revision == Revision::July2026 { RpcError::PARAMS } else { -32002 };
        RpcError { data: Some(json!({"uri": uri})), ..RpcError::new(code, format!("there is no resource `{uri}`")) }
    })?;
    Ok(json!({"contents": contents}))
}

/// An address without its query, and the start of the read in bytes.
fn at(uri: &str) -> Option<(&str, usize)> {
    match uri.split_once('?') {
        None => Some((uri, 0)),
        Some((address, query)) => Some((address, query.strip_prefix("offset=")?.parse().ok()?)),
    }
}

/// The content of one read from `offset` on, and the address of the rest, if there is one.
fn part(uri: &str, bytes: &[u8], offset: usize) -> Option<Vec<Value>> {
    let rest = bytes.get(offset..)?;
    let is_stream = uri.contains("/effects/");
    let read = &rest[..rest.len().min(MAX_READ)];
    let found = text(read).filter(|text| !text.is_empty() || read.is_empty());
    let end = offset + found.map_or(read.len(), str::len);
    let is_whole = offset == 0 && end == bytes.len();
    let mime = match (is_stream, found) {
        // A part of a JSON text is not JSON.
        (false, _) if is_whole => "application/json",
        (_, Some(_)) => "text/plain",
        (_, None) => "application/octet-stream",
    };
    let mut content = match found {
        Some(text) => json!({"uri": uri, "mimeType": mime, "text": text}),
        None => json!({"uri": uri, "mimeType": mime, "blob": STANDARD.encode(read)}),
    };
    if end == bytes.len() {
        return Some(vec![content]);
    }
    let address = uri.split('?').next().unwrap_or(uri);
    let next = format!("{address}?offset={end}");
    content["_meta"] = json!({"etude/next": next});
    let mut of = String::new();
    if !is_stream {
        content["_meta"]["etude/bytes"] = bytes.len().into();
        of = format!(" of {}", bytes.len());
    }
    let note = format!("[cut: bytes {offset} to {end}{of}; read on at {next}]");
    Some(vec![content, json!({"uri": next, "mimeType": "text/plain", "text": note})])
}

/// The bytes as text, without an incomplete last character; `None` if they are not UTF-8.
fn text(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok(),
        Err(_) => None,
    }
}

/// The bytes of a resource. Of a stream, only the bytes that a read from `offset` on needs, and one more if there are more.
async fn bytes(service: &Service, uri: &str, offset: usize) -> Option<Vec<u8>> {
    let path = uri.strip_prefix("etude://").filter(|_| service.api.may("read"))?;
    let parts: Vec<&str> = path.split('/').collect();
    // Segments are copied into a path, so they must be plain segments.
    if parts.iter().any(|part| part.is_empty() || matches!(*part, "." | "..") || part.contains(['?', '#'])) {
        return None;
    }
    let first_bytes = (parts.len() == 5).then(|| (offset as u64).saturating_add(MAX_READ as u64 + 1));
    let path = match parts.as_slice() {
        ["runs", id, "output"] => {
            let run = run(&*service.api, id).await.ok()?;
            return Some(run.output.get().as_bytes().to_vec());
        }
        ["runs", _] | ["runs", _, "effects", _, _] | ["apps", _, "pipelines", _] => format!("/v1/{path}"),
        _ => return None,
    };
    let reply = service.api.send(Request { first_bytes, ..Request::get(path) }).await;
    match reply.status {
        200 | 206 => Some(reply.body),
        // An empty stream has no first byte.
        416 => Some(Vec::new()),
        _ => None,
    }
}

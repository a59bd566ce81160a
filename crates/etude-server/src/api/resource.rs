//! The server as a protected resource (RFC 9728).

use http::StatusCode;
use serde_json::json;

use crate::oauth::resource::{AGENTS, OF_AGENTS, base};
use crate::problem::Problem;
use crate::request::{Call, Respond};
use crate::response::json_response;
use crate::token::Scope;

/// `GET /.well-known/oauth-protected-resource`.
pub(crate) async fn server(call: Call) -> Respond {
    document(&call, "", &[Scope::Read, Scope::Run, Scope::Approve, Scope::Admin])
}

/// `GET /.well-known/oauth-protected-resource/mcp`.
pub(crate) async fn agents(call: Call) -> Respond {
    document(&call, AGENTS, &OF_AGENTS)
}

fn document(call: &Call, path: &str, scopes: &[Scope]) -> Respond {
    let nothing = || Problem::not_found("there is no such route");
    let issuer = call.server.issuer().ok_or_else(nothing)?;
    let base = base(&call.server, &call.peer, &call.headers).ok_or_else(nothing)?;
    let scopes: Vec<&str> = scopes.iter().map(|scope| scope.word()).collect();
    let document = json!({
        "resource": format!("{base}{path}"), "authorization_servers": [issuer.auth().issuer], "scopes_supported": scopes,
        "bearer_methods_supported": ["header"], "resource_name": "etude",
    });
    Ok(json_response(StatusCode::OK, &document))
}

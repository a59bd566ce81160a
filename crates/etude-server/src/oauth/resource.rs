//! Metadata of the server as a protected resource (RFC 9728), with which clients find its issuer.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST};

use crate::forwarded;
use crate::listen::Peer;
use crate::problem::{Code, Problem};
use crate::server::Server;
use crate::token::{Caller, Scope};

/// The path of the metadata. A resource's own path after it leads to the metadata of that resource.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The path of the protocol of agents.
pub(crate) const AGENTS: &str = "/mcp";

/// The scopes that an agent needs: no tool approves or administrates.
pub(crate) const OF_AGENTS: [Scope; 2] = [Scope::Read, Scope::Run];

/// True for the path of metadata, which exists only with an issuer.
pub(crate) fn is_metadata(path: &str) -> bool {
    path.starts_with(METADATA)
}

/// The problem of a request to `path` without a valid token, with a challenge that leads its client to the issuer.
pub(crate) fn challenged(
    problem: Problem,
    server: &Server,
    peer: &Peer,
    headers: &HeaderMap,
    path: Option<&str>,
) -> Problem {
    if problem.code() != Code::Unauthenticated || server.issuer().is_none() {
        return problem;
    }
    let Some(base) = base(server, peer, headers) else { return problem };
    let is_of_agents = path == Some(AGENTS);
    let below = if is_of_agents { AGENTS } else { "" };
    let mut challenge = format!("Bearer resource_metadata=\"{base}{METADATA}{below}\"");
    if is_of_agents {
        // Without scopes in the challenge, a client asks for all that the metadata list.
        let scopes = OF_AGENTS.map(Scope::word).join(" ");
        challenge.push_str(&format!(", scope=\"{scopes}\""));
    }
    if headers.contains_key(AUTHORIZATION) {
        challenge.push_str(", error=\"invalid_token\"");
    }
    problem.challenge(challenge)
}

/// The problem of a request whose valid token lacks the scope of its route. The challenge names the token's scopes and the
/// missing one (RFC 6750, 3.1), because a new token with the missing one alone would lack the others.
pub(crate) fn insufficient(problem: Problem, needed: Scope, caller: &Caller, base: Option<&str>) -> Problem {
    // The scopes of a server's own token are fixed. The owner of the process has all.
    if caller.token.is_some() {
        return problem;
    }
    let scopes: Vec<&str> = caller.scopes.iter().copied().chain([needed]).map(Scope::word).collect();
    let mut challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", scopes.join(" "));
    if let Some(base) = base {
        challenge.push_str(&format!(", resource_metadata=\"{base}{METADATA}\""));
    }
    problem.challenge(challenge)
}

/// The URL under which the client of a request reaches the server, with the base path and without a trailing slash. The request's
/// `Host` has been checked.
pub(crate) fn base(server: &Server, peer: &Peer, headers: &HeaderMap) -> Option<String> {
    let settings = server.settings();
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let forwarded_host = || settings.is_behind_proxy.then(|| text("x-forwarded-host")).flatten();
    let origin = match peer {
        // The socket accepts any `Host`, and has no base path. Its clients have the token of the owner.
        Peer::Socket => server.context().origin()?,
        Peer::Tcp(_) | Peer::Forwarded(_) => {
            let host = forwarded_host().or_else(|| text(HOST.as_str()))?.to_ascii_lowercase();
            let is_plain = match settings.is_behind_proxy {
                true => forwarded::scheme(settings, headers).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http")),
                false => !server.addresses().is_tls,
            };
            let scheme = if is_plain { "http" } else { "https" };
            format!("{scheme}://{host}")
        }
    };
    Some(format!("{origin}{}", settings.base_path))
}

//! What the server says of itself as a protected resource (RFC 9728), so that clients find its issuer.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST};

use crate::forwarded;
use crate::listen::Peer;
use crate::problem::{Code, Problem};
use crate::server::Server;
use crate::token::{Caller, Scope};

/// The path of the metadata. Below it, in the path of a resource, are those of that resource.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The path of the protocol of agents.
pub(crate) const AGENTS: &str = "/mcp";

/// What an agent needs: no tool approves or administrates.
pub(crate) const OF_AGENTS: [Scope; 2] = [Scope::Read, Scope::Run];

/// True for the path of metadata, which is there only with an issuer.
pub(crate) fn is_metadata(path: &str) -> bool {
    path.starts_with(METADATA)
}

/// The problem of a request to `path` without a valid token, with where its client gets one.
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
        // A client that is not given any asks for all that the metadata have.
        let scopes = OF_AGENTS.map(Scope::word).join(" ");
        challenge.push_str(&format!(", scope=\"{scopes}\""));
    }
    if headers.contains_key(AUTHORIZATION) {
        challenge.push_str(", error=\"invalid_token\"");
    }
    problem.challenge(challenge)
}

/// The problem of a request whose valid token lacks the scope that its route needs. The client of an issuer learns which one to ask for
/// (RFC 6750, 3.1): its own and the missing one, since a new token with that alone lacks the others.
pub(crate) fn insufficient(problem: Problem, needed: Scope, caller: &Caller, base: Option<&str>) -> Problem {
    // A token of the server has the scopes that it has. The owner of the process has all.
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

/// The URL under which the client of a request, whose `Host` has been checked, reaches the server; with the base path, without a
/// trailing slash.
pub(crate) fn base(server: &Server, peer: &Peer, headers: &HeaderMap) -> Option<String> {
    let settings = server.settings();
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let forwarded_host = || settings.is_behind_proxy.then(|| text("x-forwarded-host")).flatten();
    let origin = match peer {
        // It accepts any `Host`, and has no base path. Its clients have the token of the owner.
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

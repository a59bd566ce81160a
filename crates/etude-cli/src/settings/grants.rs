//! Rights of agents: `agent`, `approvals` and `mcp` of the configuration.

use std::ffi::OsString;

use etude::agent::Grants;
use etude::skill_mode::Defaults;
use etude_core::model::Tier;
use etude_models::Secret;
use etude_spec::config::McpServer;
use etude_tools::Policy;
use etude_tools::mcp::{Endpoint, ServerConfig};

use super::consent::Consent;
use super::{Layer, secrets};

/// Variables that MCP servers inherit: those that programs need to start, and nothing that may be a secret.
pub(super) const BASE: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ", "TERM",
    "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
];

/// Defaults of agents, the nearest file first.
pub(super) fn defaults(layers: &[Layer]) -> Defaults {
    let usual = Defaults::default();
    let tier = layers.iter().find_map(|layer| layer.config.agent.tier.as_deref()).and_then(Tier::from_word);
    let max_turns = layers.iter().find_map(|layer| layer.config.agent.max_turns);
    Defaults { tier: tier.unwrap_or(usual.tier), max_turns: max_turns.unwrap_or(usual.max_turns) }
}

/// Minimum length of a value that is redacted in tool results. Otherwise every `true` would count as a secret.
const SHORTEST_SECRET: usize = 8;

/// Rights of agents, the nearest file first. Denials and required approvals of farther files still apply. Variables that
/// servers get are added to `withheld_env`.
pub(super) fn read(
    layers: &[Layer],
    consent: &Consent,
    withheld_env: &mut Vec<String>,
    known: impl Iterator<Item = Secret>,
) -> Grants {
    let approvals = layers.iter().find_map(|layer| layer.config.approvals.as_ref());
    let mut policies = layers.iter().filter_map(|layer| layer.config.approvals.as_ref()).map(Policy::from_definition);
    let mut policy = policies.next().unwrap_or_default();
    policies.for_each(|farther| policy.limit_by(farther));
    let mut grants = Grants {
        policy,
        can_ask: approvals.and_then(|approvals| approvals.unattended.as_deref()) == Some("wait"),
        server_env: BASE.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?))).collect(),
        ..Grants::default()
    };
    let mut written = Vec::new();
    let servers = layers.iter().flat_map(|layer| layer.config.mcp_servers.iter().map(move |named| (layer, named)));
    for (layer, (name, server)) in servers {
        if !grants.servers.contains_key(name) {
            let config = ServerConfig::from_definition(&expanded(server, withheld_env));
            let refused = if layer.is_of_app { consent.server(name, server, "etude.yaml") } else { None };
            grants.servers.insert(name.clone(), refused.map_or(config, ServerConfig::withheld));
            written.extend(server.env.iter().filter(|(name, value)| is_secret(name, value)).map(|(_, value)| value));
        }
    }
    let values = withheld_env.iter().filter_map(|name| std::env::var(name).ok()).map(Secret::new);
    let headers = grants.servers.values().flat_map(headers);
    let written = written.into_iter().map(Secret::new);
    let secrets =
        known.chain(values).chain(headers).chain(written).filter(|secret| secret.expose().len() >= SHORTEST_SECRET);
    grants.secrets = secrets.collect();
    grants
}

/// Value of a variable that programs get, as a secret; `None` for values that are not secret, such as `HOME`.
pub(super) fn secret(name: &str, value: &str) -> Option<Secret> {
    (!BASE.contains(&name) && value.len() >= SHORTEST_SECRET).then(|| Secret::new(value))
}

/// True if a literal value for a server is a secret: by the name of its variable, or because it looks like a key. Values from
/// the environment are recognized by their variable.
fn is_secret(name: &str, value: &str) -> bool {
    const WORDS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASS", "AUTH", "CREDENTIAL", "COOKIE", "SESSION"];
    let name = name.to_ascii_uppercase();
    !value.contains("${env:") && (WORDS.iter().any(|word| name.contains(word)) || secrets::looks_like_a_key(value))
}

fn headers(server: &ServerConfig) -> Vec<Secret> {
    match &server.endpoint {
        Endpoint::Http { url, headers } => {
            let of_url = url.secrets().into_iter().map(Secret::new);
            headers.iter().map(|(_, value)| Secret::new(value)).chain(of_url).collect()
        }
        Endpoint::Stdio { .. } | Endpoint::Withheld(_) => Vec::new(),
    }
}

/// A server with the variables in its texts replaced.
fn expanded(server: &McpServer, withheld_env: &mut Vec<String>) -> McpServer {
    let mut expand = |text: &str| {
        let expanded = secrets::expand(text, &mut Vec::new());
        // `${env:HOME}` is not secret, and scripts need it.
        for name in expanded.variables.iter().filter(|name| !BASE.contains(&name.as_str())) {
            secrets::note(withheld_env, name);
        }
        expanded.text
    };
    let mut server = server.clone();
    server.url = server.url.as_deref().map(&mut expand);
    server.args = server.args.iter().map(|text| expand(text)).collect();
    for value in server.env.values_mut().chain(server.headers.values_mut()) {
        *value = expand(value);
    }
    server
}

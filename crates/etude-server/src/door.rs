//! The checks before routing: `Host`, `Origin`, fetch metadata, and the token or session of the caller.

use std::net::SocketAddr;
use std::time::Instant;

use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use http::{HeaderMap, Method, Uri};

use crate::listen::Peer;
use crate::problem::{Code, Problem};
use crate::server::Server;
use crate::token::{self, Caller};

/// The authorities under which a server is reached.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Names with their port, in lower case.
    exact: Vec<String>,
    addresses: Vec<SocketAddr>,
    /// Names that pass with any port, because a proxy has the port.
    any_port: Vec<String>,
    /// The schemes of the server's own origins.
    schemes: &'static [&'static str],
}

impl Names {
    /// The names of a server that listens on `addresses`; `names` are those of `--host`.
    pub(crate) fn new(addresses: &[SocketAddr], names: &[String], is_tls: bool, is_behind_proxy: bool) -> Self {
        let mut own = Self { schemes: if is_tls { &["https"] } else { &["http"] }, ..Self::default() };
        let default_port = if is_tls { 443 } else { 80 };
        for address in addresses {
            own.addresses.push(*address);
            let port = address.port();
            if address.ip().is_loopback() || address.ip().is_unspecified() {
                let loopback: [SocketAddr; 2] =
                    [([127, 0, 0, 1], port).into(), (std::net::Ipv6Addr::LOCALHOST, port).into()];
                own.addresses.extend(loopback);
                own.add("localhost", port, default_port);
            }
            names.iter().for_each(|name| own.add(&name.to_ascii_lowercase(), port, default_port));
        }
        if is_behind_proxy {
            own.schemes = &["http", "https"];
            own.any_port = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        }
        own
    }

    fn add(&mut self, name: &str, port: u16, default_port: u16) {
        self.exact.push(format!("{name}:{port}"));
        if port == default_port {
            self.exact.push(name.to_owned());
        }
    }

    /// True if `authority` names this server.
    pub(crate) fn has(&self, authority: &str) -> bool {
        if let Ok(address) = authority.parse::<SocketAddr>() {
            return self.addresses.contains(&address);
        }
        let authority = authority.to_ascii_lowercase();
        if self.exact.contains(&authority) {
            return true;
        }
        let name = match authority.rsplit_once(':') {
            Some((name, port)) if port.parse::<u16>().is_ok() => name,
            _ => &authority,
        };
        self.any_port.iter().any(|own| own == name)
    }

    /// True if `origin` is one of the server's own.
    pub(crate) fn has_origin(&self, origin: &str) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        if !self.schemes.contains(&scheme) {
            return false;
        }
        let default_port = if scheme == "https" { 443 } else { 80 };
        self.has(authority) || self.has(&format!("{authority}:{default_port}"))
    }
}

/// The only value of a header; `Err` if it occurs twice or has other bytes than ASCII.
fn single(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(());
    }
    first.to_str().map(Some).map_err(|_| ())
}

/// Checks that the request names this server (S-5).
pub(crate) fn check_host(server: &Server, peer: &Peer, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if matches!(peer, Peer::Socket) {
        return Ok(());
    }
    let forbidden = || Problem::new(Code::ForbiddenHost, "the `Host` header does not name this server");
    let own = single(headers, HOST).map_err(|()| forbidden())?;
    let forwarded = match server.settings().is_behind_proxy {
        true => single(headers, "x-forwarded-host").map_err(|()| forbidden())?,
        false => None,
    };
    let names = server.names();
    let host = forwarded.or(own).ok_or_else(forbidden)?;
    let is_own_target = uri.authority().is_none_or(|authority| names.has(authority.as_str()));
    if names.has(host) && is_own_target {
        return Ok(());
    }
    Err(forbidden().hint("name it with `etude serve --host NAME`"))
}

/// Whether the request has a credential that browsers send by themselves.
pub(crate) fn has_cookie_only(server: &Server, headers: &HeaderMap) -> bool {
    !headers.contains_key(AUTHORIZATION) && cookie(headers, &server.cookie().0).is_some()
}

/// Checks that no other site made the request (S-6, S-7, S-9). `is_page` is true for the path of a page, `is_login` for a login and
/// a logout, which only the server's own pages send.
pub(crate) fn check_origin(
    server: &Server,
    method: &Method,
    headers: &HeaderMap,
    is_page: bool,
    is_login: bool,
) -> Result<(), Problem> {
    let forbidden = |detail: &'static str| Problem::new(Code::ForbiddenOrigin, detail);
    let origin = single(headers, ORIGIN).map_err(|()| forbidden("the request has more than one `Origin`"))?;
    if let Some(origin) = origin {
        let is_allowed = server.settings().allowed_origins.iter().any(|allowed| allowed == origin);
        if !server.names().has_origin(origin) && !is_allowed {
            return Err(forbidden("the `Origin` header names another site"));
        }
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_login = is_login && changes;
    if is_login && origin.is_some_and(|origin| !server.names().has_origin(origin)) {
        return Err(forbidden("the `Origin` header names another site"));
    }
    if !(has_cookie_only(server, headers) || is_login) {
        return Ok(());
    }
    let site = single(headers, "sec-fetch-site").map_err(|()| forbidden("the fetch metadata is ambiguous"))?;
    let value = |name| single(headers, name).ok().flatten();
    match site {
        Some("same-origin") => Ok(()),
        Some("none") if !is_login || origin.is_some() => Ok(()),
        Some(_) => {
            let is_navigation =
                value("sec-fetch-mode") == Some("navigate") && value("sec-fetch-dest") == Some("document");
            match is_page && !changes && is_navigation {
                true => Ok(()),
                false => Err(forbidden("another site made the request, and it has no token")),
            }
        }
        None if changes && origin.is_none() => Err(forbidden("the request has neither `Origin` nor fetch metadata")),
        None => Ok(()),
    }
}

/// The value of a cookie.
pub(crate) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value.to_owned())
}

/// The owner of a request, by its token or its session (S-13, S-17).
pub(crate) fn caller(server: &Server, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Problem> {
    let unauthenticated = || {
        Problem::new(Code::Unauthenticated, "the request has no token")
            .hint("send `Authorization: Bearer TOKEN`; create a token with `etude token new NAME --scope read`")
    };
    let now = server.clock().now_ms();
    if headers.contains_key(AUTHORIZATION) {
        let given = single(headers, AUTHORIZATION).ok().flatten().and_then(|value| value.split_once(' '));
        let token = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        let found = match token {
            Some(token) => server.tokens().find(token, now).map_err(|e| tokens_failed(&e))?,
            None => None,
        };
        return found.ok_or_else(|| wrong_token(server, peer));
    }
    let cookie = cookie(headers, &server.cookie().0).ok_or_else(unauthenticated)?;
    let token = server.sessions().find(&cookie, now).ok_or_else(unauthenticated)?;
    let found = server.tokens().find_hash(token, now).map_err(|e| tokens_failed(&e))?;
    let session = Some(crate::token::hash(&cookie));
    found.map(|caller| Caller { session, ..caller }).ok_or_else(unauthenticated)
}

/// The problem of a wrong token, which counts against its address (S-22).
pub(crate) fn wrong_token(server: &Server, peer: &Peer) -> Problem {
    if server.throttle().note(&peer.address(), Instant::now()) {
        return Problem::new(Code::TooManyRequests, "too many wrong tokens from this address").retry_after(60);
    }
    Problem::new(Code::Unauthenticated, "the token is wrong, expired or revoked")
}

/// The file of tokens cannot be used.
pub(crate) fn tokens_failed(error: &token::Error) -> Problem {
    Problem::new(Code::JournalUnavailable, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str], is_behind_proxy: bool) -> Names {
        let addresses = [([127, 0, 0, 1], 3883).into(), (std::net::Ipv6Addr::LOCALHOST, 3883).into()];
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Names::new(&addresses, &names, false, is_behind_proxy)
    }

    /// S-11: IPv6 literals and `localhost` pass with the server's port, and only with it.
    #[test]
    fn loopback_names_pass_with_the_port() {
        let own = names(&["etude.example"], false);
        for host in ["127.0.0.1:3883", "[::1]:3883", "localhost:3883", "LocalHost:3883", "etude.example:3883"] {
            assert!(own.has(host), "{host}");
        }
        for host in ["127.0.0.1", "localhost", "localhost:80", "[::1]:1", "evil.example:3883", "", "127.0.0.2:3883"] {
            assert!(!own.has(host), "{host}");
        }
    }

    /// S-6: only the server's own origins pass.
    #[test]
    fn origins_of_others_do_not_pass() {
        let own = names(&[], false);
        assert!(own.has_origin("http://localhost:3883"));
        assert!(own.has_origin("http://[::1]:3883"));
        for origin in
            ["null", "http://localhost", "https://localhost:3883", "http://localhost:3884", "http://a.example"]
        {
            assert!(!own.has_origin(origin), "{origin}");
        }
        let own = names(&["etude.example"], true);
        assert!(own.has_origin("https://etude.example"));
        assert!(own.has_origin("https://etude.example:8443"));
        assert!(!own.has_origin("https://other.example"));
    }
}

//! The checks before routing: `Host`, `Origin`, fetch metadata, and the token or session of the caller.

use std::time::Instant;

use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use http::{HeaderMap, Method, Uri};

use crate::forwarded;
use crate::listen::Peer;
use crate::oauth;
use crate::problem::{Code, Problem};
use crate::server::Server;
use crate::token::{self, Caller};

/// The only value of a header; `Err` if the header occurs twice or is not ASCII.
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

/// True if pages of this server have this origin. If a proxy reports an encrypted connection of the client, an unencrypted origin
/// is foreign.
pub(crate) fn is_own_origin(server: &Server, headers: &HeaderMap, origin: &str) -> bool {
    let is_downgrade = origin.starts_with("http://") && forwarded::is_https(server.settings(), headers);
    server.names().has_origin(origin) && !is_downgrade
}

/// True if the request has only a credential that browsers send by themselves.
pub(crate) fn has_cookie_only(server: &Server, headers: &HeaderMap) -> bool {
    !headers.contains_key(AUTHORIZATION) && cookie(headers, &server.cookie(headers).0).is_some()
}

/// Checks that no other site made the request (S-6, S-7, S-9). `is_page` is true for the path of a page; `is_login` for a login
/// or logout, which only the server's own pages send.
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
        if !is_own_origin(server, headers, origin) && !is_allowed {
            return Err(forbidden("the `Origin` header names another site"));
        }
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_login = is_login && changes;
    if is_login && origin.is_some_and(|origin| !is_own_origin(server, headers, origin)) {
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

/// The caller of a request, by its token or its session (S-13, S-17). A token of an issuer may have to wait for the issuer's
/// keys.
pub(crate) async fn caller(server: &Server, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Problem> {
    let unauthenticated = || {
        Problem::new(Code::Unauthenticated, "the request has no token")
            .hint("send `Authorization: Bearer TOKEN`; create a token with `etude token new NAME --scope read`")
    };
    let now = server.clock().now_ms();
    if headers.contains_key(AUTHORIZATION) {
        let given = single(headers, AUTHORIZATION).ok().flatten().and_then(|value| value.split_once(' '));
        let token = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        if let (Some(token), Some(issuer)) = (token, server.issuer())
            && oauth::is_jwt(token)
        {
            return oauth::caller(server, issuer, peer, token).await;
        }
        let found = match token {
            Some(token) => server.tokens().find(token, now).map_err(|e| tokens_failed(&e))?,
            None => None,
        };
        return found.ok_or_else(|| wrong_token(server, peer));
    }
    let cookie = cookie(headers, &server.cookie(headers).0).ok_or_else(unauthenticated)?;
    let token = server.sessions().find(&cookie, now).ok_or_else(unauthenticated)?;
    let found = server.tokens().find_hash(token, now).map_err(|e| tokens_failed(&e))?;
    let session = Some(crate::token::hash(&cookie));
    found.map(|caller| Caller { session, ..caller }).ok_or_else(unauthenticated)
}

/// The problem of a wrong token, which counts against its address (S-22).
pub(crate) fn wrong_token(server: &Server, peer: &Peer) -> Problem {
    counted(server, peer, refused_token())
}

/// The problem of a login link that is used up, which counts like a wrong token.
pub(crate) fn wrong_link(server: &Server, peer: &Peer) -> Problem {
    let detail = "the login link was used before or is older than two minutes; `etude serve --link` prints another";
    counted(server, peer, Problem::new(Code::Unauthenticated, detail))
}

/// The problem, or the one of too many wrong tokens from this address.
fn counted(server: &Server, peer: &Peer, problem: Problem) -> Problem {
    if server.throttle().note(&peer.address(), Instant::now()) {
        return Problem::new(Code::TooManyRequests, "too many wrong tokens from this address").retry_after(60);
    }
    problem
}

/// The problem of a token that is not accepted.
pub(crate) fn refused_token() -> Problem {
    Problem::new(Code::Unauthenticated, "the token is wrong, expired or revoked")
}

/// The problem of an unusable token file.
pub(crate) fn tokens_failed(error: &token::Error) -> Problem {
    Problem::new(Code::JournalUnavailable, error.to_string())
}

//! Proxies and certificates that the environment of the program names.
//!
//! The HTTP client reads these variables itself, and ignores those that it cannot use. This module finds them, and names them in
//! errors.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

use etude_core::service_url::is_loopback;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;

/// Variables of proxies, in each pair first the one that counts.
const HTTPS: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const HTTP: [&str; 2] = ["HTTP_PROXY", "http_proxy"];
const ALL: [&str; 2] = ["ALL_PROXY", "all_proxy"];

/// Variables of hosts that need no proxy.
const NO_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Variable of a file of certificates that replace those of the system.
const CERTIFICATES: &str = "SSL_CERT_FILE";

/// Variable of a CGI script. Requests could set `HTTP_PROXY` of such a process, so the HTTP client uses no proxy.
const OF_CGI: &str = "REQUEST_METHOD";

/// A valid proxy, by which exceptions are found.
const ANY_PROXY: &str = "http://proxy";

static KEPT: OnceLock<Environment> = OnceLock::new();

/// Proxy for a URL, as the environment names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Proxy {
    /// Variable that names it.
    variable: &'static str,
    /// Its address, without user and password.
    address: String,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy `{}` of `{}`", self.address, self.variable)
    }
}

#[derive(Debug, Default)]
struct Environment(Vec<(&'static str, OsString)>);

/// Keeps the variables of the program's environment that concern requests. Without this call, no error names them.
pub fn keep(read: impl Fn(&str) -> Option<OsString>) {
    let _ = KEPT.set(Environment::new(read));
}

/// Proxy of requests to `url` as a part of a sentence, such as " through the proxy `http://proxy:3128` of `HTTPS_PROXY`". It is
/// empty for requests without a proxy.
pub fn way_to(url: &str) -> String {
    let proxy = || KEPT.get()?.proxy_of(&Url::parse(url).ok()?).ok()?;
    proxy().map_or_else(String::new, |proxy| format!(" through {proxy}"))
}

/// The same for a response to a request to `url`: a proxy can answer in place of the server, but only without TLS.
pub fn way_back(url: &str) -> String {
    if url.starts_with("https:") { String::new() } else { way_to(url) }
}

/// Checks the variables that requests to `url` use.
///
/// # Errors
/// A variable has an invalid value.
pub fn check(url: &Url) -> Result<(), String> {
    KEPT.get().map_or(Ok(()), |environment| environment.check(url))
}

/// Explains why no certificate was found, if a variable names their file.
pub(crate) fn without_certificates() -> Option<String> {
    KEPT.get()?.without_certificates()
}

impl Environment {
    fn new(read: impl Fn(&str) -> Option<OsString>) -> Self {
        let names = [HTTPS, HTTP, ALL, NO_PROXY, [CERTIFICATES, OF_CGI]].into_iter().flatten();
        Self(names.filter_map(|name| Some((name, read(name)?))).collect())
    }

    fn find(&self, name: &str) -> Option<&(&'static str, OsString)> {
        self.0.iter().find(|(known, _)| *known == name)
    }

    fn check(&self, url: &Url) -> Result<(), String> {
        self.proxy_of(url)?;
        match url.scheme() {
            "https" => self.check_certificates(),
            _ => Ok(()),
        }
    }

    fn check_certificates(&self) -> Result<(), String> {
        let Some((_, path)) = self.find(CERTIFICATES) else { return Ok(()) };
        let refused = |why: &dyn fmt::Display| {
            let shown = Path::new(path).display();
            format!(
                "`{CERTIFICATES}` names `{shown}`, which cannot be read: {why}; name a file of certificates, or unset it"
            )
        };
        match File::open(path) {
            Ok(file) if file.metadata().is_ok_and(|data| data.is_dir()) => Err(refused(&"it is a directory")),
            Ok(_) => Ok(()),
            Err(error) => Err(refused(&error)),
        }
    }

    fn without_certificates(&self) -> Option<String> {
        let (_, path) = self.find(CERTIFICATES)?;
        let shown = Path::new(path).display();
        Some(format!("`{CERTIFICATES}` names `{shown}`, which has no certificates in the PEM format"))
    }

    /// Proxy for `url`, as the HTTP client finds it; the error is an invalid value of the variable that names it.
    fn proxy_of(&self, url: &Url) -> Result<Option<Proxy>, String> {
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| self.find(name));
        let Ok(target) = url.as_str().parse() else { return Ok(None) };
        let excepted = first(NO_PROXY).and_then(|(_, value)| value.to_str()).unwrap_or_default();
        let through = |proxy: &str| {
            let found = Matcher::builder().all(proxy).no(excepted).build().intercept(&target)?;
            // The client takes what is not a number for the port of the scheme.
            Url::parse(&found.uri().to_string()).ok().map(|_| found)
        };
        if is_loopback(url) || self.find(OF_CGI).is_some() || through(ANY_PROXY).is_none() {
            return Ok(None);
        }
        let of_scheme = if url.scheme() == "https" { HTTPS } else { HTTP };
        let mut named = [of_scheme, ALL].into_iter().filter_map(first);
        let Some((variable, value)) = named.find(|(_, value)| !value.is_empty()) else { return Ok(None) };
        match value.to_str().and_then(through) {
            Some(found) => {
                let address = found.uri().to_string().trim_end_matches('/').to_owned();
                Ok(Some(Proxy { variable, address }))
            }
            None => Err(format!(
                "the value of `{variable}` is not the URL of a proxy: set it to a URL such as `http://HOST:PORT`, or unset it"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::new(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    /// cli: the proxy of a request is the one of its scheme, or the one of all, and is shown without its password.
    #[test]
    fn a_proxy_is_named_by_its_variable() {
        let all = [
            ("HTTPS_PROXY", "http://me:secret@proxy:3128/"),
            ("http_proxy", "plain:80"),
            ("ALL_PROXY", "http://all:1"),
        ];
        let shown = |variables: &[(&str, &str)], target: &str| {
            environment(variables).proxy_of(&url(target)).expect("a valid value").map(|proxy| proxy.to_string())
        };
        let https = Some("the proxy `http://proxy:3128` of `HTTPS_PROXY`".to_owned());
        assert_eq!(shown(&all, "https://far.example/v1"), https);
        assert_eq!(
            shown(&all[1..], "http://far.example/v1").as_deref(),
            Some("the proxy `http://plain:80` of `http_proxy`")
        );
        assert_eq!(
            shown(&all[2..], "http://far.example/v1").as_deref(),
            Some("the proxy `http://all:1` of `ALL_PROXY`")
        );
        for target in ["http://localhost:1/", "https://127.0.0.1/"] {
            assert_eq!(shown(&all, target), None, "{target}");
        }
        assert_eq!(shown(&[all[0], ("REQUEST_METHOD", "GET")], "https://far.example/"), None);
        assert_eq!(shown(&[("HTTPS_PROXY", "")], "https://far.example/"), None);
    }

    /// cli: a value that the HTTP client ignores is reported, unless no request uses it.
    #[test]
    fn a_value_that_is_no_proxy_is_reported() {
        let bad =
            ["http://", "ftp://proxy:1", "not a proxy", "proxy:3128/", "http://proxy:port", "://x", "http://pröxy"];
        for value in bad {
            let found = environment(&[("HTTPS_PROXY", value)]);
            let why = found.check(&url("https://far.example/")).expect_err(value);
            assert!(why.starts_with("the value of `HTTPS_PROXY` is not the URL of a proxy"), "{why}");
            found.check(&url("http://far.example/")).expect("another scheme");
            environment(&[("HTTPS_PROXY", value), ("NO_PROXY", "a, .example")])
                .check(&url("https://far.example/"))
                .expect("an exception");
        }
        for value in ["http://proxy", "HTTP://proxy:1", "proxy", "me:secret@proxy:1", "socks5://[::1]:1"] {
            environment(&[("all_proxy", value)]).check(&url("https://far.example/")).expect(value);
        }
    }

    /// cli: exceptions are domains, addresses and ranges of addresses.
    #[test]
    fn an_excepted_host_has_no_proxy() {
        for (host, entries, expected) in [
            ("far.example", "a, .example", true),
            ("10.1.2.3", "10.1.0.0/16", true),
            ("10.1.2.3", "10.2.0.0/16", false),
        ] {
            let found = environment(&[("ALL_PROXY", "http://proxy:1"), ("no_proxy", entries)]);
            let proxy = found.proxy_of(&url(&format!("https://{host}/"))).expect("a valid value");
            assert_eq!(proxy.is_none(), expected, "{host} {entries}");
        }
    }

    /// cli: a file of certificates that cannot be read is named. Servers without TLS need none.
    #[test]
    fn a_file_of_certificates_that_cannot_be_read_is_named() {
        let dir = std::path::absolute("src").expect("a path");
        let missing = dir.join("missing.pem");
        for (path, part) in [(&missing, "missing.pem`, which cannot be read: "), (&dir, "it is a directory")] {
            let found = environment(&[("SSL_CERT_FILE", path.to_str().expect("text"))]);
            let why = found.check(&url("https://far.example/")).expect_err("it cannot be read");
            assert!(why.starts_with("`SSL_CERT_FILE` names `") && why.contains(part), "{why}");
            found.check(&url("http://far.example/")).expect("no TLS");
        }
    }
}

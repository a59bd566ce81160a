//! URLs of services that may hold credentials: compared by their origin, and shown without secrets.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

/// Replacement for a secret.
const HIDDEN: &str = "***";

/// Minimum length of a secret: shorter texts occur everywhere.
const SHORTEST_SECRET: usize = 6;

/// Words in the names of query parameters that hold secrets.
const SECRET_NAMES: [&str; 4] = ["key", "token", "secret", "sig"];

/// The URL of a service, such as a provider or an MCP server.
///
/// `Display` and `Debug` leave out user, password, query, fragment, and parts of the path that look like keys. So a URL
/// in a message shows none of them. Only [`ServiceUrl::expose`] returns the whole URL.
///
/// ```
/// use etude_core::service_url::ServiceUrl;
///
/// let url = ServiceUrl::new("https://me:hunter2@mcp.example.com/v1?token=abc");
/// assert_eq!(url.to_string(), "https://mcp.example.com/v1");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceUrl(String);

/// Scheme, host and port of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    scheme: String,
    host: String,
    port: Option<u16>,
    is_loopback: bool,
}

impl ServiceUrl {
    /// A URL as it is configured; it is not checked before its use.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The whole URL, for a request.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Target of requests; `None` if the URL has no host.
    pub fn origin(&self) -> Option<Origin> {
        let url = Url::parse(&self.0).ok()?;
        let host = url.host_str()?.trim_end_matches('.').to_ascii_lowercase();
        let is_loopback = match url.host()? {
            Host::Domain(_) => host == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        };
        Some(Origin { scheme: url.scheme().to_owned(), host, port: url.port_or_known_default(), is_loopback })
    }

    /// Secrets that no response, result or output may hold. These are the password, the user if there is none or if it
    /// looks like a key, and values of the query and parts of the path that are named or look like keys; each as written,
    /// and decoded.
    pub fn secrets(&self) -> Vec<String> {
        self.hidden(|name, value| {
            let name = name.to_lowercase();
            looks_like_a_key(value) || SECRET_NAMES.iter().any(|word| name.contains(word))
        })
    }

    fn hidden(&self, is_hidden: impl Fn(&str, &str) -> bool) -> Vec<String> {
        let Ok(url) = Url::parse(&self.0) else { return Vec::new() };
        let mut found = vec![url.password().unwrap_or(url.username()).to_owned()];
        // Some services take a key as the user, beside any password.
        found.extend(Some(url.username()).filter(|user| looks_like_a_key(user)).map(str::to_owned));
        let pairs = url.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        found.extend(pairs.filter(|(name, value)| is_hidden(name, value)).map(|(_, value)| value.to_owned()));
        found.extend(url.path().split('/').filter(|part| looks_like_a_key(part)).map(str::to_owned));
        let decoded: Vec<String> =
            found.iter().map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned()).collect();
        found.extend(decoded);
        found.retain(|text| text.len() >= SHORTEST_SECRET);
        found.sort_by_key(|text| std::cmp::Reverse(text.len()));
        found.dedup();
        found
    }

    /// Redacts a text about this URL, such as an error of a library: removes the URL's secrets, and shows every other
    /// URL in it as this type does.
    pub fn redact(&self, text: &str) -> String {
        let shown = self.to_string();
        let mut text = if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, &shown) };
        for secret in self.hidden(|_, _| true) {
            text = text.replace(&secret, HIDDEN);
        }
        redact(&text)
    }
}

impl From<&str> for ServiceUrl {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for ServiceUrl {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(url) = Url::parse(&self.0) else { return f.write_str("(invalid URL)") };
        let Some(host) = url.host_str() else { return f.write_str("(invalid URL)") };
        write!(f, "{}://{host}", url.scheme())?;
        if let Some(port) = url.port() {
            write!(f, ":{port}")?;
        }
        if url.path() != "/" {
            let shown = |part| if looks_like_a_key(part) { HIDDEN } else { part };
            f.write_str(&url.path().split('/').map(shown).collect::<Vec<_>>().join("/"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceUrl({self})")
    }
}

impl Origin {
    /// Host and port; the port only if it differs from the scheme's default.
    pub fn host(&self) -> String {
        match (self.port, self.scheme.as_str()) {
            (None, _) | (Some(443), "https") | (Some(80), "http") => self.host.clone(),
            (Some(port), _) => format!("{}:{port}", self.host),
        }
    }

    /// True for this machine: a loopback address, or `localhost`. A name that resolves to one does not count, because
    /// its owner can change that.
    pub fn is_loopback(&self) -> bool {
        self.is_loopback
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host())
    }
}

/// Redacts the URLs in a text: each is shown as [`ServiceUrl`] shows it.
pub fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    each_url(text, |piece| match piece {
        Piece::Text(text) => out.push_str(text),
        Piece::Url(url) => out.push_str(&ServiceUrl::new(url).to_string()),
    });
    out
}

/// Redacts the URLs in a source line, but keeps its width, so that marks below it still fit: each hidden character
/// becomes an asterisk.
pub fn mask(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    each_url(text, |piece| match piece {
        Piece::Text(text) => out.push_str(text),
        Piece::Url(url) => out.push_str(&masked(url)),
    });
    out
}

/// A part of a text.
enum Piece<'t> {
    Text(&'t str),
    Url(&'t str),
}

fn each_url<'t>(text: &'t str, mut take: impl FnMut(Piece<'t>)) {
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let mut rest = text;
    while let Some(mark) = rest.find("://") {
        let scheme = rest[..mark].trim_end_matches(is_of_scheme).len();
        let after = &rest[mark + 3..];
        let end = after.find(|c: char| c.is_whitespace() || "\"'`<>".contains(c)).unwrap_or(after.len());
        let end = mark + 3 + after[..end].trim_end_matches([')', ']', '}', ',', '.', ';', ':', '!']).len();
        take(Piece::Text(&rest[..scheme]));
        // A message that names only a scheme, such as `https://`, has no URL there.
        match scheme == mark || end == mark + 3 {
            true => take(Piece::Text(&rest[scheme..end])),
            false => take(Piece::Url(&rest[scheme..end])),
        }
        rest = &rest[end..];
    }
    take(Piece::Text(rest));
}

fn masked(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let authority_end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    // The last `@` ends the user, because a password may hold one.
    let host = url[start..authority_end].rfind('@').map_or(start, |at| start + at);
    let query = url[authority_end..].find(['?', '#']).map_or(url.len(), |at| authority_end + at + 1);
    let stars = |text: &str| "*".repeat(text.chars().count());
    let mut out = url[..start].to_owned();
    out.push_str(&stars(&url[start..host]));
    out.push_str(&url[host..query.min(url.len())]);
    out.push_str(&stars(&url[query.min(url.len())..]));
    out
}

/// True for a loopback address of this machine, or `localhost`.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// True if a part looks like a key: long, in one piece, with letters and digits.
fn looks_like_a_key(part: &str) -> bool {
    const SHORTEST: usize = 20;
    let has = |wanted: fn(&u8) -> bool| part.as_bytes().iter().any(wanted);
    part.len() >= SHORTEST && !part.contains('.') && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A-3.7: no form of a URL in a message shows its secrets.
    #[test]
    fn a_url_is_shown_without_what_it_may_hide() {
        for (url, shown) in [
            ("https://example.com", "https://example.com"),
            ("https://u:canary@example.com:8443/mcp?token=canary&a=b#canary", "https://example.com:8443/mcp"),
            ("https://canary@example.com/", "https://example.com"),
            ("https://example.com/s/abcdefghij0123456789canary/mcp", "https://example.com/s/***/mcp"),
            ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
            ("https://u:ca@nary@example.com", "https://example.com"),
            ("canary", "(invalid URL)"),
            ("user:canary@127.0.0.1", "(invalid URL)"),
            ("https://u:canary@", "(invalid URL)"),
        ] {
            assert_eq!(ServiceUrl::new(url).to_string(), shown);
            assert_eq!(format!("{:?}", ServiceUrl::new(url)), format!("ServiceUrl({shown})"));
        }
    }

    #[test]
    fn errors_of_libraries_are_shown_without_what_urls_hide() {
        let url = ServiceUrl::new("http://me:p%40ss)word@host/mcp?token=tok-en'x y");
        let parsed = Url::parse(url.expose()).expect("a URL");
        for text in [
            format!("error sending request for url ({parsed})"),
            format!("error sending request for url ({}): refused", url.expose()),
            "the server said p@ss)word and tok-en'x y".to_owned(),
            format!("moved to {parsed}, or to https://other:password@far/x?key=password."),
        ] {
            let shown = url.redact(&text);
            for part in ["ss)word", "tok-en", "password"] {
                assert!(!shown.contains(part), "{shown}");
            }
        }
        assert_eq!(redact("see (https://a:b@h/p?q=1), or not://"), "see (https://h/p), or not://");
        assert_eq!(redact("it has no `https://`: a://b:c@"), "it has no `https://`: (invalid URL)");
        assert_eq!(redact("a :// b"), "a :// b");
        assert_eq!(ServiceUrl::new("").redact("no host"), "no host");
    }

    /// A-3.7: the credentials of a URL are redacted elsewhere too; its ordinary words are not.
    #[test]
    fn only_credentials_of_a_url_are_secrets() {
        let secrets = |text: &str| ServiceUrl::new(text).secrets();
        assert_eq!(secrets("https://service:p%40ssword@h/v1?api-version=2024-02-01"), ["p%40ssword", "p@ssword"]);
        assert_eq!(secrets("https://tokenuser@h/openai/v1?Access_Token=abcdef"), ["tokenuser", "abcdef"]);
        assert_eq!(secrets("https://h/s/abcdefghij0123456789/mcp?x=1"), ["abcdefghij0123456789"]);
        assert_eq!(secrets("https://ghp0_abcdefghij0123456789:x@h/v1"), ["ghp0_abcdefghij0123456789"]);
        assert!(secrets("https://h/v1?key=1").is_empty() && secrets("x").is_empty());
    }

    #[test]
    fn source_lines_keep_their_width() {
        let line = "  base_url: \"https://me:hunter2@h:1/v1?token=abc\"  # http://x";
        let masked = mask(line);
        assert_eq!(masked, "  base_url: \"https://**********@h:1/v1?*********\"  # http://x");
        assert_eq!(masked.chars().count(), line.chars().count());
    }

    #[test]
    fn origins_are_compared_by_scheme_host_and_port() {
        let origin = |text: &str| ServiceUrl::new(text).origin();
        assert_eq!(origin("https://API.example.com./v1"), origin("https://x:y@api.example.com:443/other"));
        for other in ["http://api.example.com", "https://api.example.com:444", "https://api.example.com.evil.net"] {
            assert_ne!(origin("https://api.example.com"), origin(other), "{other}");
        }
        // The host follows the last `@`, whatever the rest looks like.
        assert_eq!(origin("https://api.example.com@evil.net/v1").map(|origin| origin.host()), Some("evil.net".into()));
        assert_eq!(origin("https://api.example.com\\@evil.net").map(|o| o.host()), Some("api.example.com".into()));
        assert_eq!(origin("nothing"), None);
    }

    #[test]
    fn loopback_is_an_address_or_localhost() {
        let is_loopback = |text: &str| ServiceUrl::new(text).origin().is_some_and(|origin| origin.is_loopback());
        for url in ["http://127.0.0.1:1", "http://127.9.9.9", "http://[::1]", "http://localhost:8000", "http://0x7f.1"]
        {
            assert!(is_loopback(url), "{url}");
        }
        for url in ["http://localhost.evil.net", "http://127.0.0.1.evil.net", "http://10.0.0.1", "http://0.0.0.0", "x"]
        {
            assert!(!is_loopback(url), "{url}");
        }
    }
}

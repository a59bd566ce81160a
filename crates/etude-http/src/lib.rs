//! HTTP clients of the program, with their common settings.

pub mod environment;
pub mod sse;

use std::error::Error;
use std::sync::Once;

use etude_core::service_url::is_loopback;
use reqwest::{Client, ClientBuilder, Url, redirect};

/// Hint for a system without trusted certificates, such as a minimal container.
const NO_CERTIFICATES: &str =
    "; install the package `ca-certificates`, or set `SSL_CERT_FILE` to a file of certificates";

/// Error of a response with too many or too long headers. Another attempt gets the same one.
pub const LARGE_HEAD: &str = "the head of the response is too large: at most 100 headers and 400 KB";

/// Starts of errors of the libraries that name no cause for users, each with a sentence in its place.
const LIBRARY_ERRORS: [(&str, &str); 4] = [
    ("tunnel error: unsuccessful", "the proxy answered with an error instead of a connection to the server"),
    ("tunnel error: unexpected end of file", "the proxy closed the connection without an answer"),
    (
        "peer closed connection without sending TLS close_notify",
        "the server closed the connection without an end of TLS",
    ),
    ("message head is too large", LARGE_HEAD),
];

/// Chooses the TLS implementation of the process. Clients do it themselves; code that speaks TLS in another way calls
/// this function first. A second call does nothing.
pub fn init_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the program has already chosen, which is just as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    });
}

/// Builds a client for `url` with additional `settings`, such as time limits or a socket.
///
/// The client follows no redirect, which would carry keys in headers to any target, and sends no `Referer`. It uses no
/// proxy for this machine. Certificates are loaded only where they can be needed, because loading takes milliseconds.
/// So a system without any, such as a minimal container, still reaches servers without TLS.
///
/// # Errors
/// The reason why the client cannot be built, on one line.
pub fn client(url: &Url, settings: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, String> {
    init_tls();
    environment::check(url)?;
    let make = || settings(builder(is_loopback(url)));
    match (url.scheme(), is_loopback(url)) {
        // A call that asks for TLS all the same is refused.
        ("http", true) => built(make().tls_certs_only([])),
        // Only a proxy could need certificates.
        ("http", false) => built(make()).or_else(|_| built(make().tls_certs_only([]))),
        _ => built(make()),
    }
}

fn builder(is_loopback: bool) -> ClientBuilder {
    let builder = Client::builder()
        .user_agent(concat!("etude/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .referer(false);
    if is_loopback { builder.no_proxy() } else { builder }
}

fn built(builder: ClientBuilder) -> Result<Client, String> {
    builder.build().map_err(|error| {
        let text = format!("cannot create the HTTP client: {}", causes(&error));
        match text.contains("No CA certificates") {
            true => match environment::without_certificates() {
                Some(why) => format!("{text}: {why}"),
                None => text + NO_CERTIFICATES,
            },
            false => text,
        }
    })
}

/// An error with its causes, each cause once.
pub fn causes(error: &dyn Error) -> String {
    let mut text = sentence(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = sentence(error);
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// The innermost cause of an error: the outer causes of an HTTP client repeat the URL.
pub fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    sentence(cause)
}

/// The text of an error without its causes.
fn sentence(error: &dyn Error) -> String {
    let text = error.to_string();
    let known = LIBRARY_ERRORS.iter().find(|(library, _)| text.starts_with(library));
    known.map_or(text, |(_, sentence)| (*sentence).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(&'static str, Option<Box<Outer>>);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &(dyn Error + 'static))
        }
    }

    #[test]
    fn causes_are_named_once() {
        let inner = Outer("connection refused", None);
        let middle = Outer("no connection: connection refused", Some(Box::new(inner)));
        let outer = Outer("request failed", Some(Box::new(middle)));
        assert_eq!(causes(&outer), "request failed: no connection: connection refused");
        assert_eq!(root_cause(&outer), "connection refused");
    }

    /// cli: an error of a library is a sentence about the server, without an address of the library's manual.
    #[test]
    fn errors_of_libraries_are_sentences() {
        for (library, expected) in [
            (
                "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/",
                "the server closed the connection without an end of TLS",
            ),
            ("message head is too large", LARGE_HEAD),
            ("connection refused", "connection refused"),
        ] {
            assert_eq!(root_cause(&Outer(library, None)), expected);
        }
    }

    /// cli: a system without certificates reaches servers without TLS; for other servers the error names the fix. The
    /// variable that simulates such a system holds for a whole process, so the test runs in a process of its own.
    #[cfg(target_os = "linux")]
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test starts itself")]
    fn a_system_without_certificates_reaches_servers_without_tls() {
        const NONE: (&str, &str) = ("SSL_CERT_FILE", "/dev/null");
        if std::env::var_os(NONE.0).is_some_and(|file| file == NONE.1) {
            let of = |url: &str| client(&Url::parse(url).expect("a URL"), |client| client);
            for plain in ["http://127.0.0.1:8000/", "http://10.0.0.1/"] {
                of(plain).expect("a client without certificates");
            }
            for encrypted in ["https://localhost:8443/", "https://example.com/"] {
                let why = of(encrypted).expect_err("no one is trusted");
                assert!(why.contains("No CA certificates were loaded from the system; install the package"), "{why}");
            }
            return;
        }
        let own = std::env::current_exe().expect("the test itself");
        let command = std::process::Command::new(own)
            .args(["--exact", "tests::a_system_without_certificates_reaches_servers_without_tls"])
            .env(NONE.0, NONE.1)
            .env_remove("SSL_CERT_DIR")
            .output();
        let done = command.expect("the test starts");
        let shown = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && shown.contains("1 passed"), "{shown}");
    }
}

//! The HTTP clients of the process.

use std::error::Error;
use std::path::Path;
use std::sync::{Once, OnceLock};
use std::time::Duration;

use etude_core::service_url::is_loopback;
use reqwest::{Client, ClientBuilder, Url, redirect};

/// Longest time until a connection stands. The whole try has its own, longer limit.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Chooses the TLS implementation of the process. Calls do it by themselves; a program that builds HTTP clients of
/// its own calls it first. Calling it again does nothing.
pub fn init_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the program has chosen before, which is just as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    });
}

/// Where a client goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientKind {
    /// To this machine without TLS.
    Plain,
    /// To this machine.
    Local,
    /// Anywhere without TLS, through the system's proxy if there is one.
    RemotePlain,
    /// Anywhere, through the system's proxy if there is one.
    Remote,
}

/// The client for `url`, made at its first use: loading the system's certificates takes milliseconds, which no call to
/// a server of this machine without TLS waits for.
pub(crate) fn client_for(url: &Url) -> Result<&'static Client, String> {
    static PLAIN: OnceLock<Result<Client, String>> = OnceLock::new();
    static LOCAL: OnceLock<Result<Client, String>> = OnceLock::new();
    static REMOTE_PLAIN: OnceLock<Result<Client, String>> = OnceLock::new();
    static REMOTE: OnceLock<Result<Client, String>> = OnceLock::new();
    let kind = route_to(url);
    let client = match kind {
        ClientKind::Plain => &PLAIN,
        ClientKind::Local => &LOCAL,
        ClientKind::RemotePlain => &REMOTE_PLAIN,
        ClientKind::Remote => &REMOTE,
    };
    client.get_or_init(|| build(kind)).as_ref().map_err(Clone::clone)
}

/// A client for the server that listens at the Unix socket `path`.
pub(super) fn client_at(path: &Path) -> Result<Client, String> {
    #[cfg(unix)]
    return built(builder(ClientKind::Plain).unix_socket(path));
    #[cfg(not(unix))]
    return Err(format!("the socket {} cannot be used: this system has no Unix sockets", path.display()));
}

fn build(kind: ClientKind) -> Result<Client, String> {
    let client = built(builder(kind));
    // Only a proxy could need certificates. A system without any, such as a minimal container, reaches other servers all the same.
    if kind == ClientKind::RemotePlain { client.or_else(|_| built(trusting_none(builder(kind)))) } else { client }
}

fn built(builder: ClientBuilder) -> Result<Client, String> {
    builder.build().map_err(|error| {
        let mut text = format!("the HTTP client cannot be made: {error}");
        let mut cause = error.source();
        while let Some(found) = cause {
            text = format!("{text}: {found}");
            cause = found.source();
        }
        if text.contains("No CA certificates") { text + NO_CERTIFICATES } else { text }
    })
}

/// What helps a system that trusts no one, such as a minimal container.
const NO_CERTIFICATES: &str =
    "; install the package `ca-certificates`, or name a file of certificates in `SSL_CERT_FILE`";

/// Should a call ask for TLS all the same, it is refused.
fn trusting_none(builder: ClientBuilder) -> ClientBuilder {
    builder.tls_certs_only([])
}

fn builder(kind: ClientKind) -> ClientBuilder {
    init_tls();
    let mut builder = Client::builder()
        .user_agent(concat!("etude/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect would carry keys in headers to wherever it points.
        .redirect(redirect::Policy::none())
        .referer(false);
    if matches!(kind, ClientKind::Plain | ClientKind::Local) {
        // Servers on this machine are never behind a proxy.
        builder = builder.no_proxy();
    }
    if kind == ClientKind::Plain { trusting_none(builder) } else { builder }
}

fn route_to(url: &Url) -> ClientKind {
    match (is_loopback(url), url.scheme()) {
        (true, "http") => ClientKind::Plain,
        (true, _) => ClientKind::Local,
        (false, "http") => ClientKind::RemotePlain,
        (false, _) => ClientKind::Remote,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server without TLS on this machine is asked without certificates, and no one else is.
    #[test]
    fn certificates_are_left_out_for_this_machine_alone() {
        for (url, kind) in [
            ("http://127.0.0.1:8000/v1", ClientKind::Plain),
            ("https://localhost:8443/v1", ClientKind::Local),
            ("http://10.0.0.1/", ClientKind::RemotePlain),
            ("https://example.com/", ClientKind::Remote),
        ] {
            assert_eq!(route_to(&Url::parse(url).expect("a URL")), kind, "{url}");
        }
        build(ClientKind::Plain).expect("a client without certificates");
    }

    /// cli: a system without certificates reaches servers without TLS; for others, the way out is named. The variable that makes
    /// this such a system holds for a whole process, so the test runs in one of its own.
    #[cfg(target_os = "linux")]
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test starts itself")]
    fn a_system_without_certificates_reaches_servers_without_tls() {
        const NONE: (&str, &str) = ("SSL_CERT_FILE", "/dev/null");
        if std::env::var_os(NONE.0).is_some_and(|file| file == NONE.1) {
            build(ClientKind::RemotePlain).expect("a client without certificates");
            let why = build(ClientKind::Remote).expect_err("no one is trusted");
            assert!(why.contains("No CA certificates were loaded from the system; install the package"), "{why}");
            return;
        }
        let name = "transport::client::tests::a_system_without_certificates_reaches_servers_without_tls";
        let own = std::env::current_exe().expect("the test itself");
        let command = std::process::Command::new(own)
            .args(["--exact", name])
            .env(NONE.0, NONE.1)
            .env_remove("SSL_CERT_DIR")
            .output();
        let done = command.expect("the test starts");
        let shown = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && shown.contains("1 passed"), "{shown}");
    }

    #[test]
    fn loopback_is_known_by_name_and_by_either_address() {
        for (url, local) in [
            ("http://localhost:8000/v1", true),
            ("http://127.0.0.9/v1", true),
            ("http://[::1]:80/", true),
            ("https://localhost.example/", false),
            ("http://10.0.0.1/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).expect("a URL")), local, "{url}");
        }
    }
}

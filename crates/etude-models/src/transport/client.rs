//! The HTTP clients of the process.

use std::sync::{Once, OnceLock};
use std::time::Duration;

use reqwest::{Client, Url, redirect};

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

/// The client for `url`, made at its first use: loading the system's certificates takes milliseconds. Servers on this
/// machine are never behind a proxy.
pub(crate) fn client_for(url: &Url) -> Result<&'static Client, String> {
    static REMOTE: OnceLock<Result<Client, String>> = OnceLock::new();
    static LOCAL: OnceLock<Result<Client, String>> = OnceLock::new();
    let local = is_loopback(url);
    let client = if local { &LOCAL } else { &REMOTE };
    client.get_or_init(|| build(local)).as_ref().map_err(Clone::clone)
}

fn build(local: bool) -> Result<Client, String> {
    init_tls();
    let builder = Client::builder()
        .user_agent(concat!("etude/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect would carry keys in headers to wherever it points.
        .redirect(redirect::Policy::none())
        .referer(false);
    let builder = if local { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| format!("the HTTP client cannot be made: {error}"))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! The HTTP clients of the process.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use etude_core::service_url::is_loopback;
use reqwest::{Client, Url};

/// Time limit for a connection. The whole attempt has its own, longer limit.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The client for `url`, shared by all URLs with the same needs, and built at its first use. Proxies depend on the host, so they
/// are checked each time.
pub(crate) fn client_for(url: &Url) -> Result<&'static Client, String> {
    etude_http::environment::check(url)?;
    static CLIENTS: [[OnceLock<Result<Client, String>>; 2]; 2] = [const { [const { OnceLock::new() }; 2] }; 2];
    let place = &CLIENTS[usize::from(is_loopback(url))][usize::from(url.scheme() == "http")];
    place
        .get_or_init(|| etude_http::client(url, |client| client.connect_timeout(CONNECT_TIMEOUT)))
        .as_ref()
        .map_err(Clone::clone)
}

/// A client for the server that listens at the Unix socket `path`.
pub(super) fn client_at(path: &Path) -> Result<Client, String> {
    let here = Url::parse("http://localhost").map_err(|error| error.to_string())?;
    etude_http::client(&here, |client| {
        client.connect_timeout(CONNECT_TIMEOUT).unix_socket(etude_files::socket::short(path))
    })
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

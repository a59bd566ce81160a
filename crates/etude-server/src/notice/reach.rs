//! Delivery of a notice to its receiver: the check of its addresses, and one request to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::{Client, Url};

/// Time limit of one attempt.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A notice on its way.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    pub(super) url: String,
    pub(super) allows_private: bool,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

/// Outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Outcome {
    pub(super) status: Option<u16>,
    pub(super) error: Option<&'static str>,
    /// True if another attempt would end the same way.
    pub(super) is_final: bool,
}

impl Outcome {
    fn failed(error: &'static str) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    fn refused(error: &'static str) -> Self {
        Self { is_final: true, ..Self::failed(error) }
    }

    pub(super) fn is_delivered(&self) -> bool {
        self.error.is_none() && self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// Sends a notice once. The host name is resolved once, and the connection goes to an address that was checked.
pub(super) async fn send(parcel: &Parcel) -> Outcome {
    let Ok(url) = Url::parse(&parcel.url) else { return Outcome::refused("url") };
    match tokio::time::timeout(TIMEOUT, addresses(&url)).await {
        Err(_) => Outcome::failed("timeout"),
        Ok(addresses) if addresses.is_empty() => Outcome::failed("unknown_host"),
        Ok(addresses) => match refusal(&url, &addresses, parcel.allows_private) {
            Some(error) => Outcome::refused(error),
            None => request(&url, &addresses, parcel).await,
        },
    }
}

async fn addresses(url: &Url) -> Vec<SocketAddr> {
    let port = url.port_or_known_default().unwrap_or(443);
    match url.host() {
        Some(url::Host::Ipv4(address)) => vec![SocketAddr::new(address.into(), port)],
        Some(url::Host::Ipv6(address)) => vec![SocketAddr::new(address.into(), port)],
        Some(url::Host::Domain(name)) => {
            tokio::net::lookup_host((name, port)).await.map(Iterator::collect).unwrap_or_default()
        }
        None => Vec::new(),
    }
}

/// The reason why these addresses are refused; `None` if they are allowed.
fn refusal(url: &Url, addresses: &[SocketAddr], allows_private: bool) -> Option<&'static str> {
    let is_any_public = addresses.iter().any(|address| is_public(address.ip()));
    let is_any_private = addresses.iter().any(|address| !is_public(address.ip()));
    match url.scheme() {
        _ if is_any_private && !allows_private => Some("private_address"),
        "https" => None,
        "http" if !is_any_public => None,
        _ => Some("not_https"),
    }
}

async fn request(url: &Url, addresses: &[SocketAddr], parcel: &Parcel) -> Outcome {
    let Ok(client) = client(url, addresses) else { return Outcome::failed("tls") };
    let mut request = client.post(url.clone()).body(parcel.body.clone());
    for (name, value) in &parcel.headers {
        request = request.header(*name, value);
    }
    match request.send().await {
        Ok(response) => {
            let status = response.status();
            let error = match status {
                status if status.is_success() => None,
                status if status.is_redirection() => Some("redirect"),
                _ => Some("status"),
            };
            Outcome { status: Some(status.as_u16()), error, is_final: false }
        }
        Err(error) if error.is_timeout() => Outcome::failed("timeout"),
        Err(error) if error.is_connect() => Outcome::failed("connection"),
        Err(_) => Outcome::failed("response"),
    }
}

/// A client for one attempt: the host name resolves to these addresses, no proxy resolves it again, and no redirect is followed.
fn client(url: &Url, addresses: &[SocketAddr]) -> Result<Client, String> {
    let host = url.host_str().unwrap_or_default();
    etude_http::client(url, |client| client.no_proxy().timeout(TIMEOUT).resolve_to_addrs(host, addresses))
}

/// True for an address of the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        // Addresses of carriers (RFC 6598), of protocols (RFC 6890), and of benchmarks (RFC 2544).
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (18..20).contains(&b));
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // IPv4 in IPv6: mapped, translated (RFC 6052), and 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            embedded(high, low)
        }
        // Documentation, and tunnels that hide their address.
        [0x2001, 0x0db8 | 0, ..] => false,
        // Only 2000::/3 is allocated.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// S-124: every form of a private, loopback or link-local address is refused.
    #[test]
    fn private_addresses_are_no_public_ones() {
        for text in [
            "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.0.1", "169.254.169.254", "172.16.0.1",
            "192.168.1.1", "192.0.0.8", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1",
            "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "2001::1",
            "2001:db8::1", "fc00::1", "fd12::1", "fe80::1", "fec0::1", "ff02::1", "64:ff9b:1::1",
        ] {
            assert!(!is_public(text.parse().expect("an address")), "{text}");
        }
        for text in ["1.1.1.1", "100.128.0.1", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "::ffff:1.1.1.1"] {
            assert!(is_public(text.parse().expect("an address")), "{text}");
        }
    }

    /// S-124: other spellings of an address are recognized.
    #[test]
    fn spellings_of_addresses_are_seen_through() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for host in ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::ffff:7f00:1]", "localhost", "127.0.0.1."] {
            let url = Url::parse(&format!("https://{host}:1/")).expect("a URL");
            let found = runtime.block_on(addresses(&url));
            assert_eq!(refusal(&url, &found, false), Some("private_address"), "{host}: {found:?}");
        }
    }

    #[test]
    fn plain_http_goes_to_private_addresses_only() {
        let (private, public) = (SocketAddr::from(([10, 0, 0, 1], 80)), SocketAddr::from(([1, 1, 1, 1], 80)));
        let (plain, secure) = (Url::parse("http://a.example/"), Url::parse("https://a.example/"));
        let (plain, secure) = (plain.expect("a URL"), secure.expect("a URL"));
        assert_eq!(refusal(&plain, &[private], true), None);
        assert_eq!(refusal(&plain, &[public], true), Some("not_https"));
        assert_eq!(refusal(&plain, &[private, public], true), Some("not_https"));
        assert_eq!(refusal(&secure, &[public], false), None);
        // One private address among public ones is enough for a refusal.
        assert_eq!(refusal(&secure, &[public, private], false), Some("private_address"));
    }

    /// S-124: the connection goes to the address that was checked; the name is not resolved again.
    #[test]
    fn the_name_is_resolved_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let receiver = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut bytes = [0; 1024];
            let length = stream.read(&mut bytes).expect("a request");
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("a response");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        });
        // RFC 6761: no resolver knows a name below `invalid`.
        let url = Url::parse(&format!("http://receiver.invalid:{}/x", address.port())).expect("a URL");
        let body = String::new();
        let parcel = Parcel { url: url.to_string(), allows_private: true, headers: Vec::new(), body };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let outcome = runtime.block_on(request(&url, &[address], &parcel));
        assert!(outcome.is_delivered(), "{outcome:?}");
        assert!(receiver.join().expect("no panic").contains("receiver.invalid"));
        // A resolver may take long to report an unknown name.
        let error = runtime.block_on(send(&parcel)).error;
        assert!(matches!(error, Some("unknown_host" | "timeout")), "{error:?}");
    }
}

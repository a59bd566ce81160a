//! Addresses and the socket on which the server listens.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use etude_files::private;
use tokio::net::TcpListener;

#[path = "listen/unix.rs"]
pub(crate) mod socket;

mod tls;

pub use socket::inherited;
pub(crate) use tls::Renewal;
pub use tls::Tls;

/// The default port, without `--port`.
pub const PORT: u16 = 3883;

/// Maximum number of free ports that are tried. A port that is free on IPv4 may be taken on IPv6.
const ATTEMPTS: usize = 20;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A client on the network, loopback included.
    Tcp(SocketAddr),
    /// A client behind a proxy, which reports this address.
    Forwarded(IpAddr),
    /// A client of the socket in the state directory.
    Socket,
}

impl Peer {
    /// The address without its port.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Tcp(address) => address.ip().to_string(),
            Self::Forwarded(address) => address.to_string(),
            Self::Socket => "socket".to_owned(),
        }
    }

    /// The address without its port; `None` if it is that of a proxy, shared by all its clients.
    pub(crate) fn own_address(&self, is_behind_proxy: bool) -> Option<String> {
        let is_of_all = is_behind_proxy && matches!(self, Self::Tcp(_));
        (!is_of_all).then(|| self.address())
    }
}

/// The requested addresses.
#[derive(Debug)]
pub enum Wanted {
    /// Both loopback addresses with this port; 0 selects a free one.
    Loopback(u16),
    /// Exactly these places.
    Places(Vec<ListenAddress>),
}

/// One of the requested addresses.
#[derive(Debug)]
pub enum ListenAddress {
    /// An address that this process binds.
    Address(SocketAddr),
    /// A listening socket that was handed over by the process that started this one.
    Bound(std::net::TcpListener, SocketAddr),
}

impl ListenAddress {
    /// The IP address and port; the port may be 0 before the address is bound.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Address(address) | Self::Bound(_, address) => *address,
        }
    }
}

/// The addresses on which a server accepts connections.
#[derive(Debug, Clone, Default)]
pub struct Addresses {
    /// The network addresses.
    pub tcp: Vec<SocketAddr>,
    /// The path of the Unix socket in the state directory.
    pub socket: PathBuf,
    /// True if connections are encrypted.
    pub is_tls: bool,
}

impl Addresses {
    /// The addresses as URLs without a trailing slash.
    pub fn urls(&self) -> Vec<String> {
        let scheme = if self.is_tls { "https" } else { "http" };
        self.tcp.iter().map(|address| format!("{scheme}://{address}")).collect()
    }

    /// The origin of the server in links. Behind a proxy, which has the certificate and the port, or on another interface, it is
    /// that of the first name; otherwise that of the first address. `None` if the server has only its socket.
    pub(crate) fn origin(&self, names: &[String], is_behind_proxy: bool) -> Option<String> {
        let first = || self.urls().into_iter().next();
        let Some(name) = names.first() else { return first() };
        if is_behind_proxy {
            return Some(format!("https://{name}"));
        }
        // A name of this machine need not resolve to its loopback addresses.
        let Some(outer) = self.tcp.iter().find(|address| !address.ip().is_loopback()) else { return first() };
        Some(match (self.is_tls, outer.port()) {
            (true, 443) => format!("https://{name}"),
            (true, port) => format!("https://{name}:{port}"),
            (false, port) => format!("http://{name}:{port}"),
        })
    }
}

/// Bound addresses that accept no connection yet.
#[derive(Debug)]
pub struct Listening {
    pub(crate) tcp: Vec<TcpListener>,
    pub(crate) socket: socket::Listener,
    pub(crate) tls: Option<Tls>,
    addresses: Addresses,
}

/// Failure to bind an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct Error {
    /// The address that cannot be bound, or the path of the socket.
    pub address: String,
    /// The error of the system, such as `address in use`.
    #[source]
    pub source: io::Error,
}

impl Listening {
    /// Binds the addresses and the socket in `dir`, for the process `pid`.
    ///
    /// # Errors
    /// An address is in use or cannot be bound.
    pub async fn bind(wanted: Wanted, dir: &Path, pid: u32) -> Result<Self, Error> {
        let tcp = match wanted {
            Wanted::Loopback(port) => loopback(port).await?,
            Wanted::Places(places) => {
                let mut bound = Vec::new();
                for place in places {
                    bound.push(match place {
                        ListenAddress::Address(address) => bind(address).await?,
                        ListenAddress::Bound(listener, address) => TcpListener::from_std(listener)
                            .map_err(|source| Error { address: address.to_string(), source })?,
                    });
                }
                bound
            }
        };
        let path = dir.join(format!("{pid}.sock"));
        let failed = |source| Error { address: path.display().to_string(), source };
        private::create_dir_all(dir).map_err(failed)?;
        let socket = socket::Listener::bind(&path).map_err(failed)?;
        let local = tcp.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let addresses = Addresses { tcp: local, socket: path.clone(), is_tls: false };
        Ok(Self { tcp, socket, tls: None, addresses })
    }

    /// Encrypts the connections on the network addresses.
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self.addresses.is_tls = true;
        self
    }

    /// The addresses with the ports that were bound.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error { address: address.to_string(), source })
}

/// Both loopback addresses with one port; IPv4 alone on a host without IPv6.
async fn loopback(port: u16) -> Result<Vec<TcpListener>, Error> {
    let address = |ip: IpAddr, port| SocketAddr::new(ip, port);
    let (v4, v6) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
    for attempt in 1.. {
        let first = bind(address(v4, port)).await?;
        let bound = first.local_addr().map_or(port, |address| address.port());
        match bind(address(v6, bound)).await {
            Ok(second) => return Ok(vec![first, second]),
            // Any error besides a port in use means that there is no IPv6.
            Err(error) if error.source.kind() != io::ErrorKind::AddrInUse => return Ok(vec![first]),
            Err(error) if port != 0 || attempt == ATTEMPTS => return Err(error),
            Err(_) => {}
        }
    }
    unreachable!("the loop returns")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sections 3 and 9: links lead to the address at which people reach the server: that of the proxy in front of it, if there
    /// is one.
    #[test]
    fn links_lead_to_where_people_reach_the_server() {
        let origin = |tcp: &[&str], is_tls, names: &[&str], is_behind_proxy| {
            let tcp = tcp.iter().map(|address| address.parse().expect("an address")).collect();
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let addresses = Addresses { tcp, socket: PathBuf::new(), is_tls };
            addresses.origin(&names, is_behind_proxy).unwrap_or_default()
        };
        let own = ["127.0.0.1:3883", "[::1]:3883"];
        let outer = ["127.0.0.1:3883", "0.0.0.0:443"];
        assert_eq!(origin(&own, false, &[], false), "http://127.0.0.1:3883");
        assert_eq!(origin(&own, false, &["etude.example"], true), "https://etude.example");
        assert_eq!(origin(&outer, true, &["etude.example", "other"], false), "https://etude.example");
        assert_eq!(origin(&["0.0.0.0:3883"], true, &["etude.example"], false), "https://etude.example:3883");
        // A name of this machine need not resolve to its loopback addresses, and without a name the proxy's is unknown.
        assert_eq!(origin(&own, false, &["etude.example"], false), "http://127.0.0.1:3883");
        assert_eq!(origin(&own, false, &[], true), "http://127.0.0.1:3883");
        assert_eq!(origin(&[], false, &[], false), "");
    }
}

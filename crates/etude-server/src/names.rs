//! The names of a server: allowed values of the headers `Host` and `Origin`.

use std::net::SocketAddr;

/// The authorities under which a server is reached.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Names with their port, in lower case.
    exact: Vec<String>,
    addresses: Vec<SocketAddr>,
    /// Names that pass with any port, because the port is that of a proxy.
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

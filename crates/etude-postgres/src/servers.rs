//! The servers in a URL, as libpq reads them.

use std::path::Path;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;

use crate::address::{AddressError, DEFAULT_PORT};

/// Directories of sockets, as in Debian's packages and in PostgreSQL itself, for a URL without a host.
const SOCKET_DIRS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Hosts and ports: each is a list with `,`, or `None` if the URL has none.
#[derive(Default)]
pub(crate) struct Servers {
    hosts: Option<String>,
    ports: Option<String>,
}

impl Servers {
    /// Takes the servers out of the part of a URL before its parameters,
    /// `SCHEME://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE`. Returns the rest as well.
    ///
    /// # Errors
    /// A bracket is not closed, or is followed by something other than a port.
    pub(crate) fn take(base: &str) -> Result<(Self, String), AddressError> {
        let start = base.find("://").map_or(0, |at| at + 3);
        let start = base[start..].find('@').map_or(start, |at| start + at + 1);
        let end = base[start..].find('/').map_or(base.len(), |at| start + at);
        let pairs = base[start..end].split(',').map(host_and_port).collect::<Option<Vec<_>>>();
        let pairs = pairs.ok_or_else(|| AddressError::Syntax(format!("`{}` is not a host", &base[start..end])))?;
        let (hosts, ports): (Vec<&str>, Vec<&str>) = pairs.into_iter().unzip();
        let mut servers = Self::default();
        // Two hosts without a port give `,`: the list of ports exists then.
        let lists = [("host", hosts.join(",")), ("port", ports.join(","))];
        for (name, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
            servers.takes(name, list);
        }
        Ok((servers, format!("{}{}", &base[..start], &base[end..])))
    }

    /// Takes a parameter if it is `host` or `port`. It replaces the servers before the database's name.
    pub(crate) fn takes(&mut self, name: &str, value: &str) -> bool {
        let list = match name {
            "host" => &mut self.hosts,
            "port" => &mut self.ports,
            _ => return false,
        };
        *list = Some(percent_decode_str(value).decode_utf8_lossy().into_owned());
        true
    }

    /// Sets the servers. `PGHOST` and `PGPORT` are for URLs that name no host and no port.
    ///
    /// # Errors
    /// A port is not a number, or the number of ports or addresses differs from the number of hosts.
    pub(crate) fn set(
        self,
        config: &mut Config,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), AddressError> {
        let addresses = config.get_hostaddrs().to_vec();
        let hosts = match self.hosts {
            // Certificates can be for addresses, too.
            None if !addresses.is_empty() => addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            None => variable("PGHOST").unwrap_or_default(),
            Some(hosts) => hosts,
        };
        for host in hosts.split(',') {
            config.host(if host.is_empty() { socket_dir() } else { host });
        }
        for port in self.ports.or_else(|| variable("PGPORT")).iter().flat_map(|ports| ports.split(',')) {
            let number = if port.is_empty() { Ok(DEFAULT_PORT) } else { port.trim().parse() };
            config.port(number.map_err(|_| AddressError::Syntax(format!("`{port}` is not a port")))?);
        }
        let (hosts, ports) = (config.get_hosts().len(), config.get_ports().len());
        if ports > 1 && ports != hosts {
            return Err(AddressError::Syntax(format!("there are {hosts} hosts and {ports} ports")));
        }
        if !addresses.is_empty() && addresses.len() != hosts {
            return Err(AddressError::Syntax(format!("there are {hosts} hosts and {} addresses", addresses.len())));
        }
        Ok(())
    }
}

fn socket_dir() -> &'static str {
    SOCKET_DIRS.iter().find(|dir| Path::new(dir).is_dir()).unwrap_or(&SOCKET_DIRS[0])
}

/// The parts of `HOST:PORT` and of `[ADDRESS]:PORT`; a missing port is empty.
fn host_and_port(text: &str) -> Option<(&str, &str)> {
    let Some(rest) = text.strip_prefix('[') else { return Some(text.split_once(':').unwrap_or((text, ""))) };
    match rest.split_once(']')? {
        (host, "") => Some((host, "")),
        (host, port) => Some((host, port.strip_prefix(':')?)),
    }
}

#[cfg(test)]
mod tests {
    use crate::address::Address;

    /// The hosts with their ports, or the error.
    fn servers(url: &str) -> String {
        let variable = |name: &str| {
            let variables = [("PGHOST", "elsewhere,/run"), ("PGPORT", "7")];
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        match Address::parse_with(&format!("{url}sslmode=disable"), &variable) {
            Ok(address) => address.to_string().trim_start_matches("postgres://").trim_end_matches("/x").to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// docs/cluster.md: each row is the server that psql of PostgreSQL 15 connects to.
    #[test]
    fn servers_are_those_of_libpq() {
        for (url, expected) in [
            ("postgres:///x?", "elsewhere:7,/run:7"),
            ("postgres://a/x?", "a:7"),
            ("postgres://a:1/x?", "a:1"),
            ("postgres://:9/x?", "elsewhere:9,/run:9"),
            ("postgres://a,b/x?", "a,b"),
            ("postgres://a:1,b/x?", "a:1,b"),
            ("postgres:///x?host=a,b&", "a:7,b:7"),
            ("postgres://a/x?port=1&", "a:1"),
            ("postgres://a:1/x?host=/d,%2Fe&", "/d:1,/e:1"),
            ("postgres://a:1/x?host=b,c&port=2,3&", "b:2,c:3"),
            ("postgres://%2Fd,[::1]:2/x?", "/d,[::1]:2"),
            ("postgres://c@a/x?host=b,c&port=1,&", "b:1,c"),
            ("postgres:///x?hostaddr=10.0.0.1,10.0.0.2&", "10.0.0.1:7,10.0.0.2:7"),
            ("postgres://a/x?port=1,2&", "the engine's URL cannot be read: there are 1 hosts and 2 ports"),
            ("postgres://a,b/x?hostaddr=::1&", "the engine's URL cannot be read: there are 2 hosts and 1 addresses"),
            ("postgres://a:b/x?", "the engine's URL cannot be read: `b` is not a port"),
            ("postgres://[::1/x?", "the engine's URL cannot be read: `[::1` is not a host"),
        ] {
            assert_eq!(servers(url), expected, "{url}");
        }
        let socket = servers("postgres://,a:3/x?");
        assert!(socket.starts_with('/') && socket.ends_with(",a:3"), "{socket}");
    }
}

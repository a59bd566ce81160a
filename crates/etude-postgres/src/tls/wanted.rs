//! Encryption parameters of a URL, as libpq reads them.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;

use crate::address::{AddressError, is_socket, remote_of};

etude_core::words! {
    /// Protection of a connection, in libpq's words.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Mode {
        /// No encryption.
        Disable = "disable",
        /// Encryption if the server insists.
        Allow = "allow",
        /// Encryption if the server supports it.
        Prefer = "prefer",
        /// Encryption, with any certificate.
        Require = "require",
        /// Encryption, with a certificate from a trusted authority.
        VerifyCa = "verify-ca",
        /// Like `verify-ca`, with a certificate for the name in the URL.
        VerifyFull = "verify-full",
    }
}

/// Authorities that are trusted to sign certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Roots {
    /// The authorities that this system trusts.
    System,
    /// The authorities in a file.
    File(PathBuf),
}

/// Protection that an address requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) mode: Mode,
    /// Trusted authorities; `None` if none are named.
    pub(crate) roots: Option<Roots>,
    /// Paths of the client's certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl Wanted {
    /// The effective mode: as with libpq, a named file of authorities implies their check.
    pub(crate) fn mode(&self) -> Mode {
        match (self.mode, &self.roots) {
            (Mode::Require, Some(_)) => Mode::VerifyCa,
            (mode, _) => mode,
        }
    }
}

/// Encryption parameters as text, before they are checked.
#[derive(Default)]
pub(crate) struct Protection {
    mode: Option<String>,
    roots: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl Protection {
    /// Reads the variables.
    pub(crate) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            mode: variable("PGSSLMODE"),
            roots: variable("PGSSLROOTCERT"),
            certificate: variable("PGSSLCERT"),
            key: variable("PGSSLKEY"),
        }
    }

    /// Takes a parameter of a URL, if it is an encryption parameter.
    pub(crate) fn takes(&mut self, name: &str, value: &str) -> bool {
        let field = match name {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.roots,
            "sslcert" => &mut self.certificate,
            "sslkey" => &mut self.key,
            _ => return false,
        };
        *field = Some(percent_decode_str(value).decode_utf8_lossy().into_owned()).filter(|value| !value.is_empty());
        true
    }

    /// Protection of the connections to these hosts.
    pub(crate) fn of_hosts(self, config: &Config) -> Result<Wanted, AddressError> {
        let roots = self.roots.map(|roots| match roots.as_str() {
            "system" => Roots::System,
            _ => Roots::File(PathBuf::from(roots)),
        });
        let said = match self.mode {
            Some(word) => Some(Mode::from_word(&word).ok_or(AddressError::Mode(word))?),
            None => None,
        };
        let mode = match said {
            // PostgreSQL does not encrypt sockets.
            _ if config.get_hosts().iter().all(is_socket) && config.get_hostaddrs().is_empty() => Mode::Disable,
            Some(mode) if roots == Some(Roots::System) && mode != Mode::VerifyFull && mode != Mode::Disable => {
                return Err(AddressError::WeakMode(mode.word()));
            }
            Some(mode) => mode,
            None if roots == Some(Roots::System) || remote_of(config).is_some() => Mode::VerifyFull,
            None => Mode::Prefer,
        };
        let identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(AddressError::Identity),
        };
        Ok(Wanted { mode, roots, identity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;

    fn refusal(url: &str) -> AddressError {
        Address::parse(url).expect_err(url)
    }

    /// K-58: except on loopback and sockets, the default is to encrypt and to check the certificate and its name.
    #[test]
    fn a_server_elsewhere_must_prove_who_it_is() {
        let mode = |url: &str| Address::parse(url).expect(url).tls().mode();
        for url in [
            "postgres://db.example.com/x",
            "postgres://127.0.0.1,10.0.0.1/x",
            "postgres:///x?hostaddr=10.0.0.1",
            "postgres://localhost/x?hostaddr=10.0.0.1",
            "postgres://db.example.com/x?sslmode=",
            "postgres://localhost/x?sslrootcert=system",
        ] {
            assert_eq!(mode(url), Mode::VerifyFull, "{url}");
        }
        for url in ["postgres://localhost/x", "postgresql://127.0.0.1:5433/x", "postgres://[::1]/x"] {
            assert_eq!(mode(url), Mode::Prefer, "{url}");
        }
        for url in
            ["postgres:///x", "postgres:///x?host=/run/postgresql", "postgres:///x?host=/run&sslmode=verify-full"]
        {
            assert_eq!(mode(url), Mode::Disable, "{url}");
        }
        for one in Mode::ALL {
            assert_eq!(mode(&format!("postgres://db.example.com/x?sslmode={}", one.word())), one);
        }
        // As with libpq, named authorities imply their check.
        assert_eq!(mode("postgres://db/x?sslmode=require&sslrootcert=/a%2Fb.crt"), Mode::VerifyCa);
    }

    /// K-58: the other parameters of encryption are read as libpq reads them.
    #[test]
    fn certificates_come_from_the_url_or_from_variables() {
        let variable = |name: &str| {
            let value = match name {
                "PGSSLMODE" => "verify-ca",
                "PGSSLROOTCERT" => "/env/root.crt",
                "PGSSLCERT" => "/env/client.crt",
                "PGSSLKEY" => "/env/client.key",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let of = |url: &str| Address::parse_with(url, &variable).expect(url).tls().clone();
        let identity = Some(("/env/client.crt".into(), "/env/client.key".into()));
        let roots = |path: &str| Some(Roots::File(path.into()));
        assert_eq!(of("postgres://db/x"), Wanted { mode: Mode::VerifyCa, roots: roots("/env/root.crt"), identity });
        let own = of("postgres://db/x?sslmode=verify-full&sslrootcert=/a%20b&sslcert=/c&sslkey=/k");
        let identity = Some(("/c".into(), "/k".into()));
        assert_eq!(own, Wanted { mode: Mode::VerifyFull, roots: roots("/a b"), identity });
        assert_eq!(refusal("postgres://db/x?sslmode=full"), AddressError::Mode("full".to_owned()));
        assert_eq!(refusal("postgres://db/x?sslmode=require&sslrootcert=system"), AddressError::WeakMode("require"));
        assert_eq!(refusal("postgres://db/x?sslcert=/c"), AddressError::Identity);
    }
}

//! Encrypted connections (K-58): the protection that a URL requires, for the client library.

use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use etude_runtime::engine::Boxed;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;

use crate::error::is_of_encryption;
use crate::link::lock;

mod binding;
mod verify;
mod wanted;

pub(crate) use wanted::{Mode, Protection, Roots, Wanted};

/// Application protocol that servers since PostgreSQL 17 require.
const PROTOCOL: &[u8] = b"postgresql";

/// Opens connections with the protection that an address requires.
#[derive(Debug)]
pub(crate) struct Tls {
    mode: Mode,
    config: Option<Arc<ClientConfig>>,
}

/// A client, its connection, and the version of TLS, if it is encrypted.
pub(crate) type Opened = (tokio_postgres::Client, tokio_postgres::Connection<Socket, Stream>, Option<&'static str>);

impl Tls {
    /// Reads the certificates of an address.
    ///
    /// # Errors
    /// The reason why they cannot be used.
    pub(crate) fn new(wanted: &Wanted) -> Result<Self, String> {
        let mode = wanted.mode();
        let config = match mode {
            Mode::Disable => None,
            _ => Some(Arc::new(config_of(wanted)?)),
        };
        Ok(Self { mode, config })
    }

    /// Connects. Returns the version of TLS as well, if there is one.
    pub(crate) async fn connect(&self, config: &tokio_postgres::Config) -> Result<Opened, tokio_postgres::Error> {
        let (first, second) = match self.mode {
            Mode::Disable => (SslMode::Disable, None),
            Mode::Allow => (SslMode::Disable, Some(SslMode::Require)),
            Mode::Prefer => (SslMode::Prefer, Some(SslMode::Disable)),
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => (SslMode::Require, None),
        };
        match (self.connect_with(config, first).await, second) {
            (Err(cause), Some(second)) if may_differ(&cause) => self.connect_with(config, second).await,
            (result, _) => result,
        }
    }

    async fn connect_with(
        &self,
        config: &tokio_postgres::Config,
        mode: SslMode,
    ) -> Result<Opened, tokio_postgres::Error> {
        let mut config = config.clone();
        config.ssl_mode(mode);
        let maker = Maker { config: self.config.clone(), version: Arc::default() };
        let version = Arc::clone(&maker.version);
        let (client, connection) = config.connect(maker).await?;
        let version = *lock(&version);
        Ok((client, connection, version))
    }
}

/// True if the server may answer differently with the other choice of encryption.
fn may_differ(cause: &tokio_postgres::Error) -> bool {
    use tokio_postgres::error::SqlState;
    cause.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION) || is_of_encryption(cause)
}

fn config_of(wanted: &Wanted) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS cannot be used: {e}"))?
        .dangerous();
    let builder = match (wanted.mode(), &wanted.roots) {
        (Mode::VerifyFull, None | Some(Roots::System)) => {
            let verifier = rustls_platform_verifier::Verifier::new(provider)
                .map_err(|e| format!("the authorities that this system trusts cannot be read: {e}"))?;
            builder.with_custom_certificate_verifier(Arc::new(verifier))
        }
        (Mode::VerifyCa | Mode::VerifyFull, Some(Roots::File(path))) => {
            let trusted = Some(trusted(wanted.mode(), path)?);
            builder.with_custom_certificate_verifier(Arc::new(verify::Verifier { trusted, provider }))
        }
        (Mode::VerifyCa, _) => return Err(NO_ROOTS.to_owned()),
        _ => builder.with_custom_certificate_verifier(Arc::new(verify::Verifier { trusted: None, provider })),
    };
    let mut config = match &wanted.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate, "sslcert")?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, "sslkey", &e))?;
            builder.with_client_auth_cert(chain, key).map_err(|e| format!("`sslcert` cannot be used: {e}"))?
        }
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

/// Error of `verify-ca` without authorities: a public authority signs a certificate for anyone.
const NO_ROOTS: &str =
    "`sslmode=verify-ca` needs the certificates of authorities: name their file with `sslrootcert=FILE`";

fn trusted(mode: Mode, path: &Path) -> Result<verify::Trusted, String> {
    let authorities = certificates(path, "sslrootcert")?;
    let mut roots = RootCertStore::empty();
    for authority in &authorities {
        roots.add(authority.clone()).map_err(|e| unreadable(path, "sslrootcert", &e))?;
    }
    Ok(verify::Trusted { roots, authorities, checks_name: mode == Mode::VerifyFull })
}

fn certificates(path: &Path, parameter: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|e| unreadable(path, parameter, &e))?.collect();
    let all = all.map_err(|e| unreadable(path, parameter, &e))?;
    if all.is_empty() { Err(unreadable(path, parameter, &"it has no certificate")) } else { Ok(all) }
}

fn unreadable(path: &Path, parameter: &str, why: &dyn fmt::Display) -> String {
    format!("`{parameter}`: `{}` cannot be read: {why}", path.display())
}

/// Factory of the connectors of connections.
#[derive(Debug, Clone)]
pub(crate) struct Maker {
    config: Option<Arc<ClientConfig>>,
    version: Arc<Mutex<Option<&'static str>>>,
}

/// Connector of one connection.
pub(crate) struct Connector {
    maker: Maker,
    name: String,
}

impl MakeTlsConnect<Socket> for Maker {
    type Stream = Stream;
    type TlsConnect = Connector;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Connector> {
        Ok(Connector { maker: self.clone(), name: domain.to_owned() })
    }
}

impl TlsConnect<Socket> for Connector {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Boxed<'static, io::Result<Stream>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let Some(config) = self.maker.config else { return Err(io::ErrorKind::Unsupported.into()) };
            let name = ServerName::try_from(self.name).map_err(io::Error::other)?;
            let stream = TlsConnector::from(config).connect(name, socket).await?;
            *lock(&self.maker.version) = match stream.get_ref().1.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => Some("TLS 1.3"),
                Some(ProtocolVersion::TLSv1_2) => Some("TLS 1.2"),
                _ => Some("TLS"),
            };
            Ok(Stream(stream))
        })
    }
}

/// An encrypted stream.
pub(crate) struct Stream(tokio_rustls::client::TlsStream<Socket>);

impl tokio_postgres::tls::TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        let certificate = self.0.get_ref().1.peer_certificates().and_then(<[_]>::first);
        match certificate.and_then(|certificate| binding::end_point(certificate)) {
            Some(digest) => ChannelBinding::tls_server_end_point(digest),
            None => ChannelBinding::none(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

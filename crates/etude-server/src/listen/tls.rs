//! Encrypted connections.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The time in which a handshake must end.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A certificate with its key.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Loads a chain of certificates and the key of the first, in PEM.
    ///
    /// # Errors
    /// A file cannot be read, or the two do not belong together.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, String> {
        let unreadable = |path: &Path, why: &dyn fmt::Display| format!("`{}` cannot be read: {why}", path.display());
        let certs: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_file_iter(cert).map_err(|e| unreadable(cert, &e))?.collect();
        let certs = certs.map_err(|e| unreadable(cert, &e))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, &e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certs, key))
            .map_err(|e| format!("the certificate cannot be used: {e}"))?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        tokio::time::timeout(HANDSHAKE, self.0.accept(stream))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

//! Encrypted connections. A renewed certificate applies from the next connection on.

#[cfg(test)]
mod test_certificate;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The time in which a handshake must end.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Minimum time between two looks at the files.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum wait of a connection for such a look, for example at a file system that does not answer.
const LOOK: Duration = Duration::from_secs(2);

/// A certificate with its key, and the files from which both are read.
#[derive(Clone)]
pub struct Tls(Arc<Files>);

struct Files {
    cert: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    /// The versions of the files at the last reading, usable or not.
    read: [Option<Version>; 2],
    looked: Instant,
}

/// Outcome of a look at files that have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The new certificate is in use.
    Done { file: String },
    /// The files cannot be used, for the reason in `why` (one line).
    Failed { file: String, why: String },
}

/// The version of a file: its modification time and its length.
type Version = (SystemTime, u64);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Loads a chain of certificates and the key of the first, in PEM.
    ///
    /// # Errors
    /// A file cannot be read, or certificate and key do not belong together.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, String> {
        let read = versions(cert, key);
        let current = Current { acceptor: acceptor(cert, key)?, read, looked: Instant::now() };
        Ok(Self(Arc::new(Files { cert: cert.to_owned(), key: key.to_owned(), current: Mutex::new(current) })))
    }

    /// Loads the certificate again if the files have changed. If the new files cannot be used, the previous certificate stays.
    pub(crate) async fn renew(&self) -> Option<Renewal> {
        if !self.is_due(Instant::now()) {
            return None;
        }
        let tls = self.clone();
        let look = tokio::task::spawn_blocking(move || tls.look());
        tokio::time::timeout(LOOK, look).await.ok()?.ok().flatten()
    }

    /// True if this connection must look at the files; no other one does meanwhile.
    fn is_due(&self, now: Instant) -> bool {
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = now.saturating_duration_since(current.looked) >= PAUSE;
        if is_due {
            current.looked = now;
        }
        is_due
    }

    fn look(&self) -> Option<Renewal> {
        let Files { cert, key, current } = &*self.0;
        let found = versions(cert, key);
        if current.lock().unwrap_or_else(PoisonError::into_inner).read == found {
            return None;
        }
        let renewed = acceptor(cert, key);
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        current.read = found;
        Some(match renewed {
            Ok(renewed) => {
                current.acceptor = renewed;
                Renewal::Done { file: cert.display().to_string() }
            }
            Err(why) => Renewal::Failed { file: cert.display().to_string(), why },
        })
    }

    fn acceptor(&self) -> TlsAcceptor {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).acceptor.clone()
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        tokio::time::timeout(HANDSHAKE, self.acceptor().accept(stream))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn versions(cert: &Path, key: &Path) -> [Option<Version>; 2] {
    [cert, key].map(|path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len()))
    })
}

/// The acceptor for a certificate and its key.
fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let unreadable = |path: &Path, why: &dyn fmt::Display| format!("`{}` cannot be read: {why}", path.display());
    let certs: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(cert).map_err(|e| unreadable(cert, &e))?.collect();
    let certs = certs.map_err(|e| unreadable(cert, &e))?;
    if certs.is_empty() {
        return Err(format!("`{}` contains no certificate", cert.display()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, &e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certs, key))
        .map_err(|e| format!("the certificate cannot be used: {e}"))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::test_certificate::{Made, self_signed};
    use super::*;

    /// Section 4: a renewed certificate applies without a restart; one that cannot be used leaves the previous one, and is
    /// reported once.
    #[test]
    fn a_renewed_certificate_is_taken_and_a_broken_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        let mut written = SystemTime::UNIX_EPOCH;
        let mut write = |made: &Made| {
            written += Duration::from_secs(60);
            for (path, text) in [(&cert, &made.cert), (&key, &made.key)] {
                std::fs::write(path, text).expect("written");
                let file = std::fs::File::options().write(true).open(path).expect("a file");
                file.set_modified(written).expect("a time");
            }
        };
        write(&self_signed());
        let tls = Tls::load(&cert, &key).expect("a certificate");
        let config = || Arc::clone(tls.acceptor().config());
        let first = config();
        let look = || tls.look().map(|renewal| matches!(renewal, Renewal::Done { .. }));
        assert_eq!(look(), None);

        write(&Made { key: self_signed().key, ..self_signed() });
        assert_eq!(look(), Some(false));
        assert_eq!(look(), None);
        assert!(Arc::ptr_eq(&config(), &first));
        std::fs::remove_file(&cert).expect("removed");
        assert_eq!(look(), Some(false));
        assert!(Arc::ptr_eq(&config(), &first));

        write(&self_signed());
        assert_eq!(look(), Some(true));
        assert_eq!(look(), None);
        assert!(!Arc::ptr_eq(&config(), &first));
    }

    /// Only one of many concurrent connections looks at the files.
    #[test]
    fn files_are_looked_at_once_in_a_while() {
        let dir = tempfile::tempdir().expect("a directory");
        let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        let made = self_signed();
        std::fs::write(&cert, made.cert).expect("written");
        std::fs::write(&key, made.key).expect("written");
        let tls = Tls::load(&cert, &key).expect("a certificate");
        let later = Instant::now() + PAUSE;
        assert_eq!([tls.is_due(later), tls.is_due(later), tls.is_due(later + PAUSE)], [true, false, true]);
    }
}

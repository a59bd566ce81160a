//! Verification of server certificates.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Error text of the certificate check for a certificate that is its own authority.
const OWN_AUTHORITY: &str = "CaUsedAsEndEntity";

/// Verifies certificates by the rules of a mode. The server must always have the key of its certificate.
#[derive(Debug)]
pub(super) struct Verifier {
    /// Trusted authorities; `None`: `prefer` and `require` encrypt without checking the server's identity.
    pub(super) trusted: Option<Trusted>,
    pub(super) provider: Arc<CryptoProvider>,
}

/// The authorities of a file, and the choice to check the name in the URL.
#[derive(Debug)]
pub(super) struct Trusted {
    pub(super) roots: RootCertStore,
    pub(super) authorities: Vec<CertificateDer<'static>>,
    pub(super) checks_name: bool,
}

impl Trusted {
    /// True if the certificate is its own authority, as on many servers, and is itself in the file. When the check
    /// reports this error, everything else about the certificate has been checked.
    fn is_own_authority(&self, certificate: &CertificateDer<'_>, cause: &Error) -> bool {
        let Error::InvalidCertificate(CertificateError::Other(other)) = cause else { return false };
        other.0.to_string() == OWN_AUTHORITY && self.authorities.iter().any(|one| one.as_ref() == certificate.as_ref())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        match verify_server_cert_signed_by_trust_anchor(&parsed, &trusted.roots, intermediates, now, algorithms) {
            Err(cause) if !trusted.is_own_authority(certificate, &cause) => return Err(cause),
            _ => {}
        }
        if trusted.checks_name {
            verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

//! Which certificates of servers are accepted.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// How the certificate check words that a certificate is its own authority.
const OWN_AUTHORITY: &str = "CaUsedAsEndEntity";

/// Accepts certificates that authorities of a file have signed.
#[derive(Debug)]
pub(super) struct Verified {
    roots: RootCertStore,
    authorities: Vec<CertificateDer<'static>>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl Verified {
    pub(super) fn new(
        roots: RootCertStore,
        authorities: Vec<CertificateDer<'static>>,
        checks_name: bool,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        Self { roots, authorities, checks_name, provider }
    }

    /// Many servers have a certificate that is its own authority. It is trusted if it is itself in the file; all else about it has
    /// been checked when this is refused.
    fn is_own_authority(&self, certificate: &CertificateDer<'_>, cause: &Error) -> bool {
        let Error::InvalidCertificate(CertificateError::Other(other)) = cause else { return false };
        other.0.to_string() == OWN_AUTHORITY && self.authorities.iter().any(|one| one.as_ref() == certificate.as_ref())
    }
}

impl ServerCertVerifier for Verified {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        match verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms) {
            Err(cause) if !self.is_own_authority(certificate, &cause) => return Err(cause),
            _ => {}
        }
        if self.checks_name {
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

/// Accepts every certificate whose key the server has: `prefer` and `require` encrypt, and say nothing of who answers.
#[derive(Debug)]
pub(super) struct Unverified(Verified);

impl Unverified {
    pub(super) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self(Verified::new(RootCertStore::empty(), Vec::new(), false, provider))
    }
}

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

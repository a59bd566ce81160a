//! Channel binding: a password proof that is useless on another connection (RFC 5929, `tls-server-end-point`).

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

/// Signature algorithms as object identifiers, each with its digest; obsolete digests are replaced by SHA-256.
const DIGESTS: [(&[u8], &Algorithm); 9] = [
    // MD5, SHA-1 and SHA-256 with RSA.
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04], &SHA256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05], &SHA256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], &SHA256),
    // SHA-384 and SHA-512 with RSA.
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c], &SHA384),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d], &SHA512),
    // ECDSA with SHA-1, SHA-256, SHA-384 and SHA-512.
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01], &SHA256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02], &SHA256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03], &SHA384),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04], &SHA512),
];

/// ASN.1 tags.
const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// The digest of a certificate. `None` if its signature algorithm names no digest: the password is then proven without
/// a binding.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (content, _) = element(certificate, SEQUENCE)?;
    let (_, after_body) = element(content, SEQUENCE)?;
    let (algorithm, _) = element(after_body, SEQUENCE)?;
    let (name, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    let (_, algorithm) = DIGESTS.iter().find(|(known, _)| *known == name)?;
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

/// The content of the first element, which must have this tag, and the bytes after the element.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (_, rest) = bytes.split_first().filter(|(first, _)| **first == tag)?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (length.iter().try_fold(0usize, |all, byte| all.checked_mul(256)?.checked_add(usize::from(*byte)))?, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that contains only the name of its signature algorithm.
    fn certificate(algorithm: &[u8]) -> Vec<u8> {
        let of = |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).expect("short")], content].concat();
        let algorithm = of(SEQUENCE, &of(OBJECT_IDENTIFIER, algorithm));
        of(SEQUENCE, &[of(SEQUENCE, b""), algorithm].concat())
    }

    #[test]
    fn the_signature_names_the_digest() {
        for (name, algorithm) in DIGESTS {
            let certificate = certificate(name);
            assert_eq!(end_point(&certificate).expect("a digest"), digest(algorithm, &certificate).as_ref());
        }
        let ed25519 = [0x2b, 0x65, 0x70];
        assert_eq!(end_point(&certificate(&ed25519)), None);
    }

    #[test]
    fn damaged_certificates_have_no_digest() {
        let whole = certificate(DIGESTS[0].0);
        for end in 0..whole.len() {
            assert_eq!(end_point(&whole[..end]), None, "{end}");
        }
        assert_eq!(end_point(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}

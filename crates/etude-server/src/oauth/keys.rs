//! The public keys of an issuer: a JSON Web Key Set (RFC 7517).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use etude_core::words;
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};

use super::wire::{Member, Set};

/// Minimum length of an RSA modulus, in bits.
const MIN_RSA_BITS: usize = 2_048;

/// Size of a coordinate on the curve P-256, in bytes.
const COORDINATE: usize = 32;

words! {
    /// A signature algorithm, by its word in the header of a token. All of them need a key, and none uses a shared secret.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Algorithm {
        /// RSASSA-PKCS1-v1_5 with SHA-256.
        Rs256 = "RS256",
        /// ECDSA on P-256 with SHA-256.
        Es256 = "ES256",
    }
}

/// The verdict of the keys on a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// One of the keys has made the signature.
    Valid,
    /// The named key has not made the signature.
    Wrong,
    /// The signing key is unknown: it is not among the keys, or the token does not name it.
    Unknown,
}

/// The keys of an issuer that sign tokens.
#[derive(Debug, Default)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// An uncompressed point of the curve.
    P256(Vec<u8>),
}

impl Keys {
    /// The keys of a set that can verify a token. Others are ignored, as the standard requires.
    ///
    /// # Errors
    /// The document is not a set of keys, or none of its keys can verify a token.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let set: Set = serde_json::from_slice(bytes).map_err(|_| "its keys are not a JSON Web Key Set".to_owned())?;
        let keys: Vec<Key> =
            set.keys.into_iter().filter_map(|member| key(serde_json::from_value(member).ok()?)).collect();
        match keys.is_empty() {
            true => Err("none of its keys verifies RS256 or ES256".to_owned()),
            false => Ok(Self(keys)),
        }
    }

    /// Verifies that the key named `id` has signed `message`. A token without a key name means the only key of its algorithm.
    pub(super) fn verify(&self, algorithm: Algorithm, id: Option<&str>, message: &[u8], signature: &[u8]) -> Verdict {
        let fits = |key: &&Key| key.material.algorithm() == algorithm && (id.is_none() || key.id.as_deref() == id);
        let fitting: Vec<&Key> = self.0.iter().filter(fits).collect();
        match (id, fitting.as_slice()) {
            (_, []) | (None, [_, _, ..]) => Verdict::Unknown,
            _ if fitting.iter().any(|key| key.material.has_signed(message, signature)) => Verdict::Valid,
            // The signature may be that of a newer key.
            (None, _) => Verdict::Unknown,
            (Some(_), _) => Verdict::Wrong,
        }
    }
}

/// A key that may verify signatures; `None` if it has another purpose, is of another kind, or is too weak.
fn key(member: Member) -> Option<Key> {
    let is_for_signatures = member.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
        && member.key_ops.as_ref().is_none_or(|all| all.iter().any(|one| one == "verify"));
    let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
    let material = match (member.kty.as_str(), member.crv.as_deref()) {
        ("RSA", _) => {
            let (n, e) = (number(bytes(&member.n)?)?, number(bytes(&member.e)?)?);
            let bits = n.len() * 8 - n[0].leading_zeros() as usize;
            (bits >= MIN_RSA_BITS).then_some(Material::Rsa(RsaPublicKeyComponents { n, e }))?
        }
        ("EC", Some("P-256")) => {
            let (x, y) = (bytes(&member.x)?, bytes(&member.y)?);
            // The prefix 4 marks an uncompressed point: both coordinates follow.
            (x.len() == COORDINATE && y.len() == COORDINATE).then(|| Material::P256([&[4][..], &x, &y].concat()))?
        }
        _ => return None,
    };
    let is_of_algorithm = member.alg.is_none_or(|word| word == material.algorithm().word());
    (is_for_signatures && is_of_algorithm).then_some(Key { id: member.kid, material })
}

/// A number without leading zeros; `None` if it is zero.
fn number(bytes: Vec<u8>) -> Option<Vec<u8>> {
    let first = bytes.iter().position(|byte| *byte != 0)?;
    Some(bytes[first..].to_vec())
}

impl Material {
    const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa(_) => Algorithm::Rs256,
            Self::P256(_) => Algorithm::Es256,
        }
    }

    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok(),
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
        }
    }
}

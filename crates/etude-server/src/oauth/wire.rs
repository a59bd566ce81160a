//! Documents of an issuer: metadata, keys, and the parts of its tokens, reduced to the members that are used.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// A JSON Web Key Set.
#[derive(Deserialize)]
pub(super) struct Set {
    pub(super) keys: Vec<Value>,
}

/// A key of the set, reduced to the members that are used.
#[derive(Deserialize)]
pub(super) struct Member {
    pub(super) kty: String,
    pub(super) kid: Option<String>,
    pub(super) alg: Option<String>,
    #[serde(rename = "use")]
    pub(super) purpose: Option<String>,
    pub(super) key_ops: Option<Vec<String>>,
    pub(super) crv: Option<String>,
    pub(super) n: Option<String>,
    pub(super) e: Option<String>,
    pub(super) x: Option<String>,
    pub(super) y: Option<String>,
}

/// Presence of a member, whatever its value.
#[derive(Default)]
pub(super) struct Present(pub(super) bool);

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self(true))
    }
}

/// The header of a token.
#[derive(Deserialize)]
pub(super) struct Header {
    pub(super) alg: String,
    pub(super) kid: Option<String>,
    pub(super) typ: Option<String>,
    #[serde(default)]
    pub(super) crit: Present,
}

/// The claims of a token.
#[derive(Deserialize)]
pub(super) struct Claims {
    pub(super) iss: String,
    pub(super) sub: String,
    pub(super) aud: Words,
    pub(super) exp: f64,
    pub(super) nbf: Option<f64>,
    pub(super) iat: Option<f64>,
    pub(super) scope: Option<Words>,
    pub(super) scp: Option<Words>,
    #[serde(default)]
    pub(super) cnf: Present,
}

/// One text, or several.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Words {
    One(String),
    Several(Vec<String>),
}

impl Words {
    pub(super) fn all(&self) -> &[String] {
        match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::Several(words) => words,
        }
    }
}

/// Metadata of an issuer, reduced to the members that are used.
#[derive(Deserialize)]
pub(super) struct Metadata {
    pub(super) issuer: String,
    pub(super) jwks_uri: Option<String>,
}

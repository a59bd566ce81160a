//! Access tokens of an issuer: signed JSON Web Tokens (RFC 7515, 7519, 9068).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use etude_spec::config::auth::Auth;

use super::keys::Algorithm;
use super::wire::{Claims, Header, Words};
use crate::token::{Caller, Scope};

/// Maximum length of a token, in bytes.
const MAX_TOKEN: usize = 16 * 1024;

/// Maximum length of a user's name at the issuer, in bytes (OpenID Connect Core, 2).
const MAX_SUBJECT: usize = 255;

/// Allowed difference between the clocks of issuer and server, in milliseconds.
pub(super) const LEEWAY_MS: i64 = 60_000;

/// The latest time in a document, in seconds since 1970: the end of the year 9999.
const MAX_SECONDS: f64 = 253_402_300_799.0;

/// Prefix of the names of an issuer's users. No token of the server has a `:` in its name.
const PREFIX: &str = "oauth:";

/// Reason why a token is refused, as a sentence without any part of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the access token has more than 16 KiB")]
    Size,
    #[error("the access token is not a signed JWT")]
    Form,
    #[error("`alg` of the access token is neither `RS256` nor `ES256`")]
    Algorithm,
    #[error("`typ` of the access token is neither `JWT` nor `at+jwt`")]
    Type,
    #[error("the access token has `crit`, and etude supports no JWT extensions")]
    Critical,
    #[error("the issuer has no key with the `kid` of the access token")]
    Key,
    #[error("the signature of the access token does not match its key")]
    Signature,
    #[error(
        "a claim of the access token is missing or malformed: `iss`, `sub`, `aud`, `exp`, `nbf`, `iat`, `scope` or `scp`"
    )]
    Claims,
    #[error("`iss` of the access token does not match `auth.issuer`")]
    Issuer,
    #[error("`aud` of the access token does not contain `auth.audience`")]
    Audience,
    #[error("the access token has expired")]
    Expired,
    #[error("the access token is not valid yet")]
    Early,
    #[error("`sub` of the access token is not 1 to 255 printable ASCII characters without spaces")]
    Subject,
    #[error("the access token is bound to a key (`cnf`), which the server does not support")]
    Bound,
}

impl Fault {
    /// True if anyone can make such a token. Tokens with the other faults are signed by the issuer, and do not count as guesses:
    /// clients with expired tokens do not lock out their address.
    pub(super) const fn is_guess(self) -> bool {
        match self {
            Self::Size | Self::Form | Self::Algorithm | Self::Type | Self::Critical | Self::Key | Self::Signature => {
                true
            }
            Self::Claims
            | Self::Issuer
            | Self::Audience
            | Self::Expired
            | Self::Early
            | Self::Subject
            | Self::Bound => false,
        }
    }
}

/// A token with an acceptable header. Its signature is not verified yet.
pub(super) struct Signed<'t> {
    pub(super) algorithm: Algorithm,
    pub(super) key: Option<String>,
    /// The signed bytes.
    pub(super) message: &'t [u8],
    pub(super) signature: Vec<u8>,
    claims: Vec<u8>,
}

/// True if a token may be one of an issuer: three parts of base64url.
pub(crate) fn is_jwt(token: &str) -> bool {
    let is_part = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let parts: Vec<&str> = token.splitn(4, '.').collect();
    matches!(parts.as_slice(), [header, claims, signature] if !header.is_empty() && [*header, *claims, *signature].into_iter().all(is_part))
}

/// Parses the header and the parts of a token.
pub(super) fn parse(token: &str) -> Result<Signed<'_>, Fault> {
    if token.len() > MAX_TOKEN {
        return Err(Fault::Size);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(Fault::Form)?;
    let (header, claims) = signed.split_once('.').ok_or(Fault::Form)?;
    let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| Fault::Form);
    let header: Header = serde_json::from_slice(&bytes(header)?).map_err(|_| Fault::Form)?;
    let algorithm = Algorithm::from_word(&header.alg).ok_or(Fault::Algorithm)?;
    if header.crit.0 {
        return Err(Fault::Critical);
    }
    // Tokens of other types of the same issuer, such as logout tokens, are not access tokens.
    if let Some(kind) = header.typ.map(|kind| kind.to_ascii_lowercase())
        && !["jwt", "at+jwt"].contains(&kind.strip_prefix("application/").unwrap_or(&kind))
    {
        return Err(Fault::Type);
    }
    let (claims, signature) = (bytes(claims)?, bytes(signature)?);
    Ok(Signed { algorithm, key: header.kid, message: signed.as_bytes(), signature, claims })
}

impl Signed<'_> {
    /// The time at which the token claims to be made, in milliseconds since 1970. The signature need not be verified, so the
    /// claim may be false.
    pub(super) fn claimed_ms(&self) -> Option<i64> {
        let claims: Claims = serde_json::from_slice(&self.claims).ok()?;
        milliseconds(claims.iat?).ok()
    }

    /// The caller that a token identifies, once its signature has been verified.
    pub(super) fn caller(&self, auth: &Auth, now_ms: i64) -> Result<Caller, Fault> {
        let claims: Claims = serde_json::from_slice(&self.claims).map_err(|_| Fault::Claims)?;
        if claims.iss != auth.issuer {
            return Err(Fault::Issuer);
        }
        if !claims.aud.all().contains(&auth.audience) {
            return Err(Fault::Audience);
        }
        let expires_at_ms = milliseconds(claims.exp)?;
        if now_ms >= expires_at_ms.saturating_add(LEEWAY_MS) {
            return Err(Fault::Expired);
        }
        for start in [claims.nbf, claims.iat].into_iter().flatten() {
            if milliseconds(start)? > now_ms.saturating_add(LEEWAY_MS) {
                return Err(Fault::Early);
            }
        }
        if claims.cnf.0 {
            return Err(Fault::Bound);
        }
        // Names must have no space: in keys of the journal, a space ends the name.
        let is_name =
            (1..=MAX_SUBJECT).contains(&claims.sub.len()) && claims.sub.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_name {
            return Err(Fault::Subject);
        }
        let words = [&claims.scope, &claims.scp].into_iter().flatten().flat_map(Words::all);
        let mut scopes: Vec<Scope> = Vec::new();
        for scope in words.flat_map(|words| words.split(' ')).filter_map(Scope::from_word) {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        let (name, expires_at_ms) = (format!("{PREFIX}{}", claims.sub), Some(expires_at_ms));
        Ok(Caller { name, scopes, only: Vec::new(), expires_at_ms, token: None, session: None })
    }
}

/// Converts seconds since 1970 to milliseconds.
fn milliseconds(seconds: f64) -> Result<i64, Fault> {
    match (0.0..=MAX_SECONDS).contains(&seconds) {
        // The result is in the range of `i64`.
        true => Ok((seconds * 1_000.0) as i64),
        false => Err(Fault::Claims),
    }
}

#[cfg(test)]
#[path = "token/tests.rs"]
mod tests;

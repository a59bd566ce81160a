//! `requestState`: facts that a client carries and cannot change.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// The key that seals states.
#[derive(Clone)]
pub struct SealKey([u8; 32]);

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

impl SealKey {
    /// A key that is derived from a secret.
    pub fn derive(secret: &str) -> Self {
        Self(blake3::derive_key("etude mcp request state 1", secret.as_bytes()))
    }

    /// A text with `facts` that only this key can create.
    pub(crate) fn seal(&self, facts: &Value) -> String {
        let text = facts.to_string();
        let mac = blake3::keyed_hash(&self.0, text.as_bytes());
        format!("{}.{}", URL_SAFE_NO_PAD.encode(&text), mac.to_hex())
    }

    /// The facts of a sealed text; `None` if it was changed.
    pub(crate) fn open(&self, sealed: &str) -> Option<Value> {
        let (text, mac) = sealed.split_once('.')?;
        let text = URL_SAFE_NO_PAD.decode(text).ok()?;
        // Hashes are compared in constant time.
        let is_own = blake3::keyed_hash(&self.0, &text) == blake3::Hash::from_hex(mac).ok()?;
        is_own.then(|| serde_json::from_slice(&text).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-154: a tampered `requestState` is refused.
    #[test]
    fn a_changed_state_does_not_open() {
        let key = SealKey::derive("secret");
        let facts = serde_json::json!({"run": "a", "question": 1});
        let sealed = key.seal(&facts);
        assert_eq!(key.open(&sealed), Some(facts));
        assert_eq!(SealKey::derive("other").open(&sealed), None);
        for index in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[index] = if changed[index] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(key.open(&changed), None, "{index}");
        }
    }
}

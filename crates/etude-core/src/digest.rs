//! Content hashes (BLAKE3).

use std::fmt;

/// A BLAKE3 hash of some content: 32 bytes, printed as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// A hash from its 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A hash from its 64 hexadecimal digits; `None` if `text` is anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text).ok().map(|hash| Self(*hash.as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes a list of fields so that no two different lists give the same hash: each field is preceded by its length.
#[derive(Default)]
pub struct Hasher {
    /// The fields so far while they are short: hashing them at once takes a fraction of the time.
    short: Vec<u8>,
    /// The state of the hash once they are not.
    long: Option<Box<blake3::Hasher>>,
}

impl Hasher {
    /// Maximum size of fields that are hashed at once, in bytes: one chunk of BLAKE3.
    const SHORT: usize = 1024;

    /// A hasher for one kind of content; `domain` keeps hashes of different kinds apart.
    pub fn new(domain: &str) -> Self {
        let mut hasher = Self { short: Vec::with_capacity(256), long: None };
        hasher.field(domain.as_bytes());
        hasher
    }

    /// Adds one field.
    pub fn field(&mut self, bytes: &[u8]) -> &mut Self {
        self.add(&(bytes.len() as u64).to_le_bytes());
        self.add(bytes);
        self
    }

    fn add(&mut self, bytes: &[u8]) {
        match &mut self.long {
            None if self.short.len() + bytes.len() <= Self::SHORT => self.short.extend_from_slice(bytes),
            None => {
                let long = self.long.insert(Box::default());
                long.update(&self.short);
                long.update(bytes);
            }
            Some(long) => drop(long.update(bytes)),
        }
    }

    /// The hash of all fields so far.
    pub fn finish(&self) -> Digest {
        match &self.long {
            None => Digest::of(&self.short),
            Some(long) => Digest(*long.finalize().as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests are kept in journals: the hash is that of the fields in a row, each after its length, whatever their sizes.
    #[test]
    fn a_hash_of_fields_does_not_depend_on_their_sizes() {
        for sizes in [&[][..], &[0], &[5, 32], &[1_000, 7], &[1_003], &[1_004], &[1_005, 0, 3], &[5_000, 5, 2_000]] {
            let (mut hasher, mut bytes) = (Hasher::new("x"), b"\x01\0\0\0\0\0\0\0x".to_vec());
            for size in sizes {
                let field = vec![b'a'; *size];
                hasher.field(&field);
                bytes.extend((*size as u64).to_le_bytes());
                bytes.extend(field);
                assert_eq!(hasher.finish(), Digest::of(&bytes), "{sizes:?}");
            }
            assert_eq!(hasher.finish(), Digest::of(&bytes), "{sizes:?}");
        }
    }
}

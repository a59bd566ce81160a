//! Ids of runs.

/// Crockford's alphabet: no letter that looks like a digit or like another letter.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Characters of an id.
const LENGTH: usize = 16;

/// A new id: 16 characters that carry 80 random bits, so that it is unique for ever and its first four or five
/// characters are enough to name it.
pub fn new() -> String {
    let random = uuid::Uuid::new_v4().into_bytes();
    // Bytes 6 and 8 of a UUID carry its version; ten others are random.
    let bytes = [0, 1, 2, 3, 4, 5, 9, 10, 11, 12].map(|at: usize| random[at]);
    let bits = bytes.iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    (0..LENGTH).rev().map(|place| char::from(ALPHABET[(bits >> (place * 5) & 31) as usize])).collect()
}

/// True if `text` has the form of an id.
pub fn is_id(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids_have_sixteen_characters_and_differ() {
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| super::new()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| super::is_id(id)));
        assert!(!super::is_id("") && !super::is_id("../../../../../x") && !super::is_id("8dmwnz5ebmypx8xO"));
    }
}

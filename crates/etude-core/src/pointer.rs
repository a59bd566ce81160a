//! Keys in JSON pointers (RFC 6901).

/// Escapes a key for use in a JSON pointer.
pub fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Unescapes the key in a segment of a JSON pointer.
pub fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

//! Keys in JSON pointers (RFC 6901).

/// A key as it stands in a JSON pointer.
pub fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The key that a part of a JSON pointer stands for.
pub fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

//! Memory of the patterns of a schema: each is bounded by the `regex` crate, but a page of text has hundreds of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// Maximum size of all compiled patterns, in bytes. The `regex` crate itself refuses a single pattern beyond 10 MiB.
pub const MAX_BYTES: usize = 256 << 20;

/// Size below which no pattern is counted, in bytes. A larger size counts as the next power of two.
const MIN_BYTES: usize = 4 << 10;

/// Size of a compiled pattern beyond which it is not counted more precisely, in bytes.
const MAX_ONE: usize = 16 << 20;

/// Takes the size of the distinct patterns in `documents` from `left`, in bytes. False if there is not enough left; the
/// rest of the patterns is then not compiled.
pub(super) fn fit<'v>(documents: impl IntoIterator<Item = &'v Value>, left: &mut usize) -> bool {
    let mut patterns = BTreeSet::new();
    documents.into_iter().for_each(|document| collect(document, &mut patterns));
    patterns.into_iter().all(|pattern| {
        let rest = left.checked_sub(size(pattern));
        *left = rest.unwrap_or(0);
        rest.is_some()
    })
}

/// Collects everything that may be a pattern. Data that looks like one (in `const`, say) only adds to the size.
fn collect<'v>(part: &'v Value, patterns: &mut BTreeSet<&'v str>) {
    match part {
        Value::Object(members) => {
            patterns.extend(members.get("pattern").and_then(Value::as_str));
            let properties = members.get("patternProperties").and_then(Value::as_object);
            patterns.extend(properties.into_iter().flat_map(|all| all.keys().map(String::as_str)));
            members.values().for_each(|member| collect(member, patterns));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, patterns)),
        _ => {}
    }
}

/// Size of a compiled pattern in bytes, rounded up. The validator compiles it, because it rewrites patterns before.
fn size(pattern: &str) -> usize {
    let schema = json!({ "pattern": pattern });
    let mut limit = MIN_BYTES;
    while limit < MAX_ONE {
        let engine = jsonschema::PatternOptions::regex().size_limit(limit);
        if jsonschema::options().with_pattern_options(engine).build(&schema).is_ok() {
            break;
        }
        limit *= 2;
    }
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_compiled_patterns() {
        let sizes =
            ["^[a-z]+$", r"^\w{1,64}$", "^(a{1,90}b?){1,9}$", "a{1000}{1000}"].map(|pattern| size(pattern) >> 10);
        assert_eq!(sizes, [4, 16, 64, 16 << 10]);
    }

    #[test]
    fn equal_patterns_count_once() {
        let one = json!({"properties": {"a": {"pattern": "^a{9}$"}, "b": {"pattern": "^b$"}}});
        let two = json!({"patternProperties": {"^a{9}$": {"items": [{"pattern": "^b$"}]}}});
        let mut left = MAX_BYTES;
        assert!(fit([&one, &two], &mut left));
        assert_eq!(MAX_BYTES - left, 2 * MIN_BYTES);
        left = 2 * MIN_BYTES - 1;
        assert!(!fit([&one, &two], &mut left));
    }
}

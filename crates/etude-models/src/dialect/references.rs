//! References within a schema.

use std::collections::HashSet;

use etude_core::schema::root::for_each_reference;
use serde_json::Value;

/// True if a definition, or the root, contains itself through references. Each definition is visited once, however many paths
/// lead to it.
pub(super) fn is_recursive(root: &Value) -> bool {
    fn reaches(root: &Value, schema: &Value, open: &mut Vec<String>, done: &mut HashSet<String>) -> bool {
        let mut references = Vec::new();
        for_each_reference(&mut without_definitions(schema), &mut |reference| references.push(reference.clone()));
        references.into_iter().any(|reference| {
            if reference == "#" || open.contains(&reference) {
                return true;
            }
            if done.contains(&reference) {
                return false;
            }
            let Some(target) = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) else {
                return false;
            };
            open.push(reference);
            let found = reaches(root, target, open, done);
            done.extend(open.pop());
            found
        })
    }
    reaches(root, root, &mut Vec::new(), &mut HashSet::new())
}

fn without_definitions(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(object) = schema.as_object_mut() {
        object.shift_remove("$defs");
        object.shift_remove("definitions");
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Definitions that each use the next one twice, on 2^200 paths, are visited once.
    #[test]
    fn shared_definitions_are_looked_at_once() {
        let both = |reference: &str| json!({"properties": {"a": {"$ref": reference}, "b": {"$ref": reference}}});
        let chain = |last: Value| {
            let mut definitions = serde_json::Map::new();
            for at in 0..200 {
                definitions.insert(format!("d{at}"), both(&format!("#/$defs/d{}", at + 1)));
            }
            definitions.insert("d200".to_owned(), last);
            json!({"$ref": "#/$defs/d0", "$defs": definitions})
        };
        assert!(!is_recursive(&chain(json!({"type": "string"}))));
        assert!(is_recursive(&chain(both("#/$defs/d100"))));
    }
}

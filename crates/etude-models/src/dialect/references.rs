//! References within a schema.

use etude_core::schema::root::for_each_reference;
use serde_json::Value;

/// Whether some definition, or the root, contains itself through references.
pub(super) fn is_recursive(root: &Value) -> bool {
    fn reaches(root: &Value, schema: &Value, open: &mut Vec<String>) -> bool {
        let mut references = Vec::new();
        for_each_reference(&mut without_definitions(schema), &mut |reference| references.push(reference.clone()));
        references.into_iter().any(|reference| {
            if reference == "#" || open.contains(&reference) {
                return true;
            }
            let Some(target) = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) else {
                return false;
            };
            open.push(reference);
            let found = reaches(root, target, open);
            open.pop();
            found
        })
    }
    reaches(root, root, &mut Vec::new())
}

fn without_definitions(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(object) = schema.as_object_mut() {
        object.shift_remove("$defs");
        object.shift_remove("definitions");
    }
    schema
}

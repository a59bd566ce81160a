//! References within a schema.

use serde_json::Value;

/// Keywords whose value is data, not schemas.
const DATA: &[&str] = &["enum", "const", "default", "examples", "required"];

/// Calls `visit` with every `$ref` of `schema`.
pub(super) fn for_each_reference(schema: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match schema {
        Value::Object(object) => {
            for (keyword, value) in object {
                match value {
                    Value::String(reference) if keyword == "$ref" => visit(reference),
                    _ if DATA.contains(&keyword.as_str()) && !value.is_object() => {}
                    _ => for_each_reference(value, visit),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|one| for_each_reference(one, visit)),
        _ => {}
    }
}

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

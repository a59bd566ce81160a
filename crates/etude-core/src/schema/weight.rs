//! How much a schema asks of one value: `allOf` of ten references to `allOf` of ten references, thirty times, is a page of
//! text and more work than there is time.

use std::collections::BTreeMap;

use serde_json::Value;

/// How many schemas may be applied to the same value, references followed. Generated schemas of whole APIs have some
/// thousands.
pub(super) const MOST: u64 = 100_000;

/// Keywords whose schema, or each of whose schemas, is applied to the value itself.
const IN_PLACE: &[&str] = &["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];

/// True if some part of the document applies more than [`MOST`] schemas to one value. A reference that leads back to where
/// it came from adds nothing.
pub(super) fn is_too_heavy(document: &Value, resources: &BTreeMap<String, Value>) -> bool {
    let mut scale = Scale { resources, known: BTreeMap::new() };
    std::iter::once(document).chain(resources.values()).any(|root| scale.heaviest(root, root) > MOST)
}

struct Scale<'s> {
    resources: &'s BTreeMap<String, Value>,
    /// Weights by the address of a schema; 0 for those that are being weighed.
    known: BTreeMap<usize, u64>,
}

impl<'s> Scale<'s> {
    /// The largest weight of all schemas in `part`, which stands in `root`. Whatever is an object is taken for one: what is
    /// none refers to nothing.
    fn heaviest(&mut self, part: &'s Value, root: &'s Value) -> u64 {
        let below: Vec<&'s Value> = match part {
            Value::Object(members) => members.values().collect(),
            Value::Array(items) => items.iter().collect(),
            _ => return 0,
        };
        let own = self.weight(part, root);
        below.into_iter().fold(own, |most, part| most.max(self.heaviest(part, root)))
    }

    /// How many schemas `schema` applies to its value, itself among them.
    fn weight(&mut self, schema: &'s Value, root: &'s Value) -> u64 {
        let Value::Object(members) = schema else { return 1 };
        let address = std::ptr::from_ref(schema).addr();
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        self.known.insert(address, 0);
        let mut total = 1_u64;
        for keyword in IN_PLACE {
            let schemas: Vec<&'s Value> = match members.get(*keyword) {
                Some(Value::Array(all)) => all.iter().collect(),
                Some(Value::Object(all)) if keyword.starts_with("depend") => all.values().collect(),
                Some(one) => vec![one],
                None => continue,
            };
            for schema in schemas {
                total = total.saturating_add(self.weight(schema, root));
            }
        }
        for keyword in ["$ref", "$dynamicRef"] {
            if let Some((target, root)) =
                members.get(keyword).and_then(Value::as_str).and_then(|to| self.find(to, root))
            {
                total = total.saturating_add(self.weight(target, root));
            }
        }
        self.known.insert(address, total);
        total
    }

    /// What a reference leads to, and the document that it stands in; `None` for an anchor or something unknown.
    fn find(&self, reference: &str, root: &'s Value) -> Option<(&'s Value, &'s Value)> {
        let (file, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let name = file.rsplit('/').next().unwrap_or_default();
        let root = match name {
            "" => root,
            name => self
                .resources
                .iter()
                .find(|(uri, _)| uri.rsplit('/').next() == Some(name))
                .map(|(_, document)| document)?,
        };
        root.pointer(pointer).map(|target| (target, root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tower(floors: usize, each: usize) -> Value {
        let mut defs = serde_json::Map::from_iter([("d0".to_owned(), json!({"type": "string"}))]);
        for floor in 1..=floors {
            let below = json!({"$ref": format!("#/$defs/d{}", floor - 1)});
            defs.insert(format!("d{floor}"), json!({"allOf": vec![below; each]}));
        }
        json!({"$ref": format!("#/$defs/d{floors}"), "$defs": defs})
    }

    #[test]
    fn towers_are_too_heavy_and_lists_are_not() {
        assert!(is_too_heavy(&tower(30, 10), &BTreeMap::new()));
        assert!(!is_too_heavy(&tower(3, 10), &BTreeMap::new()));
        assert!(!is_too_heavy(&tower(300, 1), &BTreeMap::new()));
    }

    #[test]
    fn what_refers_to_itself_or_lies_deeper_adds_nothing() {
        let tree = json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "allOf": [{"$ref": "#"}]});
        assert!(!is_too_heavy(&tree, &BTreeMap::new()));
    }

    #[test]
    fn towers_of_files_are_seen() {
        let floor = |below: &str| json!({"allOf": vec![json!({"$ref": below}); 100]});
        let resources = BTreeMap::from([
            ("app:///schemas/a.json".to_owned(), floor("b.json")),
            ("app:///schemas/b.json".to_owned(), floor("c.json#/x")),
            ("app:///schemas/c.json".to_owned(), json!({"x": floor("d.json")})),
            ("app:///schemas/d.json".to_owned(), json!({"type": "string"})),
        ]);
        assert!(is_too_heavy(&json!({"properties": {"k": {"$ref": "a.json"}}}), &resources));
    }
}

//! The schemas that a package has for its answers: a second look, never a condition (C-1.16).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use etude_core::schema::Schema;
use etude_spec::Diagnostic;
use etude_spec::application::findings;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Package;

/// Most bytes of a schema.
const MOST: u64 = 1 << 20;

/// What does not fit, if `schemas/output/<command>.schema.json` is a schema and the answer does not follow it.
pub(super) fn mismatch(package: &Package, command: &str, output: &RawValue, is_strict: bool) -> Option<Diagnostic> {
    let name = format!("schemas/output/{}.schema.json", command.replace(' ', "."));
    let file = package.root.join(&name);
    if !std::fs::metadata(&file).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(&file).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    let document: Value = serde_json::from_str(&text).ok()?;
    // What is no schema is somebody else's file.
    let schema = Schema::compile(name.clone(), document, BTreeMap::new()).ok()?;
    let value: Value = serde_json::from_str(output.get()).ok()?;
    let violations = schema.violations(&value);
    let first = violations.first()?.to_string();
    Some(findings::schema_mismatch(&package.file(), &name, &first, is_strict))
}

//! Documents of fixed tools within the limits of clients.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::wire::Members;
use super::{MAX_TEXT, as_text, clipped_to};

/// Maximum size of the start of a member that is too long, in bytes.
const MAX_START: usize = 4 * 1024;

/// The document of a run with bounded members. A member `NAME_cut` describes the omitted part: the later items of a list, or all
/// but the start of another value.
pub(super) fn run(body: &[u8]) -> Result<Box<RawValue>, String> {
    let members: Members = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let id = members.0.iter().find(|(name, _)| name == "run_id").map(|(_, id)| as_text(id)).unwrap_or_default();
    let mut out: Vec<String> = Vec::new();
    for (name, value) in &members.0 {
        let key = Value::from(name.as_str());
        if value.get().len() <= MAX_TEXT {
            out.push(format!("{key}:{}", value.get()));
            continue;
        }
        let is_value = matches!(name.as_str(), "output" | "input");
        let (kept, mut cut) = shortened(value, is_value);
        cut["bytes"] = value.get().len().into();
        cut["uri"] = match name.as_str() {
            "output" => format!("etude://runs/{id}/output"),
            _ => format!("etude://runs/{id}"),
        }
        .into();
        out.extend([format!("{key}:{kept}"), format!("{}:{cut}", Value::from(format!("{name}_cut")))]);
    }
    RawValue::from_string(format!("{{{}}}", out.join(","))).map_err(|e| e.to_string())
}

/// The remaining part of a member that is too long, and a description of the rest. `is_value`: the member is a value of the run,
/// which cannot be replaced by a part of it.
fn shortened(value: &RawValue, is_value: bool) -> (String, Value) {
    let items: Vec<Box<RawValue>> = serde_json::from_str(value.get()).unwrap_or_default();
    if items.is_empty() || is_value {
        return ("null".to_owned(), json!({"start": clipped_to(&as_text(value), MAX_START)}));
    }
    let mut length = 0;
    let mut kept = Vec::new();
    for item in &items {
        length += item.get().len() + 1;
        if length > MAX_TEXT {
            break;
        }
        kept.push(item.get());
    }
    (format!("[{}]", kept.join(",")), json!({"items": items.len(), "kept": kept.len()}))
}

//! What a run was started with, as its journal keeps it.

use std::path::{Path, PathBuf};

use etude_core::data::{Json, Stored};
use etude_core::digest::Digest;
use etude_core::machine::{Limits, Start};
use etude_core::model::Usage;
use etude_core::plan::stages::SlotForms;
use etude_core::report::usage_json;
use etude_runtime::blob::{self, BlobStore, INLINE_LIMIT};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What a run was started with.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// The pipeline's input: a JSON object.
    pub input: Json,
    /// What the run may cost.
    pub limits: Limits,
    /// Where the user was when the run was started: `ETUDE_CALLER_DIR` of its scripts.
    pub caller_dir: String,
    /// What was spent before the run began.
    pub spent: Usage,
    /// What the user lets the run's agents do besides what the configuration says.
    pub granted: Granted,
    /// Cached outputs are not used, only stored (X-1).
    pub refresh: bool,
    /// How a request came to the run: [`crate::routing::Trail`] as a document.
    pub routing: Option<Value>,
}

/// What a user grants one run: on the command line, and for as long as the run lasts.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Granted {
    /// Folders that may be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<PathBuf>,
    /// Folders that may be read and written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathBuf>,
    /// Nothing needs asking.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub yolo: bool,
}

#[derive(serde::Deserialize)]
struct Parts<'a> {
    v: u64,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(default)]
    input_at: Option<(String, u64)>,
    #[serde(default)]
    limits: Value,
    #[serde(default)]
    caller_dir: String,
    #[serde(default)]
    spent: Value,
    #[serde(default)]
    granted: Granted,
    #[serde(default)]
    refresh: bool,
    #[serde(default)]
    routing: Option<Value>,
}

impl Header {
    /// What the machine is begun with. `slots` are the forms of the slots of its stage machines when it began.
    pub fn start(&self, run_id: &str, app: &Path, slots: SlotForms) -> Start {
        Start {
            run_id: run_id.to_owned(),
            input: self.input.clone(),
            limits: self.limits,
            spent: self.spent,
            app_dir: app.display().to_string(),
            yolo: self.granted.yolo,
            slots,
        }
    }

    /// The header as text. A large input is kept beside it.
    ///
    /// # Errors
    /// A large input cannot be read or kept.
    pub fn to_text(&self, store: &dyn BlobStore) -> Result<String, String> {
        let limits = json!({
            "max_cost_usd": self.limits.max_cost_usd,
            "max_tokens": self.limits.max_tokens,
            "timeout_ms": self.limits.timeout_ms,
        });
        let caller = json!(self.caller_dir);
        let spent = usage_json(&self.spent);
        let granted = json!(self.granted);
        let granted =
            if self.granted == Granted::default() { String::new() } else { format!(r#","granted":{granted}"#) };
        let granted = if self.refresh { format!(r#"{granted},"refresh":true"#) } else { granted };
        let routing = self.routing.as_ref().map(|routing| format!(r#","routing":{routing}"#)).unwrap_or_default();
        let input = self.input.text().map_err(|e| e.to_string())?;
        if input.len() > INLINE_LIMIT {
            let (digest, _) = blob::put(store, input.as_bytes()).map_err(|e| e.to_string())?;
            return Ok(format!(
                r#"{{"v":1,"limits":{limits},"caller_dir":{caller},"spent":{spent}{granted}{routing},"input_at":["{digest}",{}]}}"#,
                input.len()
            ));
        }
        Ok(format!(
            r#"{{"v":1,"limits":{limits},"caller_dir":{caller},"spent":{spent}{granted}{routing},"input":{input}}}"#
        ))
    }

    /// A header from its text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, store: &dyn BlobStore) -> Result<Self, String> {
        let parts: Parts<'_> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if parts.v != 1 {
            return Err(format!("it has version {}, this program knows version 1", parts.v));
        }
        let input = match (parts.input, parts.input_at) {
            (Some(raw), None) => Json::trusted(raw.get()),
            (None, Some((hex, len))) => {
                let digest = Digest::from_hex(&hex).ok_or("the hash of its input is malformed")?;
                let source = store.open(digest).map_err(|e| e.to_string())?;
                Json::stored(Stored { blob: digest, offset: 0, len, digest, source })
            }
            _ => return Err("it has no input".to_owned()),
        };
        let limits = Limits {
            max_cost_usd: parts.limits.get("max_cost_usd").and_then(Value::as_f64),
            max_tokens: parts.limits.get("max_tokens").and_then(Value::as_u64),
            timeout_ms: parts.limits.get("timeout_ms").and_then(Value::as_u64),
        };
        Ok(Self {
            input,
            limits,
            caller_dir: parts.caller_dir,
            spent: usage_of(&parts.spent),
            granted: parts.granted,
            refresh: parts.refresh,
            routing: parts.routing,
        })
    }
}

/// Usage in its published form.
fn usage_of(value: &Value) -> Usage {
    let number = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
    Usage {
        calls: number("calls"),
        input_tokens: number("input_tokens"),
        output_tokens: number("output_tokens"),
        cached_tokens: number("cached_tokens"),
        reasoning_tokens: number("reasoning_tokens"),
        cost_usd: value.get("cost_usd").and_then(Value::as_f64),
    }
}

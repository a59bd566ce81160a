//! The header of a run: the request that started it, as its journal keeps it.

use std::path::{Path, PathBuf};

use etude_core::data::{Json, Stored};
use etude_core::digest::Digest;
use etude_core::machine::{Attempt, Limits, Start};
use etude_core::model::Usage;
use etude_core::report::usage_json;
use etude_process::blob::{self, BlobStore, INLINE_LIMIT};
use etude_runtime::engine::{NewRun, Record};
use etude_runtime::record::{self, Continuation};
use etude_spec::learned::{LearnedState, Pinned};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::pins;

/// Request that starts a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The pipeline's input: a JSON object.
    pub input: Json,
    /// Limits of cost, tokens and time.
    pub limits: Limits,
    /// The user's working directory, absolute; empty if the run was not started from one. Scripts get it as
    /// `ETUDE_CALLER_DIR`.
    pub caller_dir: String,
    /// Tokens and US dollars that were spent before the run, such as by the model calls that routed the request; they
    /// count against `limits`.
    pub spent: Usage,
    /// Permissions of the run's agents beyond the configuration.
    pub granted: Granted,
    /// True if cached outputs are only stored, not used (X-1).
    pub refresh: bool,
    /// Path of the request to the run: an `etude_request::Trail` as a document.
    pub routing: Option<Value>,
    /// The run whose target and input this run repeats (A-5.6).
    pub again_of: Option<String>,
    /// The typed request and the other given values, if the input joins them: `{"request", "input"}` (L-1).
    pub asked: Option<Value>,
    /// The span that contains the run, in the form of W3C Trace Context.
    pub traceparent: Option<String>,
}

impl Request {
    /// A request for `input`, called from `caller_dir`: without limits and grants, and with nothing spent before it.
    pub fn new(input: Json, caller_dir: String) -> Self {
        Self {
            input,
            limits: Limits::default(),
            caller_dir,
            spent: Usage::default(),
            granted: Granted::default(),
            refresh: false,
            routing: None,
            again_of: None,
            asked: None,
            traceparent: None,
        }
    }
}

/// A request with the runner's own additions.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// The request that started the run.
    pub request: Request,
    /// The nominal time of the tick that began the run; scripts get it as `ETUDE_TICK`.
    pub tick: Option<String>,
    /// The learned pipeline with which the run began (L-83).
    pub learned: Option<Pinned>,
}

/// Permissions that a user grants to one run on the command line, for the length of the run.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Granted {
    /// Folders that agents may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<PathBuf>,
    /// Folders that agents may read and write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathBuf>,
    /// True if no tool call requires approval.
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
    #[serde(default)]
    again_of: Option<String>,
    #[serde(default)]
    tick: Option<String>,
    #[serde(default)]
    asked: Option<Value>,
    #[serde(default)]
    learned: Option<Value>,
    #[serde(default)]
    traceparent: Option<String>,
}

impl Header {
    /// The start of the current attempt's machine, at the state of `records`.
    pub fn start(&self, run: &NewRun, app: &Path, records: &[Record], blobs: &dyn BlobStore) -> Start {
        let last = Continuation::last(records).map(|(_, last)| last);
        let request = &self.request;
        let mut spent = request.spent;
        spent.add(&record::spent_before(records, blobs));
        Start {
            run_id: run.id.clone(),
            abi: run.abi,
            input: request.input.clone(),
            request: request.routing.as_ref().and_then(|trail| trail["request"].as_str()).map(str::to_owned),
            limits: last.as_ref().map_or(request.limits, Continuation::limits_left),
            spent,
            attempt: last.as_ref().map_or_else(Attempt::default, Continuation::attempt),
            restarts: last.map(|last| last.restarts).unwrap_or_default(),
            app_dir: app.display().to_string(),
            yolo: request.granted.yolo,
            slots: pins::first_slots(records),
        }
    }

    /// The header as text. A large input is kept beside it.
    ///
    /// # Errors
    /// A large input cannot be read or kept.
    pub fn to_text(&self, store: &dyn BlobStore) -> Result<String, String> {
        let request = &self.request;
        let limits = record::limits_json(&request.limits);
        let caller = json!(request.caller_dir);
        let spent = usage_json(&request.spent);
        let granted = json!(request.granted);
        let mut more =
            if request.granted == Granted::default() { String::new() } else { format!(r#","granted":{granted}"#) };
        if request.refresh {
            more.push_str(r#","refresh":true"#);
        }
        if let Some(run) = &request.again_of {
            more.push_str(&format!(r#","again_of":{}"#, json!(run)));
        }
        if let Some(tick) = &self.tick {
            more.push_str(&format!(r#","tick":{}"#, json!(tick)));
        }
        if let Some(traceparent) = &request.traceparent {
            more.push_str(&format!(r#","traceparent":{}"#, json!(traceparent)));
        }
        if let Some(asked) = &request.asked {
            more.push_str(&format!(r#","asked":{asked}"#));
        }
        if let Some(learned) = &self.learned {
            more.push_str(&format!(r#","learned":{}"#, learned_json(learned)));
        }
        if let Some(routing) = &request.routing {
            more.push_str(&format!(r#","routing":{routing}"#));
        }
        let input = request.input.text().map_err(|e| e.to_string())?;
        if input.len() > INLINE_LIMIT {
            let (digest, _) = blob::put(store, input.as_bytes()).map_err(|e| e.to_string())?;
            return Ok(format!(
                r#"{{"v":1,"limits":{limits},"caller_dir":{caller},"spent":{spent}{more},"input_at":["{digest}",{}]}}"#,
                input.len()
            ));
        }
        Ok(format!(r#"{{"v":1,"limits":{limits},"caller_dir":{caller},"spent":{spent}{more},"input":{input}}}"#))
    }

    /// The span that contains a run, read from its header's text alone.
    pub fn traceparent_of(text: &str) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Part {
            traceparent: Option<String>,
        }
        serde_json::from_str::<Part>(text).ok()?.traceparent
    }

    /// Reads a header from its text.
    ///
    /// # Errors
    /// The fault of the header.
    pub fn parse(text: &str, store: &dyn BlobStore) -> Result<Self, String> {
        let parts: Parts<'_> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if parts.v != 1 {
            return Err(format!("it has version {}; this version of etude supports version 1", parts.v));
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
        let (limits, spent) = (record::to_limits(&parts.limits), record::to_usage(&parts.spent));
        let Parts { caller_dir, granted, refresh, routing, again_of, tick, asked, learned, traceparent, .. } = parts;
        let learned = learned.as_ref().and_then(to_learned);
        let request =
            Request { input, limits, caller_dir, spent, granted, refresh, routing, again_of, asked, traceparent };
        Ok(Self { request, tick, learned })
    }
}

fn learned_json(learned: &Pinned) -> Value {
    json!({"state": learned.state.word(), "content": learned.content})
}

fn to_learned(value: &Value) -> Option<Pinned> {
    let state = LearnedState::from_word(value["state"].as_str()?)?;
    Some(Pinned { state, content: value["content"].as_str()?.to_owned() })
}

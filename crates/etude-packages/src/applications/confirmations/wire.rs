//! The file format of `confirmations.json`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Answer, Request};

#[derive(Deserialize)]
struct File {
    requests: Vec<StoredRequest>,
}

#[derive(Serialize, Deserialize)]
struct StoredRequest {
    id: String,
    slug: String,
    version: String,
    root: PathBuf,
    digest: String,
    command: String,
    argv: Vec<String>,
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    expires_ms: i64,
    answer: Option<StoredAnswer>,
    is_used: bool,
    #[serde(default)]
    used_by: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredAnswer {
    approved: bool,
    by: String,
    at: String,
    reason: Option<String>,
}

pub(super) fn parse(document: Value) -> Result<Vec<Request>, serde_json::Error> {
    let file: File = serde_json::from_value(document)?;
    Ok(file.requests.into_iter().map(Request::from).collect())
}

pub(super) fn document(requests: Vec<Request>) -> Value {
    let stored: Vec<StoredRequest> = requests.into_iter().map(StoredRequest::from).collect();
    json!({ "requests": stored })
}

impl From<StoredRequest> for Request {
    fn from(stored: StoredRequest) -> Self {
        let StoredRequest {
            id,
            slug,
            version,
            root,
            digest,
            command,
            argv,
            stdin,
            env,
            expires_ms,
            answer,
            is_used,
            used_by,
        } = stored;
        let answer = answer.map(|StoredAnswer { approved, by, at, reason }| Answer { approved, by, at, reason });
        Self { id, slug, version, root, digest, command, argv, stdin, env, expires_ms, answer, is_used, used_by }
    }
}

impl From<Request> for StoredRequest {
    fn from(request: Request) -> Self {
        let Request {
            id,
            slug,
            version,
            root,
            digest,
            command,
            argv,
            stdin,
            env,
            expires_ms,
            answer,
            is_used,
            used_by,
        } = request;
        let answer = answer.map(|Answer { approved, by, at, reason }| StoredAnswer { approved, by, at, reason });
        Self { id, slug, version, root, digest, command, argv, stdin, env, expires_ms, answer, is_used, used_by }
    }
}

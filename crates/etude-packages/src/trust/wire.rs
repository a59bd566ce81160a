//! The file format of `trust.json`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Approval, ApprovalSubject, Content};

#[derive(Deserialize)]
struct File {
    approvals: Vec<Stored>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    path: PathBuf,
    kind: StoredKind,
    activation: bool,
    execution: bool,
    #[serde(default)]
    blocked: bool,
    content: Option<StoredContent>,
    #[serde(default)]
    state_paths: Vec<String>,
    by: String,
    at: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredKind {
    Package,
    Skill,
    Folder,
}

#[derive(Serialize, Deserialize)]
struct StoredContent {
    contract: String,
    payload: String,
}

pub(super) fn parse(document: Value) -> Result<Vec<Approval>, serde_json::Error> {
    let file: File = serde_json::from_value(document)?;
    Ok(file.approvals.into_iter().map(Approval::from).collect())
}

pub(super) fn document(approvals: Vec<Approval>) -> Value {
    let stored: Vec<Stored> = approvals.into_iter().map(Stored::from).collect();
    json!({ "approvals": stored })
}

impl From<Stored> for Approval {
    fn from(stored: Stored) -> Self {
        let Stored { path, kind, activation, execution, blocked, content, state_paths, by, at } = stored;
        let kind = match kind {
            StoredKind::Package => ApprovalSubject::Package,
            StoredKind::Skill => ApprovalSubject::Skill,
            StoredKind::Folder => ApprovalSubject::Folder,
        };
        let content = content.map(|StoredContent { contract, payload }| Content { contract, payload });
        Self { path, kind, activation, execution, blocked, content, state_paths, by, at }
    }
}

impl From<Approval> for Stored {
    fn from(approval: Approval) -> Self {
        let Approval { path, kind, activation, execution, blocked, content, state_paths, by, at } = approval;
        let kind = match kind {
            ApprovalSubject::Package => StoredKind::Package,
            ApprovalSubject::Skill => StoredKind::Skill,
            ApprovalSubject::Folder => StoredKind::Folder,
        };
        let content = content.map(|Content { contract, payload }| StoredContent { contract, payload });
        Self { path, kind, activation, execution, blocked, content, state_paths, by, at }
    }
}

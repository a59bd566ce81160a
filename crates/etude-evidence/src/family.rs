//! Notice that a family has enough runs to learn from (`learn.notice`).

use std::collections::BTreeSet;

use etude_core::verbatim::request_digest;
use etude_runtime::engine::{Engine, Entry, EntryQuery, Error, Expected, Write, Written};
use etude_spec::tool::AppTool;
use etude_tools::{AllowedTools, Tool};
use serde_json::json;

use super::app_key;
use crate::trace::{self, Approval, TracedCall, effect_class};
use etude_tools::disk::Disk;

/// Notes the families of writes of a run in skill mode that succeeded. Returns the families for which this request is the one
/// that completes `min_requests` distinct requests.
///
/// # Errors
/// The journal cannot be read or written.
pub async fn note(
    engine: &dyn Engine,
    disk: &Disk,
    (run, tools): (&str, &[AppTool]),
    (min_requests, exclude): (usize, &[String]),
) -> Result<Vec<String>, Error> {
    let view = engine.view(run)?;
    let blobs = engine.blobs();
    let calls = trace::of(&view, &*blobs);
    if calls.iter().any(|call| call.approval == Approval::Denied) {
        return Ok(Vec::new());
    }
    let excluded = AllowedTools::from_list(exclude);
    let is_excluded = |tool: &str| excluded.lists(&Tool::named(tool, Vec::new(), json!({"type": "object"})));
    let is_write = |call: &&TracedCall| {
        let is_made = call.result.as_ref().is_some_and(|result| !result.is_error());
        is_made && effect_class(&call.tool, tools) != "reads" && !is_excluded(&call.tool)
    };
    let families: BTreeSet<&str> = calls.iter().filter(is_write).map(|call| call.tool.as_str()).collect();
    let digest = request_digest([trace::asked(&view, &*blobs).request.as_str()]);
    let mut enough = Vec::new();
    for family in families {
        let book = format!("learned-families:{}", app_key(disk.root()));
        let (key, state) = (format!("{family}/{digest}"), family.to_owned());
        let entry = Entry {
            book: book.clone(),
            key,
            at_ms: view.row.created_at_ms,
            state: state.clone(),
            body: "{}".to_owned(),
            ..Entry::default()
        };
        let write = Write { entry, expected: Expected::Nothing, submission: None, is_alone: false };
        let is_new = engine.write(&write).await? == Written::Done;
        let known = engine.entries(&EntryQuery { book, state: Some(state), ..EntryQuery::default() })?.len();
        if is_new && known == min_requests {
            enough.push(family.to_owned());
        }
    }
    Ok(enough)
}

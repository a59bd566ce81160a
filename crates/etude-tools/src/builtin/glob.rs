//! `Glob`: finds files by a pattern of their path.

use etude_files::beneath::EntryKind;
use serde_json::{Value, json};

use crate::builtin::{Stop, count, object, text, walk};
use crate::confine::{Access, PathArgument};
use crate::tool::{Args, ToolError};

pub(super) const DESCRIPTION: &str = "Finds files by a pattern such as `**/*.rs`, `src/{a,b}/*.ts` or `*.md` (without a \
    slash: at any depth). Returns paths in alphabetical order, without what `.gitignore` excludes.";

/// Maximum number of paths in one result.
const MAX_COUNT: usize = 500;

pub(super) fn schema() -> Value {
    object(
        json!({
            "pattern": {"type": "string", "minLength": 1, "description": "The pattern."},
            "path": {"type": "string", "minLength": 1, "description": "Where to look; by default the app's folder."},
        }),
        &["pattern"],
    )
}

pub(super) fn run(path: &PathArgument, args: &Args, stop: &Stop) -> Result<String, ToolError> {
    let start = path.existing(Access::Read)?;
    let pattern = walk::pattern(text(args, "pattern").unwrap_or_default())?;
    let (mut found, mut more) = (Vec::new(), 0_usize);
    walk::walk(&start, None, true, stop, |entry| {
        let shown = start.shown_below(entry.real);
        if entry.kind == EntryKind::File && pattern.is_match(entry.below) && !stop.withheld.holds(path, entry.below) {
            if found.len() < MAX_COUNT {
                found.push(shown);
            } else {
                more += 1;
            }
        }
        Ok(true)
    })?;
    if found.is_empty() {
        return Ok("[no file matches]".to_owned());
    }
    found.sort();
    if more > 0 {
        found.push(format!("[{} more; use a narrower pattern or `path`]", count(more, "file")));
    }
    Ok(found.join("\n"))
}

//! `Write`: writes a whole file.

use serde_json::{Value, json};

use crate::builtin::{Stop, count, object, text};
use crate::confine::PathArgument;
use crate::tool::{Args, ToolError};

pub(super) const DESCRIPTION: &str = "Writes a file: all of it, replacing what was there. Directories above it are made. \
    To change a part of a file use `Edit`. Paths are relative to the app's folder.";

pub(super) fn schema() -> Value {
    object(
        json!({
            "path": {"type": "string", "minLength": 1, "description": "The file."},
            "content": {"type": "string", "description": "All of its text."},
        }),
        &["path", "content"],
    )
}

pub(super) fn run(path: &PathArgument, args: &Args, stop: &Stop) -> Result<String, ToolError> {
    let content = text(args, "content").unwrap_or_default();
    let place = path.target()?;
    stop.check()?;
    let existed = place.exists();
    place
        .replace(content.as_bytes())
        .map_err(|error| ToolError::failed(format!("`{place}` cannot be written: {error}")))?;
    let size = format!("{} bytes, {}", content.len(), count(content.lines().count(), "line"));
    Ok(if existed { format!("replaced `{place}` ({size})") } else { format!("created `{place}` ({size})") })
}

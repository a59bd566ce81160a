//! `List`: lists a folder.

use etude_files::beneath::EntryKind;
use serde_json::{Value, json};

use crate::builtin::{Stop, number, object, walk};
use crate::confine::{Access, PathArgument};
use crate::tool::{Args, ToolError};

pub(super) const DESCRIPTION: &str = "Lists a folder: directories end in `/`, files have their size in bytes, symbolic \
    links show where they lead. With a `depth` above 1 also what is below, without what `.gitignore` excludes.";

/// Maximum number of entries in one result.
const MAX_COUNT: usize = 1_000;

pub(super) fn schema() -> Value {
    object(
        json!({
            "path": {"type": "string", "minLength": 1, "description": "The folder; by default the app's."},
            "depth": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How deep to look; by default 1."},
        }),
        &[],
    )
}

pub(super) fn run(path: &PathArgument, args: &Args, stop: &Stop) -> Result<String, ToolError> {
    let start = path.existing(Access::Read)?;
    if start.as_dir().is_none() {
        return Err(ToolError::failed(format!("`{start}` is a file; use `Read` to see what is in it")));
    }
    let depth = number(args, "depth", 1);
    let (mut lines, mut more) = (Vec::new(), false);
    walk::walk(&start, Some(depth), depth > 1, stop, |entry| {
        if stop.withheld.holds(path, entry.below) {
            return Ok(true);
        }
        more = lines.len() == MAX_COUNT;
        if !more {
            lines.push(line(&entry.below.to_string_lossy(), entry));
        }
        Ok(!more)
    })?;
    if lines.is_empty() {
        return Ok("[the folder is empty]".to_owned());
    }
    if more {
        lines.push(format!("[more than {MAX_COUNT} entries; list one of the folders in it]"));
    }
    Ok(lines.join("\n"))
}

fn line(shown: &str, entry: &walk::Entry<'_>) -> String {
    match entry.kind {
        EntryKind::Dir => format!("{shown}/"),
        EntryKind::Link => match entry.target() {
            Ok(target) => format!("{shown} -> {}", target.display()),
            Err(_) => format!("{shown} -> ?"),
        },
        EntryKind::File => format!("{shown}  {}", entry.len().map_or_else(|_| "?".to_owned(), |len| len.to_string())),
        EntryKind::Other => format!("{shown}  (neither file nor folder)"),
    }
}

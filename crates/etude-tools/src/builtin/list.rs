//! `List`: what is in a folder.

use std::fs;

use serde_json::{Value, json};

use crate::builtin::{Stop, number, object, text, walk};
use crate::confine::{Access, Roots};
use crate::tool::{Args, ToolError};

pub(super) const DESCRIPTION: &str = "Lists a folder: directories end in `/`, files have their size in bytes, symbolic \
    links show where they lead. With a `depth` above 1 also what is below, without what `.gitignore` excludes.";

/// Most entries in one result.
const MOST: usize = 1_000;

pub(super) fn schema() -> Value {
    object(
        json!({
            "path": {"type": "string", "minLength": 1, "description": "The folder; by default the app's."},
            "depth": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How deep to look; by default 1."},
        }),
        &[],
    )
}

pub(super) fn run(roots: &Roots, args: &Args, stop: &Stop) -> Result<String, ToolError> {
    let start = roots.existing(text(args, "path").unwrap_or("."), Access::Read)?;
    if !start.real().is_dir() {
        return Err(ToolError::failed(format!("`{start}` is a file; use `Read` to see what is in it")));
    }
    let depth = number(args, "depth", 1);
    let (mut lines, mut more) = (Vec::new(), false);
    walk::walk(&start, Some(depth), depth > 1, stop, |entry| {
        more = lines.len() == MOST;
        if !more {
            lines.push(line(&walk::below(&start, entry.path()).to_string_lossy(), entry));
        }
        Ok(!more)
    })?;
    if lines.is_empty() {
        return Ok("[the folder is empty]".to_owned());
    }
    if more {
        lines.push(format!("[more than {MOST} entries; list one of the folders in it]"));
    }
    Ok(lines.join("\n"))
}

fn line(shown: &str, entry: &ignore::DirEntry) -> String {
    match entry.file_type() {
        Some(kind) if kind.is_dir() => format!("{shown}/"),
        Some(kind) if kind.is_symlink() => match fs::read_link(entry.path()) {
            Ok(target) => format!("{shown} -> {}", target.display()),
            Err(_) => format!("{shown} -> ?"),
        },
        Some(kind) if kind.is_file() => {
            let size = entry.metadata().map_or_else(|_| "?".to_owned(), |about| about.len().to_string());
            format!("{shown}  {size}")
        }
        _ => format!("{shown}  (neither file nor folder)"),
    }
}

//! `Edit`: replaces a passage of a file by another.

use std::path::Path;

use serde_json::{Value, json};

use crate::builtin::text::{MAX_SIZE, numbered, whole};
use crate::builtin::{Stop, count, flag, object, text};
use crate::confine::{Access, PathArgument};
use crate::tool::{Args, ToolError};

pub(super) const DESCRIPTION: &str = "Replaces `old_string` by `new_string` in a text file. `old_string` must be in the \
    file exactly once, character by character, without the line numbers that `Read` shows; give more of the lines \
    around it where it is not unique, or set `replace_all`.";

/// Maximum number of lines that are listed for a passage that is ambiguous or missing.
const MAX_PLACES: usize = 8;

/// Maximum length of a line that is compared, in bytes.
const MAX_LINE: usize = 1_000;

pub(super) fn schema() -> Value {
    object(
        json!({
            "path": {"type": "string", "minLength": 1, "description": "The file."},
            "old_string": {"type": "string", "minLength": 1, "description": "What is replaced."},
            "new_string": {"type": "string", "description": "What it is replaced by."},
            "replace_all": {"type": "boolean", "description": "Replace it wherever it is."},
        }),
        &["path", "old_string", "new_string"],
    )
}

pub(super) fn run(path: &PathArgument, args: &Args, stop: &Stop) -> Result<String, ToolError> {
    let place = path.existing(Access::Write)?;
    if stop.withheld.holds(path, Path::new("")) {
        let message =
            format!("reading `{place}` is denied, and an edit would reveal its content; replace it with `Write`");
        return Err(ToolError::terminal("PathRefused", message));
    }
    let file = whole(&place, stop)?;
    let (old, new) = (text(args, "old_string").unwrap_or_default(), text(args, "new_string").unwrap_or_default());
    if old == new {
        return Err(ToolError::terminal("InputInvalid", "`old_string` and `new_string` are the same"));
    }
    let (old, new) = line_ends(&file, old, new);
    let found: Vec<usize> = file.match_indices(&*old).map(|(at, _)| at).collect();
    let all = flag(args, "replace_all");
    match found.as_slice() {
        [] => return Err(missing(&place.to_string(), &file, (&old, &new), stop)?),
        [_] => {}
        _ if all => {}
        several => return Err(ambiguous(&place.to_string(), &file, several)),
    }
    stop.check()?;
    let added = (new.len() as u64).saturating_mul(found.len() as u64);
    let length = (file.len() - old.len() * found.len()) as u64 + added;
    if length > MAX_SIZE {
        let message = format!("`{place}` would have {length} bytes; the limit is {MAX_SIZE}");
        return Err(ToolError::terminal("InputInvalid", message));
    }
    let changed = file.replace(&*old, &new);
    place
        .replace(changed.as_bytes())
        .map_err(|error| ToolError::failed(format!("`{place}` cannot be written: {error}")))?;
    let first = line_of(&file, found[0]);
    let last = first + new.matches('\n').count();
    let shown = numbered(&changed, first.saturating_sub(3).max(1), (last + 3).min(first + 40));
    Ok(format!("replaced {} in `{place}`; around the first it reads now:\n{shown}", count(found.len(), "passage")))
}

/// Converts line ends: models write line feeds, but a file with CR LF line ends keeps them.
fn line_ends(file: &str, old: &str, new: &str) -> (String, String) {
    let crlf = file.matches("\r\n").count();
    if crlf > 0 && crlf == file.matches('\n').count() && !old.contains('\r') {
        let convert = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
        return (convert(old), convert(new));
    }
    (old.to_owned(), new.to_owned())
}

fn line_of(file: &str, at: usize) -> usize {
    file[..at].matches('\n').count() + 1
}

fn ambiguous(place: &str, file: &str, found: &[usize]) -> ToolError {
    let lines: Vec<usize> = found.iter().take(MAX_PLACES).map(|at| line_of(file, *at)).collect();
    let shown: Vec<String> = lines.iter().map(|line| numbered(file, *line, *line)).collect();
    let more = if found.len() > MAX_PLACES { format!("\n[{} more]", found.len() - MAX_PLACES) } else { String::new() };
    let message = format!(
        "`old_string` is in `{place}` {} times; give more of the lines around the one that is meant, or set \
         `replace_all`. It begins at:\n{}{more}",
        found.len(),
        shown.join("\n")
    );
    ToolError::terminal("NotUnique", message)
}

/// The error for a missing passage, with the lines that are nearest to its first line.
fn missing(place: &str, file: &str, (old, new): (&str, &str), stop: &Stop) -> Result<ToolError, ToolError> {
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = old.lines().map(squeeze).find(|line| !line.is_empty()).unwrap_or_default();
    let mut near: Vec<(usize, usize)> = Vec::new();
    for (at, line) in file.lines().enumerate().take(50_000) {
        stop.check()?;
        let line = squeeze(line);
        if wanted.len() > MAX_LINE || line.is_empty() || line.len() > 4 * wanted.len() + 40 || line.len() > MAX_LINE {
            continue;
        }
        let distance = if line == wanted { 0 } else { strsim::levenshtein(&line, &wanted) };
        if distance * 3 <= wanted.chars().count() {
            near.push((distance, at + 1));
        }
    }
    near.sort_unstable();
    near.truncate(MAX_PLACES);
    near.sort_unstable_by_key(|(_, line)| *line);
    let shown: Vec<String> = near.iter().map(|(_, line)| numbered(file, *line, *line)).collect();
    let hint = if shown.is_empty() {
        "read the file again: no line is similar to its first line".to_owned()
    } else {
        format!("check blanks and line breaks; lines like its first one are:\n{}", shown.join("\n"))
    };
    let advice = advice(file, old, new);
    Ok(ToolError::terminal("NotFound", format!("`old_string` is not in `{place}`; {hint}{advice}")))
}

/// A hint on the likely intention, since small models repeat the same call. Either the change was made already, or the new
/// text does not exist yet.
fn advice(file: &str, old: &str, new: &str) -> &'static str {
    if !new.trim().is_empty() && file.contains(new) {
        "\nthe file contains `new_string`: the change may have been made already"
    } else if new.contains(old) {
        "\nto add lines, give as `old_string` a line that is there now, and as `new_string` that line with the new ones"
    } else {
        ""
    }
}

//! Paths in calls, matched by their targets and not only by their spelling.
//!
//! A pattern that allows must match the path without links. A pattern that denies or asks matches either the written path or
//! that one, so that another name does not evade it. Arguments of foreign tools are recognized as paths only by their schema
//! and their names; for those, both paths must match.

use std::path::Path;

use etude_core::tool::{approval_key, remembered_key};
use globset::GlobMatcher;
use serde_json::Value;

use crate::confine::{PathArgument, Roots};
use crate::tool::{Args, Tool};

/// Common names of arguments with paths.
const NAMES: [&str; 16] = [
    "path", "paths", "file", "files", "file_path", "filePath", "filename", "fileName", "dir", "directory", "folder",
    "cwd", "source", "destination", "output", "root",
];

impl PathArgument {
    /// True if `glob` names the path. With `is_strict`, the written path does not count.
    pub(super) fn is_named(&self, glob: &GlobMatcher, is_strict: bool) -> bool {
        let names = if is_strict { self.names() } else { self.all_names(Path::new("")) };
        names.iter().any(|name| glob.is_match(name))
    }
}

/// An approval key from a template: with the arguments as written, and with their paths resolved.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) written: String,
    /// The key that people see, and under which an answer is remembered.
    pub(super) remembered: String,
    resolved: Option<String>,
}

impl Key {
    pub(super) fn of(template: &str, tool: &Tool, args: &Args, roots: &Roots) -> Self {
        let mut resolved = args.clone();
        for (name, value) in &mut resolved {
            let texts: &mut dyn Iterator<Item = &mut Value> = match value {
                Value::Array(items) => &mut items.iter_mut(),
                value => &mut std::iter::once(value),
            };
            for value in texts.filter(|_| is_path(tool, name)) {
                if let Value::String(text) = value {
                    let path = roots.resolve(text);
                    if !is_plain(&path) {
                        *text = path.shown();
                    }
                }
            }
        }
        let written = approval_key(template, args);
        let resolved = Some(approval_key(template, &resolved)).filter(|resolved| *resolved != written);
        Self { written, remembered: remembered_key(template, args), resolved }
    }

    /// True if `matches` holds for a form of the key; with `is_strict`, for both of its forms.
    pub(super) fn holds(&self, is_strict: bool, matches: impl Fn(&str) -> bool) -> bool {
        match &self.resolved {
            None => matches(&self.written),
            Some(resolved) if is_strict => matches(&self.written) && matches(resolved),
            Some(resolved) => matches(&self.written) || matches(resolved),
        }
    }
}

/// True if the argument `key` of a foreign tool seems to be a path, by its name and its schema.
pub(super) fn is_path(tool: &Tool, key: &str) -> bool {
    let name = super::head(key);
    let property = tool.input_schema.get("properties").and_then(|all| all.get(name));
    let format = |schema: &Value| schema.get("format").and_then(Value::as_str).map(str::to_owned);
    let format = property.and_then(|schema| format(schema).or_else(|| format(schema.get("items")?)));
    NAMES.contains(&name) || format.is_some_and(|format| matches!(&*format, "path" | "file-path" | "directory-path"))
}

/// True if `glob` matches the path in an argument of a foreign tool.
pub(super) fn holds(path: &PathArgument, glob: &GlobMatcher, is_strict: bool) -> bool {
    let is_written = glob.is_match(path.written());
    let leads = path.is_named(glob, is_strict);
    // `./notes/x` and the absolute path are other spellings of `notes/x`.
    if is_strict && !is_plain(path) { is_written && leads } else { is_written || leads }
}

/// True if the written path is the resolved one.
fn is_plain(path: &PathArgument) -> bool {
    let written = path.written().strip_prefix("./").unwrap_or(path.written());
    path.shown() == written || path.real().is_some_and(|real| real.as_os_str() == written)
}

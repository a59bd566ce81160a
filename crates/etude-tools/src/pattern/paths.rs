//! Paths in calls as patterns see them: judged where they lead, not as they are written.
//!
//! A pattern that allows needs the path without links to match. One that denies or asks needs the written path or that one:
//! it must not be missed by another name. Which arguments of tools of others are paths is known only by their schema and
//! their names; for those both names must match.

use etude_core::tool::approval_key;
use globset::GlobMatcher;
use serde_json::Value;

use crate::confine::{PathArgument, Roots};
use crate::tool::{Args, Tool};

/// Names that arguments with paths usually have.
const NAMES: [&str; 16] = [
    "path", "paths", "file", "files", "file_path", "filePath", "filename", "fileName", "dir", "directory", "folder",
    "cwd", "source", "destination", "output", "root",
];

impl PathArgument {
    /// True if the path is one that `glob` names; with `is_strict` the written one does not count.
    pub(super) fn is_named(&self, glob: &GlobMatcher, is_strict: bool) -> bool {
        let others = || glob.is_match(self.normal()) || self.real().is_some_and(|real| glob.is_match(real));
        self.names().iter().any(|name| glob.is_match(name)) || !is_strict && others()
    }
}

/// An approval key that a template makes: with the arguments as they are written, and with paths as they lead.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) written: String,
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
        Self { written, resolved }
    }

    /// True if `matches` holds for the key; with `is_strict` for both of its forms.
    pub(super) fn holds(&self, is_strict: bool, matches: impl Fn(&str) -> bool) -> bool {
        match &self.resolved {
            None => matches(&self.written),
            Some(resolved) if is_strict => matches(&self.written) && matches(resolved),
            Some(resolved) => matches(&self.written) || matches(resolved),
        }
    }
}

/// True if the argument `key` of a tool of others is a path, by all that is known.
pub(super) fn is_path(tool: &Tool, key: &str) -> bool {
    let name = super::head(key);
    let property = tool.input_schema.get("properties").and_then(|all| all.get(name));
    let format = |schema: &Value| schema.get("format").and_then(Value::as_str).map(str::to_owned);
    let format = property.and_then(|schema| format(schema).or_else(|| format(schema.get("items")?)));
    NAMES.contains(&name) || format.is_some_and(|format| matches!(&*format, "path" | "file-path" | "directory-path"))
}

/// True if `glob` matches the path that an argument of a tool of others names.
pub(super) fn holds(path: &PathArgument, glob: &GlobMatcher, is_strict: bool) -> bool {
    let is_written = glob.is_match(path.written());
    let leads = path.is_named(glob, is_strict);
    // `./notes/x` and the absolute path are other spellings of `notes/x`.
    if is_strict && !is_plain(path) { is_written && leads } else { is_written || leads }
}

/// True if the path is written as it leads.
fn is_plain(path: &PathArgument) -> bool {
    let written = path.written().strip_prefix("./").unwrap_or(path.written());
    path.shown() == written || path.real().is_some_and(|real| real.as_os_str() == written)
}

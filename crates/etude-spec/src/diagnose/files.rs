//! P0101 to P0103, P04xx and P0501: files that hold definitions, and files that definitions name.

use std::sync::Arc;

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{SourceFile, Span, is_utf16};
use crate::wording::{did_you_mean, number, quoted, visible};

type File = Arc<SourceFile>;

pub(crate) fn unreadable(path: &str, why: &str) -> Diagnostic {
    let file = SourceFile::new(path, "");
    Diagnostic::error(Code::Unreadable, &file, None, format!("{} cannot be read: {why}", quoted(path)))
}

pub(crate) fn too_large(path: &str, len: u64, limit: u64) -> Diagnostic {
    let file = SourceFile::new(path, "");
    let message = format!("{} has {} bytes; at most {} are read", quoted(path), number(len), number(limit));
    Diagnostic::error(Code::TooLarge, &file, None, message)
        .hint("move data to separate files and read them in a code step")
}

/// The `bytes` of a file are not UTF-8.
pub(crate) fn not_utf8(path: &str, bytes: &[u8]) -> Diagnostic {
    if is_utf16(bytes) {
        return utf16(path);
    }
    let valid = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let file = SourceFile::new(path, valid);
    let at = Span::new(valid.len(), valid.len());
    let message = format!("{} is not UTF-8: the byte after this position cannot be decoded", quoted(path));
    Diagnostic::error(Code::NotUtf8, &file, at, message).hint("save the file as UTF-8")
}

/// A file is UTF-16. It has no single byte to correct, so the message has no position.
pub(crate) fn utf16(path: &str) -> Diagnostic {
    let message = format!("{} is UTF-16, not UTF-8: it begins with the byte order mark of UTF-16", quoted(path));
    Diagnostic::error(Code::NotUtf8, &SourceFile::new(path, ""), None, message)
        .hint("save the file as UTF-8, or convert it: `iconv -f utf-16 -t utf-8 FILE > NEW`")
}

/// The purpose of a file that a pipeline names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Schema,
    Validator,
    Image,
    Stage,
}

impl Purpose {
    /// The purpose as the beginning of a sentence.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Schema => "the schema",
            Self::Validator => "the validator",
            Self::Image => "the image",
            Self::Stage => "the stage",
        }
    }
}

pub(crate) fn missing_file(
    file: &File,
    at: Span,
    purpose: Purpose,
    path: &str,
    full: &str,
    beside: &[String],
) -> Diagnostic {
    let what = purpose.words();
    Diagnostic::error(Code::MissingFile, file, at, format!("{what} {} does not exist", quoted(path)))
        .label(format!("there is no {}", visible(full)))
        .hint(match nearest(path, beside) {
            Some(near) => near,
            None if purpose == Purpose::Validator && path.contains(' ') => {
                "a command is written `validate: {command: …}`; text alone is a path".into()
            }
            None => "paths are relative to the pipeline's directory".into(),
        })
}

/// The file of the same directory with the most similar name.
fn nearest(path: &str, beside: &[String]) -> Option<String> {
    let (dir, name) = path.rsplit_once('/').map_or(("", path), |(dir, name)| (&path[..=dir.len()], name));
    did_you_mean(name, beside.iter().map(String::as_str))
        .map(|found| format!("did you mean {}?", quoted(&format!("{dir}{found}"))))
}

pub(crate) fn leaves_app(file: &File, at: Span, what: &str, path: &str) -> Diagnostic {
    Diagnostic::error(Code::LeavesApp, file, at, format!("{what} {} lies outside the app's directory", quoted(path)))
        .hint("copy the file into the app, and name it by a path relative to the pipeline's directory")
}

pub(crate) fn not_a_file(file: &File, at: Span, what: &str, path: &str) -> Diagnostic {
    Diagnostic::error(Code::NotAFile, file, at, format!("{what} {} is not a regular file", quoted(path)))
}

pub(crate) fn unreadable_at(file: &File, at: Span, what: &str, path: &str, why: &str) -> Diagnostic {
    Diagnostic::error(Code::Unreadable, file, at, format!("{what} {} cannot be read: {why}", quoted(path)))
}

/// `at` is the place in the schema file `path`.
pub(crate) fn schema_not_json(file: &File, at: Span, path: &str, why: &str) -> Diagnostic {
    let is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
    Diagnostic::error(Code::SchemaNotJson, file, at, format!("the schema {} is not JSON: {why}", quoted(path)))
        .maybe_hint(is_yaml.then(|| "a schema in YAML is a mapping in the step: `schema: {type: object}`".to_owned()))
}

pub(crate) fn not_a_schema(file: &File, at: Span, path: &str, why: &str) -> Diagnostic {
    Diagnostic::error(Code::NotASchema, file, at, format!("{} is not a JSON Schema: {why}", quoted(path)))
}

pub(crate) fn schema_reference(file: &File, at: Span, reference: &str, why: &str, hint: &str) -> Diagnostic {
    Diagnostic::error(
        Code::SchemaReference,
        file,
        at,
        format!("`$ref` to {} cannot be followed: {why}", quoted(reference)),
    )
    .hint(hint)
}

/// `beside` are the names in the script's expected directory, `place` describes where commands run.
pub(crate) fn missing_script(file: &File, at: Span, path: &str, beside: &[String], place: &str) -> Diagnostic {
    Diagnostic::error(
        Code::MissingScript,
        file,
        at,
        format!("the command names {}, which does not exist", quoted(path)),
    )
    .severity(Severity::Warning)
    .hint(nearest(path, beside).unwrap_or_else(|| place.to_owned()))
}

/// `why` follows the name of the script.
pub(crate) fn unusable_script(file: &File, at: Span, path: &str, why: &str, hint: impl Into<String>) -> Diagnostic {
    Diagnostic::error(Code::UnusableScript, file, at, format!("the script {} {why}", quoted(path)))
        .severity(Severity::Warning)
        .hint(hint)
}

/// `misnamed` is a file of the directory with the right name but another extension.
pub(crate) fn no_pipeline_file(dir: &str, misnamed: Option<&str>) -> Diagnostic {
    let file = SourceFile::new(dir, "");
    let other = match dir.contains("/_") || !dir.starts_with("pipelines/") {
        true => "add one, or remove the directory",
        false => "add one, or move the directory out of pipelines/; a name that begins with `_` is ignored",
    };
    Diagnostic::error(Code::NoPipelineFile, &file, None, format!("the directory {} has no pipeline.yaml", quoted(dir)))
        .severity(Severity::Warning)
        .hint(misnamed.map_or_else(|| other.to_owned(), rename))
}

/// A YAML file in `pipelines/` itself, where only directories are pipelines.
pub(crate) fn pipeline_without_directory(path: &str, stem: &str) -> Diagnostic {
    let file = SourceFile::new(path, "");
    Diagnostic::error(
        Code::NoPipelineFile,
        &file,
        None,
        format!("{} is not read: a pipeline is a directory", quoted(path)),
    )
    .severity(Severity::Warning)
    .hint(format!(
        "move it to {}; a name that begins with `_` is ignored",
        quoted(&format!("pipelines/{stem}/pipeline.yaml"))
    ))
}

/// An entry of `pipelines/` that cannot be read; `why` is a clause about it.
pub(crate) fn unread_pipeline(path: &str, why: &str) -> Diagnostic {
    let file = SourceFile::new(path, "");
    Diagnostic::error(Code::NoPipelineFile, &file, None, format!("{} is not read: {why}", quoted(path)))
        .severity(Severity::Warning)
        .hint("let it lead to a directory of the app, or remove it; a name that begins with `_` is ignored")
}

/// A file that would be read if its name ended in `.yaml`.
pub(crate) fn ends_in_yml(path: &str) -> Diagnostic {
    let file = SourceFile::new(path, "");
    let message = format!("{} is not read, because its name ends in `.yml`", quoted(path));
    Diagnostic::error(Code::EndsInYml, &file, None, message).severity(Severity::Warning).hint(rename(path))
}

/// Hint on renaming a file whose name ends in `.yml`.
pub(crate) fn rename(path: &str) -> String {
    let stem = path.strip_suffix(".yml").unwrap_or(path);
    format!("rename {} to {}", quoted(path), quoted(&format!("{stem}.yaml")))
}

//! Faults of an app's tools: names, schemas and approval keys.

use std::sync::Arc;

use crate::code::Code;
use crate::diagnose::values;
use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{SourceFile, Span};
use crate::wording::{meant, plain, quoted, quoted_list};

type File = Arc<SourceFile>;

/// A tool has the name of a built-in one.
pub(crate) fn built_in_name(file: &File, at: Span, name: &str, built_in: &[&str]) -> Diagnostic {
    let why = format!("the built-in tools are {}", quoted_list(built_in, "and"));
    values::reserved_name(file, at, "a tool", name, &why)
}

/// A tool has a name that is reserved for MCP servers.
pub(crate) fn mcp_name(file: &File, at: Span, name: &str) -> Diagnostic {
    values::reserved_name(file, at, "a tool", name, "tools of MCP servers begin with `mcp__`")
}

pub(crate) fn bad_name(file: &File, at: Span, name: &str) -> Diagnostic {
    values::bad_name(file, at, "a tool", name, "1 to 64 letters, digits, `_` and `-`")
}

/// The name fault of a script, which points at the file as a whole. A script whose file name is invalid is not a tool.
pub(crate) fn script_name(mut fault: Diagnostic) -> Diagnostic {
    fault.span = None;
    if fault.code == Code::BadName {
        let hint =
            "rename it, give it a `tools/<name>.yaml`, or remove its execute permission if agents must not call it";
        return fault.severity(Severity::Warning).hint(hint);
    }
    fault.hint("rename the file, or remove its execute permission if agents must not call it")
}

pub(crate) fn name_mismatch(file: &File, at: Span, name: &str, stem: &str) -> Diagnostic {
    let message = format!("the tool is named {}, but its file is {}", quoted(name), quoted(&format!("{stem}.yaml")));
    Diagnostic::error(Code::NameMismatch, file, at, message)
        .label("must be the file's name")
        .hint(format!("write `name: {}`, or rename the file", plain(stem)))
}

pub(crate) fn same_name(path: &str, first: &str, name: &str) -> Diagnostic {
    let message = format!("two tools are named {}: this one, and {}", quoted(name), quoted(first));
    Diagnostic::error(Code::DuplicateName, &SourceFile::new(path, ""), None, message)
        .hint("rename one of the files; the extension is not part of the name")
}

pub(crate) fn bad_schema(file: &File, at: Span, why: &str) -> Diagnostic {
    Diagnostic::error(Code::NotASchema, file, at, format!("`inputSchema` is not a JSON Schema: {why}"))
}

pub(crate) fn schema_of_no_object(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::NotASchema, file, at, "`inputSchema` does not describe an object".to_owned())
        .label("tool arguments must be an object")
        .hint("add `type: object`")
}

pub(crate) fn key_reference(file: &File, at: Span, reference: &str) -> Diagnostic {
    Diagnostic::error(Code::NotAReference, file, at, format!("{} is not an argument", quoted(reference)))
        .hint("an approval key refers to arguments: `{{args.name}}`")
}

pub(crate) fn key_argument(file: &File, at: Span, name: &str, declared: &[&str]) -> Diagnostic {
    let message = format!("`approvalKey` refers to the argument {}, which `inputSchema` does not have", quoted(name));
    let hint = meant(name, declared.iter().copied());
    Diagnostic::error(Code::UnknownInput, file, at, message)
        .label(if declared.is_empty() {
            "it has none".to_owned()
        } else {
            format!("arguments: {}", quoted_list(declared, "and"))
        })
        .maybe_hint(hint)
}

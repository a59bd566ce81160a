//! P01xx: YAML that is unreadable, or means something other than it seems to.

use std::sync::Arc;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::source::{SourceFile, Span};
use crate::wording::{number, plain, quoted};

type File = Arc<SourceFile>;

pub(crate) fn syntax(file: &File, at: Span, why: &str, hint: Option<String>) -> Diagnostic {
    Diagnostic::error(Code::Syntax, file, at, format!("the YAML cannot be parsed: {why}")).maybe_hint(hint)
}

pub(crate) fn duplicate_key(file: &File, at: Span, first: Span, key: &str) -> Diagnostic {
    Diagnostic::error(Code::DuplicateKey, file, at, format!("{} is given twice", quoted(key)))
        .label("given again here")
        .related(first, "first given here")
        .hint("remove one of the two")
}

pub(crate) fn unknown_alias(file: &File, at: Span, name: &str) -> Diagnostic {
    let message = format!("the alias {} has no earlier anchor", quoted(&format!("*{name}")));
    Diagnostic::error(Code::UnknownAlias, file, at, message)
        .label(format!("no value above has the anchor `&{}`", plain(name)))
        .hint("text that begins with `*` must be quoted")
}

pub(crate) fn recursive_alias(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::UnknownAlias, file, at, "an alias is inside its own anchor".into())
        .label("this would contain itself")
}

pub(crate) fn expansion_too_large(file: &File, at: Span, limit: usize) -> Diagnostic {
    let message = format!("aliases expand to more than {} values", number(limit as u64));
    Diagnostic::error(Code::ExpansionTooLarge, file, at, message).label("the limit is exceeded here")
}

pub(crate) fn too_deep(file: &File, at: Span, limit: usize) -> Diagnostic {
    Diagnostic::error(Code::TooDeep, file, at, format!("values are nested more than {limit} levels deep"))
}

pub(crate) fn unknown_tag(file: &File, at: Span, tag: &str) -> Diagnostic {
    Diagnostic::error(Code::UnknownTag, file, at, format!("the YAML tag {} is not supported", quoted(tag)))
        .hint("remove it; text that begins with `!` must be quoted")
}

pub(crate) fn several_documents(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::SeveralDocuments, file, at, "a second YAML document begins here".into())
        .label("only the first is read")
        .hint("a file has one definition: move the other document to a separate file")
}

pub(crate) fn empty_file(file: &File) -> Diagnostic {
    Diagnostic::error(Code::EmptyFile, file, Span::default(), "the file defines nothing".into()).hint(
        match file.path().starts_with("pipelines/") {
            true => "`etude new` writes a pipeline to start from",
            false => "add its fields, or remove the file",
        },
    )
}

pub(crate) fn key_not_text(file: &File, at: Span, kind: &str) -> Diagnostic {
    Diagnostic::error(Code::KeyNotText, file, at, format!("a key must be text, not {kind}"))
}

pub(crate) fn merge_key(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::MergeKey, file, at, "merge keys (`<<`) are not supported".into())
        .hint("copy the fields; an alias can replace only a whole value")
}

pub(crate) fn unquoted_template(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::UnquotedTemplate, file, at, "a value that begins with `{{` must be quoted".into())
        .label("YAML reads this as a mapping")
        .hint("put it in quotes: `\"{{…}}\"`")
}

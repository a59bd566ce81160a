//! Diagnostics of skills: their frontmatter, their names, and their location (C-2; words `SK_*` of C-0.4).

use std::sync::Arc;

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Severity};
use crate::fields::package::SKILL;
use crate::frontmatter::Fault;
use crate::source::{SourceFile, Span};
use crate::wording::{number, plain, quoted, quoted_list, visible};

type File = Arc<SourceFile>;

/// A skill has no readable frontmatter.
pub(crate) fn no_frontmatter(file: &File, fault: Fault) -> Diagnostic {
    of_fault(file, fault, "a skill", "name: …` and `description: …").named("SK_YAML")
}

/// Same as [`no_frontmatter`], for any file: `what` is the intended definition, `fields` are its first fields.
pub(crate) fn of_fault(file: &File, fault: Fault, what: &str, fields: &str) -> Diagnostic {
    let start = Span::new(0, file.text().lines().next().map_or(0, str::len));
    match fault {
        Fault::Missing => Diagnostic::error(
            Code::NoFrontmatter,
            file,
            start,
            format!("the file does not begin with `---`, so {what} has no fields"),
        )
        .hint(format!("begin with a line `---`, then `{fields}`, then a line `---`")),
        Fault::Unclosed => {
            Diagnostic::error(Code::NoFrontmatter, file, start, "the frontmatter does not end".to_owned())
                .hint("add a line `---` after it")
        }
        Fault::TooLarge => {
            let most = number(crate::frontmatter::LIMIT as u64);
            Diagnostic::error(Code::TooLarge, file, None, format!("the frontmatter has more than {most} bytes"))
                .hint("every listing reads the frontmatter; move long text into the body")
        }
        Fault::Utf16 => super::files::utf16(file.path()),
        Fault::NotUtf8 => {
            let at = Span::new(file.text().len(), file.text().len());
            let message = "the file is not UTF-8: the byte after this position cannot be decoded".to_owned();
            Diagnostic::error(Code::NotUtf8, file, at, message).hint("save the file as UTF-8")
        }
    }
}

pub(crate) fn byte_order_mark(file: &File) -> Diagnostic {
    Diagnostic::error(Code::NoFrontmatter, file, Span::new(0, 3), "the file begins with a byte order mark".to_owned())
        .named("SK_YAML")
        .hint("save the file as UTF-8 without it; many clients do not find `---` behind it")
}

pub(crate) fn not_a_mapping(file: &File, at: Span, kind: &str) -> Diagnostic {
    let message = format!("the frontmatter of a skill is a mapping from fields to values, not {kind}");
    Diagnostic::error(Code::WrongType, file, at, message).named("SK_YAML").hint("begin with `name: …`")
}

/// Turns a fault of the YAML into one of a skill.
pub(crate) fn yaml(diagnostic: Diagnostic, severity: Severity) -> Diagnostic {
    diagnostic.named("SK_YAML").severity(severity)
}

pub(crate) fn recovered(unparsable: Diagnostic) -> Diagnostic {
    unparsable.named("SK_YAML").severity(Severity::Warning).hint("put the value in quotes; it was read as if it were")
}

pub(crate) fn not_portable(file: &File, at: Span, what: &str) -> Diagnostic {
    Diagnostic::error(Code::NotPortable, file, at, format!("skills cannot use {what}"))
        .named("SK_YAML")
        .hint("write the value out")
}

pub(crate) fn flow_style(file: &File, at: Span) -> Diagnostic {
    let message = "values in `[…]` and `{…}` are not portable: the reference validator does not read them".to_owned();
    Diagnostic::error(Code::NotPortable, file, at, message)
        .severity(Severity::Warning)
        .named("SK_FLOW_STYLE")
        .hint("write one entry per line")
}

pub(crate) fn tools_as_list(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(
        Code::NotPortable,
        file,
        at,
        "`allowed-tools` is a list here, and text in the specification".to_owned(),
    )
    .severity(Severity::Note)
    .path("allowed-tools")
    .hint("write the tools on one line, with blanks between them")
}

pub(crate) fn unknown_field(file: &File, at: Span, key: &str) -> Diagnostic {
    Diagnostic::error(Code::UnknownField, file, at, format!("{} is not a field of a skill", quoted(key)))
        .label(format!("a skill has {}", quoted_list(&SKILL.names().collect::<Vec<_>>(), "and")))
        .named("SK_UNKNOWN_FIELD")
        .path(key)
        .hint("put client-specific fields under `metadata`")
}

pub(crate) fn wrong_type(file: &File, at: Span, key: &str, expected: &str, kind: &str) -> Diagnostic {
    Diagnostic::error(Code::WrongType, file, at, format!("`{}` must be {expected}, not {kind}", plain(key))).path(key)
}

/// An element of the list `key` that is not text; `kind` is its type.
pub(crate) fn element(file: &File, at: Span, key: &str, kind: &str) -> Diagnostic {
    let message = format!("`{}` has {kind} in its list, and every element must be text", plain(key));
    Diagnostic::error(Code::WrongType, file, at, message).path(key)
}

pub(crate) fn missing_name(file: &File, at: Span, directory: &str) -> Diagnostic {
    let diagnostic = Diagnostic::error(Code::MissingField, file, at, "the skill has no `name`".to_owned())
        .named("SK_NAME_FORMAT")
        .path("name");
    diagnostic.hint(format!("add `name: {}`, the name of its directory", plain(directory)))
}

/// Reason why the name of a skill is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameFault {
    /// It has more characters than `most`.
    TooLong { length: usize, most: usize },
    /// It has upper-case letters; the value is the name without them.
    NotLowerCase(String),
    /// It begins or ends with a hyphen.
    EdgeHyphen,
    /// It has two hyphens in a row.
    DoubleHyphen,
    /// It has a character that is not allowed.
    Character(char),
}

/// `better` is a valid name, if one can be derived.
pub(crate) fn bad_name(file: &File, at: Span, name: &str, fault: NameFault, better: Option<String>) -> Diagnostic {
    use NameFault as F;
    let why = match &fault {
        F::TooLong { length, most } => format!("it has {length} characters; at most {most} are allowed"),
        F::NotLowerCase(_) => "upper-case letters are not allowed".to_owned(),
        F::EdgeHyphen => "it begins or ends with a hyphen".to_owned(),
        F::DoubleHyphen => "it has two hyphens in a row".to_owned(),
        F::Character(c) => {
            format!("{} is not allowed: names have letters, digits and single hyphens", quoted(&c.to_string()))
        }
    };
    let better = match fault {
        F::NotLowerCase(lower) => Some(lower),
        _ => better,
    };
    Diagnostic::error(Code::BadName, file, at, format!("{} cannot be the name of a skill: {why}", quoted(name)))
        .named("SK_NAME_FORMAT")
        .path("name")
        .maybe_hint(better.filter(|better| better != name).map(|better| format!("for example {}", quoted(&better))))
}

pub(crate) fn name_and_directory(file: &File, at: Span, name: &str, directory: &str) -> Diagnostic {
    let message = format!("the skill is named {}, but its directory is {}", quoted(name), quoted(directory));
    Diagnostic::error(Code::NameMismatch, file, at, message)
        .label("must be the directory's name")
        .named("SK_NAME_DIR")
        .path("name")
        .hint("rename one of the two")
}

/// A skill without a usable description is not loaded in any profile.
pub(crate) fn no_description(file: &File, at: Span, why: &str) -> Diagnostic {
    let code = if why.contains("no `description`") { Code::MissingField } else { Code::Empty };
    Diagnostic::error(code, file, at, why.to_owned())
        .named("SK_DESCRIPTION")
        .path("description")
        .hint("describe what the skill does and when to use it: agents select skills only by the description")
}

pub(crate) fn long_description(file: &File, at: Span, length: usize, most: usize) -> Diagnostic {
    let (length, most) = (number(length as u64), number(most as u64));
    Diagnostic::error(
        Code::TooLong,
        file,
        at,
        format!("`description` has {length} characters; at most {most} are allowed"),
    )
    .named("SK_DESCRIPTION")
    .path("description")
    .hint("every conversation includes the description; move details into the body")
}

pub(crate) fn compatibility(file: &File, at: Span, length: usize, most: usize) -> Diagnostic {
    let (code, message) = if length == 0 {
        (Code::Empty, "`compatibility` is empty".to_owned())
    } else {
        let message = format!("`compatibility` has {length} characters; at most {most} are allowed");
        (Code::TooLong, message)
    };
    Diagnostic::error(code, file, at, message)
        .named("SK_COMPATIBILITY")
        .path("compatibility")
        .hint("name products, packages and network needs, or leave it out")
}

/// No skill was found: `path` is the place of the expected `SKILL.md`.
pub fn not_a_skill(path: &str) -> Diagnostic {
    let message = format!("{} has no SKILL.md", quoted(path));
    Diagnostic::error(Code::MissingFile, &SourceFile::new(path, ""), None, message)
        .named("SK_YAML")
        .hint("the file's name is in capital letters")
}

/// A file that would be a `SKILL.md` if its name were in capitals.
pub fn file_case(path: &str) -> Diagnostic {
    let name = path.rsplit('/').next().unwrap_or_default();
    let message = format!("{} is not read: the file of a skill must be named SKILL.md", plain_path(path));
    Diagnostic::error(Code::FileCase, &SourceFile::new(path, ""), None, message)
        .severity(Severity::Warning)
        .named("SK_FILE_CASE")
        .hint(rename_to_capitals(name))
}

/// Hint on renaming a file `skill.md`.
pub(crate) fn rename_to_capitals(name: &str) -> String {
    format!("rename {} to `SKILL.md`", quoted(name))
}

/// A directory of skills cannot be listed.
pub fn unreadable_root(path: &str, why: &str) -> Diagnostic {
    super::files::unreadable(path, why)
        .severity(Severity::Warning)
        .hint("make it a directory that you can read, or remove it")
}

/// The text after the frontmatter is not UTF-8 from byte `at` of the file on.
pub fn body_not_utf8(path: &str, at: u64) -> Diagnostic {
    let message = format!("the body is not UTF-8: byte {} of the file cannot be decoded", number(at));
    Diagnostic::error(Code::NotUtf8, &SourceFile::new(path, ""), None, message)
        .named("SK_YAML")
        .hint("save the file as UTF-8")
}

/// A `SKILL.md` is unreadable.
pub fn unreadable(path: &str, why: &str) -> Diagnostic {
    super::files::unreadable(path, why).named("SK_YAML")
}

/// A skill is hidden by an earlier one of the same name.
pub fn shadowed(path: &str, name: &str, by: &str) -> Diagnostic {
    let message =
        format!("the skill {} in {} is not used: {} has the same name", quoted(name), plain_path(path), plain_path(by));
    Diagnostic::error(Code::Shadowed, &SourceFile::new(path, ""), None, message)
        .severity(Severity::Warning)
        .named("SK_SHADOWED")
        .hint("rename or remove one of them")
}

/// Directories below `first` were not searched.
pub fn too_deep(root: &str, deepest: usize, first: &str) -> Diagnostic {
    let message = format!(
        "skills more than {deepest} directories below {} are not found: {}",
        plain_path(root),
        plain_path(first)
    );
    Diagnostic::error(Code::ScanBound, &SourceFile::new(root, ""), None, message)
        .severity(Severity::Warning)
        .named("SK_TOO_DEEP")
        .hint("move them up")
}

/// A search has reached its limit of directories.
pub fn too_many(root: &str, most: usize) -> Diagnostic {
    let most = number(most as u64);
    let message =
        format!("{} has more than {most} directories without a skill; the rest was not searched", plain_path(root));
    Diagnostic::error(Code::ScanBound, &SourceFile::new(root, ""), None, message)
        .severity(Severity::Warning)
        .named("SK_TOO_MANY")
        .hint("keep skills apart from other files")
}

/// Links named `SKILL.md` that lead nowhere.
pub fn dangling(first: &str, count: usize) -> Diagnostic {
    let more = if count > 1 { format!(" (and {} more)", number(count as u64 - 1)) } else { String::new() };
    let message = format!("the link {} leads nowhere{more}", plain_path(first));
    Diagnostic::error(Code::DanglingLink, &SourceFile::new(first, ""), None, message)
        .severity(Severity::Warning)
        .named("SK_DANGLING")
        .hint("remove it, or restore its target")
}

/// A path in back-quotes; unlike names, paths are not shortened.
fn plain_path(path: &str) -> String {
    format!("`{}`", visible(path))
}

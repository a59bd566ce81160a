//! Diagnostics of applications: their contract, their packages, and their commands (C-1.19; the words `AA_*`).

use std::sync::Arc;

use etude_core::report::duration;

use super::skills::of_fault;
use crate::code::Code;
use crate::diagnostic::{Diagnostic, Severity};
use crate::frontmatter::Fault;
use crate::source::{SourceFile, Span};
use crate::wording::{cause, list, meant, number, plain, quoted, quoted_list};

type File = Arc<SourceFile>;

fn whole(code: Code, path: &str, message: String) -> Diagnostic {
    Diagnostic::error(code, &SourceFile::new(path, ""), None, message)
}

// The file.

pub(crate) fn no_frontmatter(file: &File, fault: Fault) -> Diagnostic {
    let word = if matches!(fault, Fault::Missing | Fault::Unclosed) { "AA_NO_FRONTMATTER" } else { "AA_BAD_YAML" };
    of_fault(file, fault, "the package", "name: …`, `entry: …`, `commands: …").named(word)
}

pub(crate) fn yaml(diagnostic: Diagnostic) -> Diagnostic {
    let word = if diagnostic.code == Code::DuplicateKey { "AA_DUP_KEY" } else { "AA_BAD_YAML" };
    diagnostic.named(word)
}

pub(crate) fn not_a_mapping(file: &File, at: Span, kind: &str) -> Diagnostic {
    Diagnostic::error(
        Code::WrongType,
        file,
        at,
        format!("the frontmatter of a package is a mapping from fields to values, not {kind}"),
    )
    .named("AA_NOT_MAPPING")
    .hint("start with `name: …`")
}

pub(crate) fn missing(file: &File, at: Span, field: &str) -> Diagnostic {
    let example = match field {
        "entry.command" => "`entry: {command: python3 app/main.py}`",
        "commands" => "`commands: [list, add]`",
        "skills" => "`skills: [NAME]` for `skills/NAME/SKILL.md`",
        "version" => "`version: 0.1.0`",
        _ => "one line of text",
    };
    Diagnostic::error(Code::MissingField, file, at, format!("the package has no `{field}`"))
        .named("AA_MISSING_FIELD")
        .path(field)
        .hint(format!("add it: {example}"))
}

pub(crate) fn bad_type(file: &File, at: Span, field: &str, expected: &str, kind: &str) -> Diagnostic {
    Diagnostic::error(Code::WrongType, file, at, format!("`{field}` must be {expected}, not {kind}"))
        .named("AA_BAD_TYPE")
        .path(field)
        .maybe_hint((field == "entry").then(|| "write `entry: {command: …}`".to_owned()))
}

pub(crate) fn bad_entry(file: &File, at: Span, why: &str) -> Diagnostic {
    Diagnostic::error(Code::BadCommand, file, at, format!("`entry.command` cannot be split into words: {why}"))
        .named("AA_BAD_TYPE")
        .path("entry.command")
}

pub(crate) fn schema_unsupported(file: &File, at: Span, schema: &str, known: &str) -> Diagnostic {
    Diagnostic::error(Code::UnknownWord, file, at, format!("the schema {} is not known", quoted(schema)))
        .named("AA_SCHEMA_UNSUPPORTED")
        .path("schema")
        .label(format!("must be `{known}`"))
        .hint("a later version of etude may know it")
}

pub(crate) fn kind_mismatch(file: &File, at: Span, kind: &str) -> Diagnostic {
    Diagnostic::error(Code::UnknownWord, file, at, format!("the kind of an APP.md must be `app`, not {}", quoted(kind)))
        .named("AA_KIND_MISMATCH")
        .path("kind")
}

pub(crate) fn foreign_dialect(file: &File, at: Span) -> Diagnostic {
    let message = "this APP.md belongs to another host: it has `appType` and no `entry.command`".to_owned();
    Diagnostic::error(Code::ForeignDialect, file, at, message)
        .named("AA_FOREIGN_DIALECT")
        .hint("only its own host can run it; an Agent Application has `entry` and `commands`")
}

pub(crate) fn version(file: &File, at: Span, version: &str) -> Diagnostic {
    Diagnostic::error(Code::WrongType, file, at, format!("the version {} is not of the form `1.2.3`", quoted(version)))
        .severity(Severity::Warning)
        .path("version")
}

pub(crate) fn slug_derived(file: &File, at: Span, slug: &str) -> Diagnostic {
    Diagnostic::error(Code::Derived, file, at, format!("the package has no `slug`; {} is used", quoted(slug)))
        .severity(Severity::Warning)
        .named("AA_SLUG_DERIVED")
        .path("slug")
        .hint(format!("add `slug: {slug}`, so that it stays the same when the directory is renamed"))
}

pub(crate) fn slug_format(file: &File, at: Span, slug: &str, used: &str) -> Diagnostic {
    Diagnostic::error(Code::BadName, file, at, format!("{} is not a slug; {} is used", quoted(slug), quoted(used)))
        .severity(Severity::Warning)
        .named("AA_SLUG_FORMAT")
        .path("slug")
        .label("lower-case letters and digits with single hyphens between them")
}

pub(crate) fn duplicate_command(file: &File, at: Span, command: &str) -> Diagnostic {
    Diagnostic::error(Code::Repeated, file, at, format!("the command {} is declared twice", quoted(command)))
        .severity(Severity::Warning)
        .named("AA_DUP_COMMAND")
        .path("commands")
}

pub(crate) fn skill_path(file: &File, at: Span, name: &str) -> Diagnostic {
    Diagnostic::error(Code::LeavesApp, file, at, format!("{} is not a short name of a skill", quoted(name)))
        .named("AA_SKILL_PATH")
        .path("skills")
        .hint("`X` stands for `skills/X/SKILL.md`: letters, digits, `.`, `_` and `-`, a letter or digit first")
}

pub(crate) fn no_skills(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::Empty, file, at, "`skills` is empty: agents receive only the contract".to_owned())
        .severity(Severity::Warning)
        .named("AA_NO_SKILLS")
        .path("skills")
}

pub(crate) fn scheduling_value(file: &File, at: Span, shown: &str) -> Diagnostic {
    Diagnostic::error(Code::UnknownWord, file, at, format!("`scheduling` cannot be {shown}; `notSupported` is used"))
        .severity(Severity::Warning)
        .named("AA_SCHED_VALUE")
        .path("scheduling")
        .label("must be `supported` or `notSupported`")
}

pub(crate) fn confirmation_coerced(file: &File, at: Span, one: &str) -> Diagnostic {
    Diagnostic::error(
        Code::WrongType,
        file,
        at,
        "`confirmationRequired` must be a list; the value is used as a list with one entry".to_owned(),
    )
    .severity(Severity::Warning)
    .named("AA_CONFIRM_COERCED")
    .path("confirmationRequired")
    .hint(format!("write `[{}]`", plain(one)))
}

pub(crate) fn confirmation_unknown(file: &File, at: Span, command: &str, commands: &[String]) -> Diagnostic {
    Diagnostic::error(Code::NotDeclared, file, at, format!("{} is not among `commands`", quoted(command)))
        .severity(Severity::Warning)
        .named("AA_CONFIRM_UNKNOWN")
        .path("confirmationRequired")
        .maybe_hint(meant(command, commands.iter().map(String::as_str)))
}

pub(crate) fn state_path(file: &File, at: Span, shown: &str) -> Diagnostic {
    let message = format!("`metadata.statePaths` must list globs below `app/`; {} selects no state", quoted(shown));
    Diagnostic::error(Code::LeavesApp, file, at, message)
        .severity(Severity::Warning)
        .named("AA_STATE_PATH")
        .path("metadata.statePaths")
        .hint("write for example `[\"app/cache/**\"]`; changes to other files end the approval of the package")
}

pub(crate) fn unknown_field(file: &File, at: Span, key: &str) -> Diagnostic {
    Diagnostic::error(Code::UnknownField, file, at, format!("{} is not a field of a package", quoted(key)))
        .severity(Severity::Note)
        .named("AA_UNKNOWN_FIELD")
        .path(key)
        .hint("put tool-specific fields under `metadata`")
}

/// The body lacks sections that agents need.
pub fn sections(path: &str, missing: &[&str]) -> Diagnostic {
    whole(Code::MissingSection, path, format!("the contract has no section {}", quoted_list(missing, "and")))
        .severity(Severity::Note)
        .named("AA_BODY_SECTION_MISSING")
        .hint("agents use the package with this text only")
}

// The package.

/// There is no `APP.md` (C1).
pub fn missing_app_file(path: &str) -> Diagnostic {
    whole(Code::MissingFile, path, "the directory has no file `APP.md`".to_owned())
        .named("AA_MISSING_APP_FILE")
        .hint("a package begins with it: its contract, with `name`, `entry` and `commands`")
}

/// There is no `app/` (C2).
pub fn missing_app_dir(path: &str) -> Diagnostic {
    whole(Code::MissingFile, path, "the package has no directory `app`".to_owned())
        .named("AA_MISSING_APP_DIR")
        .hint("it contains the code and the state")
}

/// There is no `skills/` (C3).
pub fn missing_skills_dir(path: &str) -> Diagnostic {
    whole(Code::MissingFile, path, "the package has no directory `skills`".to_owned())
        .named("AA_MISSING_SKILLS_DIR")
        .hint("it contains a directory with a SKILL.md for each skill")
}

/// The slug is not the directory's name.
pub fn slug_directory(path: &str, slug: &str, directory: &str) -> Diagnostic {
    let message = format!("the package is {}, but its directory is {}", quoted(slug), quoted(directory));
    whole(Code::NameMismatch, path, message)
        .severity(Severity::Warning)
        .named("AA_SLUG_DIR")
        .path("slug")
        .hint("rename one of the two")
}

/// A listed skill is not there.
pub fn skill_unresolved(path: &str, name: &str) -> Diagnostic {
    whole(Code::MissingFile, path, format!("the skill {} has no `skills/{}/SKILL.md`", quoted(name), plain(name)))
        .severity(Severity::Warning)
        .named("AA_SKILL_UNRESOLVED")
        .path("skills")
}

/// A listed skill lies outside of the package's `skills/`.
pub fn skill_outside(path: &str, name: &str) -> Diagnostic {
    let message = format!("the symbolic link `skills/{}` leads out of `skills/` and is ignored", plain(name));
    whole(Code::LeavesApp, path, message)
        .named("AA_SKILL_PATH")
        .path("skills")
        .hint("copy the skill into the package: the approval covers only files inside the package")
}

/// The name in a skill's frontmatter differs from its directory.
pub fn skill_name(path: &str, own: &str, directory: &str) -> Diagnostic {
    let message =
        format!("the skill in `skills/{}` is named {}; the directory name is used", plain(directory), quoted(own));
    whole(Code::NameMismatch, path, message)
        .severity(Severity::Warning)
        .named("AA_SKILL_NAME_DIR")
        .hint("rename one of the two")
}

/// A skill exists but is not listed.
pub fn skill_unlisted(path: &str, name: &str) -> Diagnostic {
    whole(Code::NotListed, path, format!("`skills` does not list {}", quoted(name)))
        .severity(Severity::Warning)
        .named("AA_SKILL_UNLISTED")
        .path("skills")
        .hint("agents never receive this skill")
}

/// Two packages have the same slug; `path` is the one that is not used.
pub fn slug_collision(path: &str, slug: &str, used: &str) -> Diagnostic {
    whole(Code::Shadowed, path, format!("two packages are {}: the one in `{used}` is used", quoted(slug)))
        .severity(Severity::Warning)
        .named("AA_SLUG_COLLISION")
        .hint(format!("use this one with `--apps-path {}`", path.strip_suffix("/APP.md").unwrap_or(path)))
}

/// A file that would be an `APP.md` if its name were in capitals.
pub fn file_case(path: &str) -> Diagnostic {
    whole(Code::FileCase, path, format!("`{path}` is not a package: the file's name must be APP.md"))
        .severity(Severity::Warning)
        .named("AA_FILE_CASE")
        .hint("rename it to APP.md")
}

/// A search has reached its limit of directories.
pub fn too_many(root: &str, most: usize) -> Diagnostic {
    let message = format!("`{root}` has more than {} directories; the rest was not searched", number(most as u64));
    whole(Code::ScanBound, root, message).severity(Severity::Warning).hint("keep packages apart from other files")
}

/// The contract cannot be decoded.
pub fn undecodable_body(path: &str, why: &str) -> Diagnostic {
    whole(Code::NotUtf8, path, format!("the contract cannot be read: {why}")).named("AA_BAD_YAML")
}

// Commands.

/// There is no package of that slug.
pub fn no_such_package(slug: &str, known: &[String]) -> Diagnostic {
    let there =
        if known.is_empty() { "no packages are available".to_owned() } else { format!("packages: {}", list(known)) };
    whole(Code::NotACommand, slug, format!("there is no package {}; {there}", quoted(slug)))
        .maybe_hint(match known {
            [] => Some("packages are directories in `apps/` or `.agents/apps/` of the app, or in the directory of `--apps-path DIR`".to_owned()),
            _ => meant(slug, known.iter().map(String::as_str)),
        })
}

/// A step calls a package that this machine does not have.
pub(crate) fn unknown_package(file: &File, at: Span, slug: &str, known: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::NotACommand, file, at, format!("there is no package {}", quoted(slug)))
        .severity(Severity::Warning)
        .label(match known {
            [] => "packages are directories with an APP.md in `apps/` or `.agents/apps/`".to_owned(),
            known => format!("packages: {}", list(known)),
        })
        .maybe_hint(meant(slug, known.iter().copied()))
}

/// A step calls a package with errors, which are reported with its files.
pub(crate) fn broken_package(file: &File, at: Span, slug: &str) -> Diagnostic {
    let message = format!("package {} has errors, so the step cannot run", quoted(slug));
    Diagnostic::error(Code::NotACommand, file, at, message)
        .severity(Severity::Warning)
        .hint("list all errors: etude apps check")
}

/// A step calls a command that its package does not declare.
pub(crate) fn undeclared_command(file: &File, at: Span, (slug, words): (&str, &str), known: &[&str]) -> Diagnostic {
    let message = format!("package {} does not declare the command {}", quoted(slug), quoted(words));
    Diagnostic::error(Code::NotACommand, file, at, message)
        .severity(Severity::Warning)
        .label(format!("commands: {}", list(known)))
        .maybe_hint(meant(words, known.iter().copied()))
}

/// The command is not declared.
pub fn no_such_command(path: &str, words: &str, commands: &[String]) -> Diagnostic {
    let message = format!("{} is not a command of this package; its commands are {}", quoted(words), list(commands));
    whole(Code::NotACommand, path, message)
        .named("AA_CMD_UNDECLARED")
        .maybe_hint(meant(words, commands.iter().map(String::as_str)))
}

/// The package is unusable for a reason that was reported before.
pub fn declined(path: &str, slug: &str) -> Diagnostic {
    whole(Code::Contradiction, path, format!("the package {} cannot be used until its errors are fixed", quoted(slug)))
        .hint("list all errors: etude apps check")
}

/// The package has no approval, or none for its current content if it `has_changed`; `shadowed` are others of the same slug.
pub fn not_trusted(path: &str, root: &str, what: &str, has_changed: bool, shadowed: &[String]) -> Diagnostic {
    let other =
        shadowed.first().map(|other| format!("; or use the one in `{other}`: --apps-path {other}")).unwrap_or_default();
    let (message, subject) = match has_changed {
        false => (format!("the package in `{root}` is not approved for {what}"), "it"),
        true => (format!("the package in `{root}` has changed since it was approved for {what}"), "the change"),
    };
    whole(Code::NotTrusted, path, message)
        .named("AA_TRUST_REQUIRED")
        .hint(format!("review {subject}, then run: etude trust {root}{other}"))
}

/// A person must confirm the command.
pub fn must_be_confirmed(path: &str, command: &str, id: &str) -> Diagnostic {
    whole(Code::Confirmation, path, format!("{} must be confirmed by a person", quoted(command)))
        .named("AA_CONFIRM_REQUIRED")
        .severity(Severity::Warning)
        .hint(format!("run etude approve {id} or etude deny {id}, then repeat the command"))
}

/// An earlier answer is not valid for this run.
pub fn not_confirmed_any_more(path: &str, command: &str, why: &str) -> Diagnostic {
    whole(Code::Confirmation, path, format!("an earlier decision on {} is no longer valid: {why}", quoted(command)))
        .named("AA_CONFIRM_STALE")
        .severity(Severity::Warning)
}

/// A person has refused the command.
pub fn denied(path: &str, command: &str, by: &str, reason: Option<&str>) -> Diagnostic {
    let why = reason.map(|reason| format!(": {}", cause(reason))).unwrap_or_default();
    whole(Code::Confirmation, path, format!("{} has denied {}{why}", plain(by), quoted(command)))
        .named("AA_CONFIRM_DENIED")
}

/// The package does not support scheduling.
pub fn scheduling_unsupported(path: &str) -> Diagnostic {
    whole(Code::NotACommand, path, "this package does not support scheduling".to_owned())
        .named("AA_SCHED_UNSUPPORTED")
        .hint("do not schedule its commands, and do not invent a command for that")
}

/// The package claims to support scheduling without documenting how.
pub fn scheduling_undocumented(path: &str) -> Diagnostic {
    whole(
        Code::NotACommand,
        path,
        "`scheduling` is supported, but the contract names no command or option for it".to_owned(),
    )
    .named("AA_SCHED_UNDOCUMENTED")
    .severity(Severity::Warning)
    .hint("name the declared command in the section `Scheduling`")
}

/// The program did not start.
pub fn spawn(path: &str, why: &str) -> Diagnostic {
    whole(Code::NotFinished, path, format!("the command was not started: {why}"))
        .named("AA_SPAWN")
        .path("entry.command")
}

/// A middleware refused the result of a program that has run.
pub fn result_refused(path: &str, why: &str) -> Diagnostic {
    whole(Code::NotFinished, path, format!("the command ran, but its result was rejected: {why}"))
        .named("AA_OUT_REFUSED")
        .hint("its effects remain; check them before you run it again")
}

/// The program exceeded its time limit, in milliseconds.
pub fn timed_out(path: &str, limit_ms: u64) -> Diagnostic {
    whole(Code::NotFinished, path, format!("the command took longer than {} and was ended", duration(limit_ms)))
        .named("AA_TIMEOUT")
        .hint("raise the limit with --timeout")
}

/// The program was ended by a signal.
pub fn ended_by_signal(path: &str, signal: &str) -> Diagnostic {
    whole(Code::NotFinished, path, format!("the command was killed by {signal}")).named("AA_SIGNAL")
}

/// The program exceeded its output limit, in bytes.
pub fn too_large(path: &str, limit: u64) -> Diagnostic {
    whole(Code::NotFinished, path, format!("the command printed more than {} bytes and was ended", number(limit)))
        .named("AA_OUT_TOO_LARGE")
        .hint("raise the limit with --max-output")
}

/// A command succeeded, but its stdout is not one JSON value.
pub fn no_json(path: &str, problem: &str) -> Diagnostic {
    whole(Code::NotOneValue, path, format!("stdout is not one JSON value: {problem}"))
        .named("AA_OUT_NOT_JSON")
        .hint("where text is meant, ask for it with --expect text")
}

/// A command failed, and its stdout is not one JSON value.
pub fn unstructured_error(path: &str) -> Diagnostic {
    whole(Code::NotOneValue, path, "the command failed without a JSON error on stdout".to_owned())
        .named("AA_ERR_UNSTRUCTURED")
        .severity(Severity::Warning)
        .hint("its stderr may contain the reason")
}

/// Exit status and `ok` contradict each other.
pub fn contradiction(path: &str) -> Diagnostic {
    whole(Code::Mismatch, path, "the command ended with status 0 and printed `\"ok\": false`".to_owned())
        .named("AA_OK_MISMATCH")
        .severity(Severity::Warning)
}

/// A response does not fit the package's own schema.
pub fn schema_mismatch(path: &str, schema: &str, why: &str, is_strict: bool) -> Diagnostic {
    whole(Code::Mismatch, path, format!("the output does not match {}: {}", quoted(schema), cause(why)))
        .named("AA_SCHEMA_MISMATCH")
        .severity(if is_strict { Severity::Error } else { Severity::Warning })
}

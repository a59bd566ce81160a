//! D01xx: diagnostics of the cascade.

use std::sync::Arc;

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{SourceFile, Span};
use crate::wording::{cause, meant, quoted, quoted_list};

type File = Arc<SourceFile>;

pub(crate) fn unknown_parent(file: &File, at: Option<Span>, name: &str, known: &[String]) -> Diagnostic {
    let message = format!("unknown parent skill: {}", quoted(name));
    Diagnostic::error(Code::UnknownParent, file, at, message)
        .label("no skill of this name is on the search path")
        .maybe_hint(meant(name, known.iter().map(String::as_str)))
}

pub(crate) fn inherit_cycle(file: &File, at: Option<Span>, way: &[&str]) -> Diagnostic {
    let message = format!("inheritance cycle: {}", quoted(&way.join(" -> ")));
    Diagnostic::error(Code::InheritCycle, file, at, message)
        .label("this parent leads back to the skill")
        .hint("remove one of the parents")
}

pub(crate) fn inconsistent_inherit(file: &File, at: Option<Span>, name: &str) -> Diagnostic {
    let message = format!("inconsistent `$inherit` order for {}", quoted(name));
    Diagnostic::error(Code::InconsistentInherit, file, at, message)
        .label("a parent is listed before its own descendant")
        .hint("list the more specific parent first")
}

pub(crate) fn too_many_parents(file: &File, at: Option<Span>, name: &str, most: usize) -> Diagnostic {
    let message = format!("{} inherits from more than {most} skills", quoted(name));
    Diagnostic::error(Code::TooManyParents, file, at, message)
        .label("parents of parents count, too")
        .hint("merge some of the parents")
}

pub(crate) fn order_cycle(file: &File, at: Option<Span>, names: &[String]) -> Diagnostic {
    let list: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let message = format!("ordering cycle among: {}", list.join(", "));
    Diagnostic::error(Code::OrderCycle, file, at, message)
        .label("each of them would have to run before itself")
        .hint("remove one `before` or `after`")
}

/// `name` is the skill, `key` a key of its metadata, `policy` the merge policy that the file asks for.
pub(crate) fn unknown_policy(
    file: &File,
    at: Option<Span>,
    name: &str,
    key: &str,
    policy: &str,
    known: &[&str],
) -> Diagnostic {
    let message = format!("{}: unknown merge policy {} for the key {}", quoted(name), quoted(policy), quoted(key));
    Diagnostic::error(Code::UnknownMergePolicy, file, at, message)
        .label(format!("must be {}", quoted_list(known, "or")))
        .maybe_hint(meant(policy, known.iter().copied()))
}

pub(crate) fn annotation(file: &File, at: Option<Span>, name: &str, key: &str, shape: &str) -> Diagnostic {
    let message = format!("{} of {} has the wrong shape", quoted(key), quoted(name));
    Diagnostic::error(Code::BadAnnotation, file, at, message).label(format!("must be {shape}"))
}

/// `name` is the skill that names the hook.
pub(crate) fn unknown_hook(file: &File, at: Option<Span>, name: &str, hook: &str, known: &[String]) -> Diagnostic {
    let message = format!("`$hook` of {} names {}, which is not a skill", quoted(name), quoted(hook));
    let own = ["debug", "profile", "observe"].contains(&hook);
    let write = own.then(|| format!("etude has no hook {}: write a skill of that name, or use `--log`", quoted(hook)));
    Diagnostic::error(Code::BadAnnotation, file, at, message)
        .label("no skill of this name is on the search path")
        .maybe_hint(write.or_else(|| meant(hook, known.iter().map(String::as_str))))
}

/// `key` and `word` are those of the mapping `log`.
pub(crate) fn log_word(file: &File, at: Option<Span>, name: &str, key: &str, word: &str, known: &[&str]) -> Diagnostic {
    let message = format!("{}: {} is not a {} of `log`", quoted(name), quoted(word), key);
    Diagnostic::error(Code::UnknownWord, file, at, message)
        .severity(Severity::Warning)
        .label(format!("must be {}", quoted_list(known, "or")))
        .maybe_hint(meant(word, known.iter().copied()))
}

pub(crate) fn log_shape(file: &File, at: Option<Span>, name: &str) -> Diagnostic {
    let message = format!("`log` of {} is not a mapping of `level`, `scope` and `reporter` to words", quoted(name));
    Diagnostic::error(Code::WrongType, file, at, message).severity(Severity::Warning)
}

/// `key` is the list in the metadata of the skill `name`, and `element` describes a valid element.
pub(crate) fn list_element(file: &File, at: Option<Span>, name: &str, key: &str, element: &str) -> Diagnostic {
    let key = key.replace('/', ".");
    let message = format!("{} of {} has an element of the wrong type", quoted(&key), quoted(name));
    Diagnostic::error(Code::WrongType, file, at, message)
        .label(format!("not {element}"))
        .hint(format!("write {element}, or remove the element"))
}

pub(crate) fn schema(file: &File, at: Option<Span>, name: &str, key: &str, why: &str) -> Diagnostic {
    let message = format!("{} of {} is not a JSON Schema: {why}", quoted(key), quoted(name));
    Diagnostic::error(Code::NotASchema, file, at, message)
}

pub(crate) fn name(file: &File, at: Option<Span>, name: &str) -> Diagnostic {
    let message = format!("{} is not a valid skill name", quoted(name));
    Diagnostic::error(Code::BadSkillName, file, at, message)
        .hint("a name has 1 to 64 lower-case letters and digits, with single dashes inside")
}

pub(crate) fn public_params(file: &File, at: Option<Span>, name: &str) -> Diagnostic {
    let message = format!("every skill below the main skill {} inherits its `params`", quoted(name));
    Diagnostic::error(Code::PublicParams, file, at, message)
        .severity(Severity::Warning)
        .label("skills without their own `params` inherit these")
        .hint("add `params` to `$private`")
}

/// `paths` are those of the skills, `file` is the first of them.
pub(crate) fn no_main(file: &File, paths: &[&str]) -> Diagnostic {
    let message = format!("none of {} declares itself as the main skill", quoted_list(paths, "and"));
    Diagnostic::error(Code::NoMainSkill, file, None, message)
        .severity(Severity::Warning)
        .hint("add `role: main` to the metadata of one")
}

pub(crate) fn several_mains(file: &File, at: Option<Span>, paths: &[&str]) -> Diagnostic {
    let message = format!("{} each declare themselves as the main skill", quoted_list(paths, "and"));
    Diagnostic::error(Code::NoMainSkill, file, at, message)
        .hint("a directory has one main skill: remove `role: main` from the others")
}

pub(crate) fn module(file: &File, why: &str) -> Diagnostic {
    let message = format!("the module {} cannot be loaded: {}", quoted(file.path()), cause(why));
    Diagnostic::error(Code::ModuleNotLoaded, file, None, message)
        .severity(Severity::Warning)
        .hint("modules need Node; a Markdown skill with `command:` runs without it")
}

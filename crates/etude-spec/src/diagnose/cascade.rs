//! D01xx: the cascade.

use std::sync::Arc;

use crate::cascade::skill::Skill;
use crate::code::Code;
use crate::diagnostic::{Diagnostic, Severity};
use crate::json_text::escaped;
use crate::source::{SourceFile, Span};
use crate::wording::{cause, meant, quoted, quoted_list};

type File = Arc<SourceFile>;

pub(crate) fn unknown_parent(skill: &Skill, pointer: &str, name: &str, known: &[String]) -> Diagnostic {
    let message = format!("unknown parent skill: {}", quoted(name));
    Diagnostic::error(Code::UnknownParent, &skill.file, skill.place(pointer), message)
        .label("no skill of this name is on the search path")
        .maybe_hint(meant(name, known.iter().map(String::as_str)))
}

pub(crate) fn inherit_cycle(skill: &Skill, pointer: &str, way: &[&str]) -> Diagnostic {
    let message = format!("inheritance cycle: {}", quoted(&way.join(" -> ")));
    Diagnostic::error(Code::InheritCycle, &skill.file, skill.place(pointer), message)
        .label("this leads back to where it came from")
        .hint("take one of the parents out")
}

pub(crate) fn inconsistent_inherit(skill: &Skill) -> Diagnostic {
    let message = format!("inconsistent `$inherit` order for {}", quoted(&skill.name));
    Diagnostic::error(Code::InconsistentInherit, &skill.file, skill.place("/$inherit"), message)
        .label("a parent stands before its own descendant")
        .hint("write the more special parent first")
}

pub(crate) fn too_many_parents(skill: &Skill, most: usize) -> Diagnostic {
    let message = format!("{} inherits from more than {most} skills", quoted(&skill.name));
    Diagnostic::error(Code::TooManyParents, &skill.file, skill.place("/$inherit"), message)
        .label("parents of parents count, too")
        .hint("put what they say into fewer skills")
}

pub(crate) fn order_cycle(levels: &[Arc<Skill>], names: &[String]) -> Diagnostic {
    let list: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let message = format!("ordering cycle among: {}", list.join(", "));
    let place = |skill: &Arc<Skill>| {
        let order = skill.metadata().get("$order")?;
        let name = names.iter().find(|name| order.get(name.as_str()).is_some())?;
        Some((Arc::clone(&skill.file), skill.place(&format!("/$order/{}", escaped(name)))))
    };
    let (file, at) = levels.iter().find_map(place).unwrap_or_else(|| (SourceFile::new("", ""), None));
    Diagnostic::error(Code::OrderCycle, &file, at, message)
        .label("each of them must come before itself")
        .hint("take one `before` or `after` away")
}

pub(crate) fn unknown_policy(skill: &Skill, key: &str, policy: &str) -> Diagnostic {
    let known = crate::cascade::fold::POLICIES;
    let message =
        format!("{}: unknown merge policy {} for the key {}", quoted(&skill.name), quoted(policy), quoted(key));
    Diagnostic::error(Code::UnknownMergePolicy, &skill.file, skill.place(&format!("/$merge/{}", escaped(key))), message)
        .label(format!("must be {}", quoted_list(known, "or")))
        .maybe_hint(meant(policy, known.iter().copied()))
}

pub(crate) fn annotation(skill: &Skill, key: &str, shape: &str) -> Diagnostic {
    let message = format!("{} of {} has the wrong shape", quoted(key), quoted(&skill.name));
    Diagnostic::error(Code::BadAnnotation, &skill.file, skill.place(&format!("/{key}")), message)
        .label(format!("must be {shape}"))
}

pub(crate) fn name(file: &File, at: Option<Span>, name: &str) -> Diagnostic {
    let message = format!("{} is no name for a skill", quoted(name));
    Diagnostic::error(Code::BadSkillName, file, at, message)
        .hint("a name has 1 to 64 lower-case letters and digits, with single dashes inside")
}

pub(crate) fn public_params(file: &File, at: Option<Span>, name: &str) -> Diagnostic {
    let message = format!("`params` of the main skill {} are those of every skill below it", quoted(name));
    Diagnostic::error(Code::PublicParams, file, at, message)
        .severity(Severity::Warning)
        .label("skills without `params` of their own get these")
        .hint("add `params` to `$private`")
}

pub(crate) fn no_main(skills: &[Arc<Skill>]) -> Diagnostic {
    let names: Vec<&str> = skills.iter().map(|skill| skill.file.path()).collect();
    let message = format!("none of {} says that it is the main skill", quoted_list(&names, "and"));
    Diagnostic::error(Code::NoMainSkill, &skills[0].file, None, message)
        .severity(Severity::Warning)
        .hint("add `role: main` to the metadata of one")
}

pub(crate) fn several_mains(skills: &[&Arc<Skill>]) -> Diagnostic {
    let names: Vec<&str> = skills.iter().map(|skill| skill.file.path()).collect();
    let message = format!("{} each say that they are the main skill", quoted_list(&names, "and"));
    Diagnostic::error(Code::NoMainSkill, &skills[1].file, skills[1].place("/role"), message)
        .hint("one directory has one main skill: take `role: main` from the others")
}

pub(crate) fn module(file: &File, why: &str) -> Diagnostic {
    let message = format!("the module {} cannot be loaded: {}", quoted(file.path()), cause(why));
    Diagnostic::error(Code::ModuleNotLoaded, file, None, message)
        .severity(Severity::Warning)
        .hint("modules need Node; a Markdown skill with `command:` runs without it")
}

//! Lists of a skill's metadata whose elements must be texts (D-9.2, D-2.3).

use serde_json::Value;

use crate::cascade::search::PathEntry;
use crate::cascade::skill::Skill;
use crate::diagnose::cascade as diagnose;
use crate::diagnostic::Diagnostic;

/// Keys that have lists, or are lists.
const KEYS: [&str; 4] = ["paths", "tags", "include", "log"];

/// Errors about elements that a chain would leave out.
pub(super) fn faults(skill: &Skill) -> Vec<Diagnostic> {
    if skill.outline().is_some_and(|(mut keys, _)| !keys.any(|key| KEYS.contains(&key))) {
        return Vec::new();
    }
    let metadata = skill.metadata();
    let path = "a directory, or a mapping with `internal`, `external` or `ignore`";
    let is_path = |value: &Value| PathEntry::read(value).is_some();
    let scope = metadata.get("log").and_then(|log| log.get("scope"));
    [
        odd(skill, metadata.get("paths"), "/paths", path, is_path),
        odd(skill, metadata.get("tags"), "/tags", "a tag as text", Value::is_string),
        odd(skill, metadata.get("include"), "/include", "a file's path", Value::is_string),
        odd(skill, scope, "/log/scope", "a scope as text", Value::is_string),
    ]
    .concat()
}

/// Errors about the elements at `pointer` that do not fit. A single value counts as a list of one.
fn odd(
    skill: &Skill,
    list: Option<&Value>,
    pointer: &str,
    element: &str,
    fits: impl Fn(&Value) -> bool,
) -> Vec<Diagnostic> {
    let fault = |at: &str| diagnose::list_element(&skill.file, skill.place(at), &skill.name, &pointer[1..], element);
    match list {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => {
            let odd = items.iter().enumerate().filter(|(_, item)| !fits(item));
            odd.map(|(index, _)| fault(&format!("{pointer}/{index}"))).collect()
        }
        Some(value) if fits(value) => Vec::new(),
        Some(_) => vec![fault(pointer)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceFile;

    fn findings(metadata: &str) -> Vec<(Option<(u32, u32)>, String)> {
        let text = format!("---\nname: a\nmetadata:\n{metadata}---\nx\n");
        let (skill, faults) = Skill::read(&SourceFile::new("a.skill.md", text), &"/p".into());
        assert_eq!(faults, []);
        let found = faults_of(&skill.expect("a skill"));
        found.into_iter().map(|fault| (fault.position(), fault.message)).collect()
    }

    fn faults_of(skill: &Skill) -> Vec<Diagnostic> {
        let found = faults(skill);
        assert!(found.iter().all(Diagnostic::is_error));
        found
    }

    /// D-9.2, D-2.3: an element of a wrong kind is an error at its place.
    #[test]
    fn elements_of_a_wrong_kind_are_errors() {
        for (metadata, at) in [
            ("  paths:\n    - .\n    - extern: x\n", (6, 7)),
            ("  paths:\n    - external: [x]\n", (5, 7)),
            ("  paths: {intern: x}\n", (4, 10)),
            ("  paths: [3]\n", (4, 11)),
            ("  tags: [a, {b: c}]\n", (4, 13)),
            ("  include: {a: b}\n", (4, 12)),
            ("  log: {scope: [[tools]]}\n", (4, 17)),
        ] {
            let found = findings(metadata);
            let [(place, message)] = found.as_slice() else { panic!("{metadata}: {found:?}") };
            assert_eq!(*place, Some(at), "{metadata}: {message}");
        }
    }

    /// D-9.2: texts, known mappings and references are as before.
    #[test]
    fn sound_lists_have_no_faults() {
        for metadata in [
            "  paths: [., {internal: a}, {external: \"${library}\"}, {ignore: dist}]\n",
            "  paths: \"${dir}\"\n  tags: a b\n  include: x.md\n",
            "  paths:\n  tags:\n  log: {scope: \"tools, agent\"}\n",
            "  log: debug\n",
        ] {
            assert_eq!(findings(metadata), [], "{metadata}");
        }
    }
}

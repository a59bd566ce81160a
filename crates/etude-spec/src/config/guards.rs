//! The `guards` of a configuration: programs that may deny a tool call (B-H2).

use std::sync::Arc;

use super::owned;
use crate::command;
use crate::command::script::script_of;
use crate::diagnose::files::missing_script;
use crate::diagnostic::Diagnostic;
use crate::files::siblings;
use crate::source::{ReadFailure, SourceFile, Sources, join};
use crate::yaml::{self, Entries, Node, text};

/// Command lines of the guards.
pub(super) fn read(entries: &Entries<'_>) -> Vec<String> {
    listed(entries).iter().filter_map(|guard| owned(guard.as_map(), "command")).collect()
}

/// Warns of each guard of the app's own configuration whose script does not exist: it would deny every call.
pub fn missing_scripts(file: &Arc<SourceFile>, sources: &dyn Sources) -> Vec<Diagnostic> {
    let root = yaml::parse(file).0;
    let guards = root.as_ref().and_then(Node::as_map).map(listed).unwrap_or_default();
    let missing = |guard: &Node<'_>| {
        let line = text(guard.as_map()?, "command")?;
        let command = command::parse(line.text).ok()?;
        let script = script_of(&command)?;
        let path = join("", script)?;
        let place = "guards run in the app's directory; without the script, every tool call is denied";
        (sources.kind(&path) == Err(ReadFailure::Missing))
            .then(|| missing_script(file, line.at, script, &siblings(sources, &path), place))
    };
    guards.iter().filter_map(missing).collect()
}

fn listed<'n>(entries: &'n Entries<'n>) -> &'n [Node<'n>] {
    entries.get("guards").and_then(Node::as_seq).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemorySources;

    /// B-H2: a guard whose script is misspelled denies every call, so its place is reported.
    #[test]
    fn a_missing_guard_is_reported() {
        let sources = MemorySources::new().with("guards/shop.py", "").with("deny.sh", "");
        let found = |command: &str| {
            let file = SourceFile::new("etude.yaml", format!("guards:\n- {{command: {command}}}\n"));
            let found = missing_scripts(&file, &sources);
            found.iter().map(|d| (d.position().map(|at| at.0), d.hint.clone().unwrap_or_default())).collect::<Vec<_>>()
        };
        for command in ["python3 -B guards/shop.py", "./deny.sh", "opa eval", "/opt/guard.py", "\"python3 $HOME/g.py\""]
        {
            assert_eq!(found(command), [], "{command}");
        }
        assert_eq!(found("python3 guards/shp.py"), [(Some(2), "did you mean `guards/shop.py`?".to_owned())]);
        assert!(found("./guard.sh")[0].1.contains("every tool call is denied"), "{:?}", found("./guard.sh"));
    }
}

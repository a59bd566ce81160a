//! Growth of the run time: linear checks stay linear.

use std::sync::Mutex;

use etude_spec::pipeline::App;
use etude_spec::source::{Entry, FileKind, MemorySources, ReadFailure, Sources};

/// a file of the largest size, full of faults, is checked in one pass each; a quadratic check would not end.
#[test]
fn large_files_full_of_faults_are_checked() {
    let mut text = "name: p\ndescription: d\nsteps:\n- name: m\n  type: llm\n  prompt: |\n".to_owned();
    for i in 0..20_000 {
        text.push_str(&format!("    {{{{nope{i}.output}}}} and text\n"));
    }
    for i in 0..5_000 {
        text.push_str(&format!("field{i}: 1\n"));
    }
    let sources = MemorySources::new().with("pipelines/p/pipeline.yaml", text);
    assert_eq!(App::new(&sources).pipeline("p").1.len(), 25_000);
}

/// Sources that record the paths of read files.
struct Recorded(MemorySources, Mutex<Vec<String>>);

impl Sources for Recorded {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadFailure> {
        self.1.lock().expect("not poisoned").push(path.to_owned());
        self.0.read(path, limit)
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure> {
        self.0.list(dir)
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        self.0.kind(path)
    }
}

/// L-76: the tools of an app and its skill are read once, however many steps call tools. A learned pipeline has many of them.
#[test]
fn tools_are_read_once_for_all_steps() {
    let steps: String = (0..20).map(|n| format!("- {{name: s{n}, type: tool, tool: get}}\n")).collect();
    let sources = MemorySources::new()
        .with("SKILL.md", "---\nname: a\ndescription: d\n---\nHelp.\n")
        .with("tools/get.yaml", "name: get\ndescription: d\ncommand: cat\ninputSchema: {type: object}\n")
        .with("pipelines/p/pipeline.yaml", format!("name: p\ndescription: d\nsteps:\n{steps}"));
    let sources = Recorded(sources, Mutex::default());
    assert!(App::new(&sources).pipeline("p").1.is_empty());
    let read = sources.1.into_inner().expect("not poisoned");
    for path in ["SKILL.md", "tools/get.yaml"] {
        assert_eq!(read.iter().filter(|read| *read == path).count(), 1, "{path} of {read:?}");
    }
}

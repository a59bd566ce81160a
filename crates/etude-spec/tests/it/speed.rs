//! Growth of the run time: linear checks stay linear.

use etude_spec::pipeline::App;
use etude_spec::source::MemorySources;

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

//! Checks that all commands in README.md are run, apart from its first pipelines, which `examples.rs` runs.

use serde_json::json;

use crate::loopback::{Loopback, send};
use crate::markdown::blocks;
use crate::place::{Place, examples, marked};
use crate::read;

/// `.ci/run` runs the commands below `run: clone` in a fresh clone; all others run here and in `examples.rs`.
#[test]
fn every_command_block_of_the_readme_is_run() {
    for block in blocks(&read("README.md")) {
        let is_shell = ["sh", "console", "bash", "text"].contains(&block.language.as_str());
        let is_run = block.marker.as_deref().is_some_and(|marker| marker.starts_with("run"));
        assert!(!is_shell || is_run, "README.md: no `<!-- run -->` above\n{}", block.text);
    }
}

#[test]
fn a_killed_run_of_the_readme_is_resumed_as_shown() {
    let place = Place::new();
    place.write(
        "pipelines/report/pipeline.yaml",
        "{name: report, description: Build a report and send it, steps: [\n\
         {name: fetch, type: code, command: \"echo '{\\\"output\\\": 1}'\"},\n\
         {name: build, type: code, command: sh steps/build.sh},\n\
         {name: send, type: code, command: \"echo '{\\\"output\\\": \\\"sent\\\"}'\"}]}\n",
    );
    // The first attempt kills its parent process, which is `etude`.
    place.write(
        "pipelines/report/steps/build.sh",
        "if mkdir \"$HOME/killed\" 2>/dev/null; then kill -9 $PPID; exit 1; fi; echo '{\"output\": 2}'\n",
    );
    let shown = marked(&read("README.md"), "run: crash");
    assert_eq!(shown.len(), 1, "README.md has one block marked `run: crash`");
    place.replay("README.md", &shown[0]);
}

#[test]
fn the_commands_of_the_readme_for_a_hosted_model_work_with_a_key() {
    let place = examples();
    let analysis = json!({"files": [{"file": "price.py", "summary": "adds tax", "issues": []}]}).to_string();
    let server = Loopback::by(move |stream, _, _| {
        let body = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": analysis}], "usage": {"input_tokens": 10, "output_tokens": 10},
        })
        .to_string();
        let _ = send(stream, 200, &[], &body, body.len());
    });
    place.configure(&format!("providers: {{anthropic: {{base_url: \"{}\"}}}}\n", server.url()));
    place.write("price.py", "def total(price):\n    return price\n");
    let commit = "git add price.py && git -c user.name=Ada -c user.email=ada@example.org commit -q -m";
    let (status, text) = place
        .run(&format!("git init -q . && {commit} 'add prices' && echo 'TAX = 1' >> price.py && {commit} 'add tax'"));
    assert_eq!(status, 0, "{text}");
    let shown = marked(&read("README.md"), "run: key");
    assert_eq!(shown.len(), 1, "README.md has one block marked `run: key`");
    let (status, text) = place.run(&shown[0].text.replace('…', "key-of-the-test"));
    assert_eq!(status, 0, "{text}");
    let seen = server.seen();
    assert_eq!(seen.first().and_then(|request| request.header("x-api-key")), Some("key-of-the-test"), "{text}");
}

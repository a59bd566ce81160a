//! Apps for the scenarios.

use std::fs;
use std::path::{Path, PathBuf};

/// Writes a file and the directories above it.
pub(crate) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
    fs::write(path, text).expect("a file");
}

/// Writes an app below `home` with one pipeline of these steps. Returns the app.
pub(crate) fn of_steps(home: &Path, pipeline: &str, steps: impl Iterator<Item = String>) -> PathBuf {
    let app = home.join("app");
    let mut yaml = format!("name: {pipeline}\ndescription: what is measured\nsteps:\n");
    steps.for_each(|step| yaml.push_str(&step));
    write(&app.join(format!("pipelines/{pipeline}/pipeline.yaml")), &yaml);
    app
}

/// The YAML of a code step.
pub(crate) fn code(name: &str, command: &str) -> String {
    format!("  - name: {name}\n    type: code\n    command: \"{command}\"\n")
}

/// The YAML of a model step.
pub(crate) fn llm(name: &str) -> String {
    format!("  - name: {name}\n    type: llm\n    prompt: \"Say what you think of number {name}.\"\n")
}

/// API key of the model server. It is as long as real keys, because every response is searched for it.
pub(crate) const KEY: &str = "sk-0123456789abcdef0123456789abcdef";

/// Configures a local server for all tiers.
pub(crate) fn config(app: &Path, address: &str) {
    let text = format!(
        "model_mapping: {{lite: near/m, standard: near/m, reasoning: near/m}}\n\
         providers: {{near: {{kind: openai-compatible, base_url: \"http://{address}/v1\", api_key: \"{KEY}\"}}}}\n"
    );
    write(&app.join("etude.yaml"), &text);
}

/// Writes an app with `count` pipelines.
pub(crate) fn of_pipelines(home: &Path, count: usize) -> PathBuf {
    let app = home.join("many");
    for at in 0..count {
        let text = format!(
            "name: p{at:05}\ndescription: \"Do the thing number {at} and report what came of it\"\ntriggers:\n  - \"do thing {at}\"\n  - \"thing {at} please\"\ninput:\n  path: string\nsteps:\n  - name: fetch\n    type: code\n    command: \"sh steps/fetch.sh\"\n  - name: explain\n    type: llm\n    prompt: \"Explain {{{{fetch.output}}}} of {{{{input.path}}}}\"\n"
        );
        let dir = app.join(format!("pipelines/p{at:05}"));
        write(&dir.join("pipeline.yaml"), &text);
        write(&dir.join("steps/fetch.sh"), "cat\n");
    }
    app
}

/// Writes `count` skills of a user.
pub(crate) fn skills(home: &Path, count: usize) -> PathBuf {
    let root = home.join(".agents/skills");
    let body = "Do the thing, one step after the other, and say what came of it.\n".repeat(60);
    for at in 0..count {
        let text = format!(
            "---\nname: skill-{at:05}\ndescription: Does the thing number {at} and reports what came of it. Use when somebody asks for thing {at}, or for anything like it.\nlicense: MIT\nmetadata:\n  author: somebody\n  version: \"1.0\"\n---\n# Thing {at}\n\n{body}"
        );
        write(&root.join(format!("skill-{at:05}/SKILL.md")), &text);
        write(&root.join(format!("skill-{at:05}/references/more.md")), "more\n");
    }
    root
}

/// Writes an app whose pipelines differ by their descriptions.
pub(crate) fn of_routes(home: &Path) -> PathBuf {
    const VERBS: [&str; 10] =
        ["review", "summarize", "translate", "publish", "archive", "count", "compare", "convert", "send", "check"];
    const THINGS: [&str; 15] = [
        "invoice", "pull request", "recipe", "contract", "photo", "calendar", "podcast", "database", "newsletter",
        "ticket", "budget", "playlist", "survey", "manual", "backup",
    ];
    let app = home.join("routes");
    for verb in VERBS {
        for thing in THINGS {
            let name = format!("{verb}-{}", thing.replace(' ', "-"));
            let text = format!(
                "name: {name}\ndescription: \"Use this to {verb} a {thing} and tell what came of it\"\ntriggers:\n  - \"{verb} this {thing}\"\n  - \"please {verb} my {thing}\"\n  - \"can you {verb} the latest {thing}\"\n  - \"{thing}: {verb} it\"\n  - \"I need somebody to {verb} a {thing}\"\nsteps:\n  - name: only\n    type: code\n    command: \"cat out.json\"\n"
            );
            write(&app.join(format!("pipelines/{name}/pipeline.yaml")), &text);
            write(&app.join(format!("pipelines/{name}/out.json")), r#"{"output": 1}"#);
        }
    }
    app
}

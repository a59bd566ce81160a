//! `etude list`: what the app has.

use std::fmt::Write;

use etude::spec::{App, Summary};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Exit;
use crate::render::text::harmless;
use crate::stdout;

pub(crate) fn list(context: &Context) -> Exit {
    let disk = match context.disk() {
        Ok(disk) => disk,
        Err(problem) => return context.report(None, &problem),
    };
    let (summaries, _) = App::new(&disk).summaries();
    if context.is_json() {
        let pipelines: Vec<Value> = summaries.iter().map(of_pipeline).collect();
        stdout::json(&json!({"pipelines": pipelines, "machines": [], "skills": [], "applications": []}));
        return Exit::Done;
    }
    let width = summaries.iter().map(|s| s.name.chars().count()).max().unwrap_or(0).min(40);
    let mut text = String::new();
    for pipeline in &summaries {
        let description = harmless(pipeline.description.lines().next().unwrap_or_default());
        let fault = if pipeline.valid { "" } else { "  (has errors: etude check)" };
        let _ = writeln!(text, "{:<width$}  {description}{fault}", pipeline.name);
    }
    stdout::text(&text);
    if summaries.is_empty() && !context.global.quiet {
        anstream::eprintln!("this app has no pipelines; make one with `etude new NAME`");
    }
    Exit::Done
}

fn of_pipeline(pipeline: &Summary) -> Value {
    json!({
        "name": pipeline.name,
        "description": pipeline.description,
        "triggers": pipeline.triggers,
        "input": pipeline.input.schema(),
        "valid": pipeline.valid,
    })
}

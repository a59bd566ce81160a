//! `etude convert`: turns a skill into an app (1.6). A conversion is a run of the pipeline in [`etude_convert::definition`],
//! whose code steps are [`step`].

mod snapshot;
pub(crate) mod step;
mod verify;
pub(crate) mod write;

use std::path::{Path, PathBuf};

use etude::Disk;
use etude::runner::{Request, RunResult, Watch};
use etude_convert::case::{self, Case};
use etude_convert::command as commands;
use etude_convert::definition::{self, Settings};
use etude_convert::skill::Skill;
use etude_convert::statement;
use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_core::machine::Limits;
use etude_core::model::Tier;
use etude_core::shell;
use etude_files::private;
use etude_files::whole::{self, Access, Durability};
use etude_process::sandbox;
use serde_json::{Value, json};

use super::run::{answer, load, watched};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::text::harmless;
use crate::settings::Need;
use crate::{paths, render, stdout};
use snapshot::Snapshot;

/// Maximum size of the file of cases, in bytes.
const MAX_CASES_BYTES: u64 = 16 << 20;

pub(crate) fn convert(context: &Context, args: &args::Convert) -> Exit {
    converted(context, args).unwrap_or_else(|refused| context.refuse(None, &refused))
}

fn converted(context: &Context, args: &args::Convert) -> Result<Exit, Refused> {
    let snapshot = Snapshot::take(&args.dir)?;
    if let Some(there) = snapshot.files().find(|path| path.starts_with("pipelines/") || *path == write::REPORT) {
        let problem = Problem::usage(format!("`{}` has `{there}`, so it is already an app", args.dir.display()));
        return Err(problem.hint("run it: etude run -C DIR; check it: etude check -C DIR").into());
    }
    let skill = snapshot.skill()?;
    check_statements(&skill)?;
    let out = out(args, snapshot.root())?;
    let cases = cases(args, &skill)?;
    if !cases.is_empty()
        && let Err(why) = sandbox::support()
    {
        let message = format!("cases run commands of the skill in a sandbox, which this machine cannot enforce: {why}");
        return Err(Problem::environment(message).hint("convert it on a machine that can enforce sandboxes").into());
    }
    let disk = app(args.model.unwrap_or(Tier::Standard), !cases.is_empty())?;
    let input = json!({
        "skill": snapshot.root().display().to_string(), "out": out.display().to_string(), "digest": snapshot.digest(),
        "statements": statement::lines(&skill.statements), "commands": commands_of(&skill, &cases),
        "cases": cases.iter().map(Case::to_value).collect::<Vec<_>>(), "confirmed": args.yolo,
    });
    let definition = load(context, &disk, definition::NAME)?;
    let runner = context.runner(&disk, &definition, context.engine(false)?, Need::Ask)?;
    let request = Request {
        limits: Limits { max_cost_usd: args.max_cost, ..Limits::default() },
        ..Request::new(Json::of(&input), context.caller_dir())
    };
    let started = async |watch: Watch<'_>| runner.start(&definition, &disk, request, watch).await;
    let ended = watched(context, &definition.target, started)?;
    let ended = answer::while_waiting(context, &runner, &definition, ended)?;
    let ended = ended.map_err(|error| render::stopped::problem(&error))?;
    Ok(finished(context, &disk, &ended))
}

/// Refuses a skill without statements, because a model can find nothing in it, and warns of values that look like keys.
fn check_statements(skill: &Skill) -> Result<(), Problem> {
    if skill.statements.is_empty() {
        let problem = Problem::usage("`SKILL.md` has no text below its frontmatter, so nothing can be converted");
        return Err(problem.hint("describe the work in `SKILL.md`, with its commands in code blocks"));
    }
    let lines = skill.statements.iter().filter(|statement| commands::has_secret(&statement.text));
    let lines: Vec<String> = lines.map(|statement| statement.line.to_string()).collect();
    if !lines.is_empty() {
        render::say!(
            "warning: `SKILL.md` has values that look like keys or passwords (line {}): the model reads them, and the app has a \
             copy of `SKILL.md`",
            lines.join(", ")
        );
        render::say_hint!(
            "replace them with environment variables, such as `$PAY_TOKEN`, and revoke them if others can read the skill"
        );
    }
    Ok(())
}

/// Output folder: empty or missing, and outside of the skill (L-93).
fn out(args: &args::Convert, skill: &Path) -> Result<PathBuf, Problem> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => {
            let name = skill.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            skill.with_file_name(format!("{name}-app"))
        }
    };
    let shown = out.display();
    let out = std::path::absolute(&out).map_err(|e| Problem::usage(format!("`{shown}` is not a path: {e}")))?;
    let parent = out.parent().and_then(|parent| parent.canonicalize().ok());
    let Some(out) = parent.zip(out.file_name()).map(|(parent, name)| parent.join(name)) else {
        return Err(Problem::usage(format!("the folder of `{shown}` does not exist"))
            .hint("create it, or choose another `--out`"));
    };
    if out.starts_with(skill) || skill.starts_with(&out) {
        return Err(Problem::usage(format!("`{shown}` contains the skill or is inside it"))
            .hint("choose a directory outside the skill: `--out DIR`"));
    }
    match write::is_free(&out) {
        true => Ok(out),
        false => Err(Problem::usage(format!("`{}` exists and is not empty", out.display()))
            .hint("remove it, or choose another folder: `--out DIR`")),
    }
}

/// The cases of `--cases`, then those of the skill.
fn cases(args: &args::Convert, skill: &Skill) -> Result<Vec<Case>, Problem> {
    let mut cases = Vec::new();
    if let Some(path) = &args.cases {
        let shown = path.display();
        let text = etude_files::regular::read_text(path, MAX_CASES_BYTES)
            .map_err(|e| Problem::usage(format!("the cases `{shown}` cannot be read: {e}")))?;
        let hint = r#"write one case per line: {"name": "july", "request": "…", "input": {}, "output": "…"}"#;
        cases = case::from_lines(&text)
            .map_err(|(line, why)| Problem::usage(format!("`{shown}` line {line}: {why}")).hint(hint))?;
    }
    cases.extend(case::of_skill(skill));
    Ok(case::named(cases))
}

/// Commands of the skill that cases may run, one a line.
fn commands_of(skill: &Skill, cases: &[Case]) -> String {
    let values = case::values(cases);
    let found = skill.statements.iter().filter_map(|s| commands::of_statement(skill, s, &values).ok().flatten());
    found.map(|command| command.text).collect::<Vec<_>>().join("\n")
}

/// The app with the definition of conversions, in the state directory. The hash of the definition names it, so that a run
/// resumes with the definition it began with.
fn app(tier: Tier, has_cases: bool) -> Result<Disk, Problem> {
    let program = std::env::current_exe()
        .map_err(|e| Problem::environment(format!("the path of this program cannot be found: {e}")))?;
    let path = program.display().to_string();
    let text = definition::text(&Settings { tier, program: shell::quoted(&path), program_path: path, has_cases });
    let name = Digest::of(text.as_bytes()).to_string();
    let state = paths::state_dir().map_err(Problem::environment)?;
    let root = state.join("convert").join(&name[..16]);
    let broken = |e: std::io::Error| Problem::environment(format!("`{}` cannot be used: {e}", root.display()));
    let dir = root.join("pipelines").join(definition::NAME);
    let file = dir.join("pipeline.yaml");
    private::create_dir_all(&dir).map_err(broken)?;
    if !std::fs::read_to_string(&file).is_ok_and(|there| there == text) {
        whole::replace(&file, text.as_bytes(), Access::Owner, Durability::Process).map_err(broken)?;
    }
    Disk::open(&root).map_err(broken)
}

/// Prints the document of the conversion. Returns the exit status for its outcome.
fn finished(context: &Context, disk: &Disk, ended: &RunResult) -> Exit {
    for (at, failure) in ended.errors.iter().enumerate() {
        render::say!("");
        render::say_part!("{}", render::failure::text(failure, Some(disk.root()), at > 0));
    }
    if !context.global.quiet {
        render::summary::show(ended, render::summary::AfterDecision::Resume);
    }
    let document = document(ended);
    match context.is_json() {
        true => stdout::json(&document),
        false => stdout::text(&harmless(&shown(&document))),
    }
    match ended.document.status() {
        "waiting" => Exit::Waiting,
        _ => Exit::of_failures(&ended.errors),
    }
}

/// JSON document of 1.8, with `status`, `errors` and `waiting` of the run.
fn document(ended: &RunResult) -> Value {
    let run = &ended.document;
    let member = |name: &str| run.members.get(name).cloned().unwrap_or_default();
    let output = run.output.as_ref().and_then(|output| output.value().ok()).unwrap_or_default();
    let of_output = |name: &str, other: Value| output.get(name).cloned().unwrap_or(other);
    let reason = match run.status() {
        "waiting" => json!("the conversion waits for a confirmation"),
        _ => ended.errors.first().map_or(Value::Null, |failure| json!(failure.message)),
    };
    let mut document = json!({
        "run_id": ended.run_id, "status": run.status(), "out": of_output("out", Value::Null),
        "pipelines": of_output("pipelines", json!([])), "statements": of_output("statements", json!([])),
        "cases": of_output("cases", json!({"passed": 0, "failed": 0})), "left_out": of_output("left_out", json!([])),
        "reason": of_output("reason", reason), "usage": member("usage"), "errors": member("errors"),
    });
    if !run.waiting.is_empty() {
        document["waiting"] = json!(run.waiting);
    }
    document
}

/// Human-readable form of the document.
fn shown(document: &Value) -> String {
    let mut text = String::new();
    let mut add = |line: String| text.push_str(&format!("{line}\n"));
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(out) = document["out"].as_str() {
        let here =
            crate::context::here().and_then(|here| here.canonicalize().map_err(|e| Problem::usage(e.to_string())));
        let shown = here.ok().and_then(|here| Path::new(out).strip_prefix(here).ok().map(Path::to_owned));
        add(format!("app: {}", shown.unwrap_or_else(|| out.into()).display()));
    }
    for pipeline in list("pipelines") {
        add(format!("pipeline: {}", word(&pipeline["name"])));
    }
    let statements = list("statements");
    if !statements.is_empty() {
        let count = |outcome: &str| statements.iter().filter(|row| row["outcome"] == outcome).count();
        let counts = ["enforced", "asked", "left", "background"].map(|outcome| format!("{} {outcome}", count(outcome)));
        add(format!("statements: {}", counts.join(", ")));
        add(format!("cases: {} passed, {} failed", document["cases"]["passed"], document["cases"]["failed"]));
    }
    for row in list("left_out") {
        add(format!("left out: {}: {}", word(&row["pipeline"]), word(&row["reason"])));
    }
    if let Some(reason) = document["reason"].as_str() {
        add(format!("reason: {reason}"));
    }
    text
}

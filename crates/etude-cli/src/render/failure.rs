//! Human-readable failure of a run: message, place of definition, stderr, every attempt, and the next commands.

use std::fmt::Write;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use etude_core::cause::Cause;
use etude_core::failure::{Failure, FailureKind, Phase};
use etude_core::outcome::Stderr;
use etude_core::report::{clip, duration};
use etude_models::CallCause;

use super::commands;
use super::layout;
use super::runs::attempts::{self, Attempt};
use super::text::harmless;

const RED: Style = AnsiColor::Red.on_default().bold();
const BLUE: Style = AnsiColor::BrightBlue.on_default().bold();
const BOLD: Style = Style::new().bold();

/// Maximum number of lines shown of stderr.
const STDERR_LINES: usize = 12;

/// Maximum number of characters shown of one line of stderr.
const STDERR_WIDTH: usize = 500;

/// Renders one failure below the line that defines its step.
pub(crate) fn text(failure: &Failure, app: Option<&Path>, is_second: bool) -> String {
    let mut out = String::new();
    let message = harmless(&failure.message);
    let (headline, rest) = message.split_once('\n').unwrap_or((&message, ""));
    // The step's output is quoted at the end of the sentence, and moves to a separate line.
    let (headline, found) = match headline.split_once("; found: ") {
        Some((headline, found)) if failure.kind == FailureKind::StepOutputInvalid => (headline, Some(found)),
        _ => (headline, None),
    };
    let _ = writeln!(out, "{RED}error[{}]{RED:#}{BOLD}: {headline}{BOLD:#}", failure.kind.code());
    for line in rest.lines() {
        let _ = writeln!(out, "   {line}");
    }
    draw_place(&mut out, failure, app, is_second);
    if let Some(found) = found {
        let _ = writeln!(out, "   found on stdout:\n   {BLUE}|{BLUE:#} {found}");
    }
    if let Some(stderr) = failure.stderr.clone().or_else(|| of_hook(failure)).filter(|stderr| stderr.bytes > 0) {
        draw_stderr(&mut out, &stderr);
    }
    if !failure.attempts.is_empty() {
        let is_process =
            matches!(failure.kind, FailureKind::StepFailed | FailureKind::StepOutputInvalid | FailureKind::StepTimeout);
        let attempts: Vec<_> = failure.attempts.iter().map(|attempt| Attempt::of(attempt, is_process)).collect();
        let _ = write!(out, "\n{}", attempts::table(&attempts, attempts.len(), layout::width_of_stderr()));
    }
    out
}

fn draw_place(out: &mut String, failure: &Failure, app: Option<&Path>, is_second: bool) {
    let Some(origin) = failure.origin.as_ref().filter(|origin| origin.line > 0) else { return };
    let number = origin.line.to_string();
    let pad = " ".repeat(number.len());
    let _ = writeln!(out, "{pad} {BLUE}-->{BLUE:#} {}:{}:{}", origin.file, origin.line, origin.column);
    let source = app.and_then(|app| etude_files::regular::read_text(&app.join(&origin.file), 1 << 20).ok());
    let source = source.unwrap_or_default();
    let Some(line) = source.lines().nth(origin.line as usize - 1) else { return };
    let name = failure.step.as_deref().unwrap_or_default();
    let indent = " ".repeat(origin.column.saturating_sub(1) as usize);
    let carets = "^".repeat(name.chars().count().max(1));
    let note = note(failure, is_second);
    let note = if note.is_empty() { note } else { format!(" {note}") };
    let _ = writeln!(out, "{pad} {BLUE}|{BLUE:#}");
    let _ = writeln!(out, "{BLUE}{number} |{BLUE:#} {}", harmless(line));
    let _ = writeln!(out, "{pad} {BLUE}|{BLUE:#} {indent}{RED}{carets}{RED:#}{note}");
    let _ = writeln!(out, "{pad} {BLUE}|{BLUE:#}");
}

/// Notes under the name of the step.
fn note(failure: &Failure, is_second: bool) -> String {
    let mut notes = Vec::new();
    if let Some(ms) = failure.elapsed_ms {
        notes.push(format!("ran {}", duration(ms)));
    }
    match failure.phase {
        Some(Phase::Constructor) => notes.push("the constructor failed, so nothing else ran".to_owned()),
        Some(Phase::Destructor) if is_second => {
            notes.push("reported as well; it does not replace the error above".to_owned())
        }
        Some(Phase::Destructor) => notes.push("the pipeline itself succeeded; its output is kept".to_owned()),
        _ => {}
    }
    notes.join("; ")
}

/// The stderr of a script of a machine, such as a gate: it is in the details of the failure (B-20.4).
fn of_hook(failure: &Failure) -> Option<Stderr> {
    let details = failure.details.as_ref()?.value().ok()?;
    let tail = details["context"]["stderrTail"].as_str()?.to_owned();
    Some(Stderr { lines: tail.lines().count() as u64, bytes: tail.len() as u64, tail, blob: None })
}

fn draw_stderr(out: &mut String, stderr: &Stderr) {
    let text = harmless(&stderr.tail);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(STDERR_LINES)..];
    let heading = match (shown.len() as u64, stderr.lines) {
        (1, 0 | 1) => "stderr, 1 line:".to_owned(),
        (shown, all) if shown >= all => format!("stderr, {shown} lines:"),
        (shown, all) => format!("stderr, last {shown} of {all} lines:"),
    };
    let _ = writeln!(out, "   {heading}");
    for line in shown {
        let _ = writeln!(out, "   {BLUE}|{BLUE:#} {}", clip(line, STDERR_WIDTH));
    }
}

/// Next commands after a failure.
pub(crate) fn hints(failure: &Failure, run_id: Option<&str>) -> Vec<String> {
    let mut hints = Vec::new();
    let id = run_id.map(|id| &id[..id.len().min(6)]);
    match failure.kind {
        FailureKind::ValidationExhausted
        | FailureKind::ModelTruncated
        | FailureKind::ModelRefused
        | FailureKind::ModelError => {
            if let Some(id) = id {
                hints.push(format!("see every prompt and response: etude runs show {id}"));
            }
            if failure.cause() == Some(Cause::MaxTokens) {
                hints.push("allow longer responses: providers: {NAME: {max_tokens: 64000}} in etude.yaml".to_owned());
            }
        }
        FailureKind::StepFailed
        | FailureKind::StepOutputInvalid
        | FailureKind::ValidatorBroken
        | FailureKind::StepTimeout => {
            if let Some(id) = id {
                hints.push(format!("see the step's input and output: etude runs show {id}"));
            }
            hints.extend(of_process(failure));
        }
        FailureKind::TemplateUnresolved | FailureKind::DefinitionInvalid => {
            hints.push("check the definitions: etude check".to_owned())
        }
        FailureKind::BudgetExceeded if failure.cause() == Some(Cause::MaxTurns) => {
            hints.push("allow more turns: agent: {max_turns: 100} in etude.yaml".to_owned())
        }
        FailureKind::BudgetExceeded if id.is_none() => {
            hints.push("raise the budget: --max-cost, --max-tokens, --timeout".to_owned());
        }
        _ => {}
    }
    hints.extend(of_model(failure));
    hints.push(format!("explain this code: etude explain {}", failure.kind.code()));
    hints
}

/// Fix of a model that did not respond, by the cause.
fn of_model(failure: &Failure) -> Option<String> {
    let Some(Cause::NoResponse(reason)) = failure.cause() else { return None };
    let (provider, cause) = CallCause::parse(reason)?;
    let provider = harmless(provider);
    Some(match cause {
        CallCause::Key => {
            format!("check the key of `{provider}`: `api_key` in the configuration, or the variable in the environment")
        }
        CallCause::NotFound => {
            format!("check the name of the model in `model_mapping`, and `base_url` of `{provider}`: etude model list")
        }
        CallCause::Unreachable => format!(
            "start the server of `{provider}`, or correct its `base_url`; see what is configured: etude model list"
        ),
        CallCause::Silent => format!("allow more time: `timeout` of the provider `{provider}`"),
        CallCause::Unreadable => {
            format!("check `base_url` of `{provider}`: most servers have their API below a path, such as `/v1`")
        }
    })
}

/// Fix of a process that failed for a well-known reason.
fn of_process(failure: &Failure) -> Option<String> {
    if failure.cause() == Some(Cause::Timeout) {
        let place = failure.origin.as_ref().map(|origin| format!(" in {}", harmless(&origin.file))).unwrap_or_default();
        return Some(format!("allow more time: `timeout` of the step{place}"));
    }
    let stderr = failure.stderr.as_ref().map(|stderr| stderr.tail.as_str()).unwrap_or_default();
    let module = stderr.lines().rev().find_map(|line| line.strip_prefix("ModuleNotFoundError: No module named '"));
    if let Some((module, _)) = module.and_then(|rest| rest.split_once('\'')) {
        let module = harmless(module);
        return Some(format!(
            "install `{module}` for the Python of the step, or name the Python of a virtual environment in `command`"
        ));
    }
    match failure.exit_status {
        Some(126) => Some("status 126: the shell cannot execute a program; check its execute permission".to_owned()),
        Some(127) => Some("status 127: a program was not found; install it, or correct `PATH`".to_owned()),
        _ => None,
    }
}

/// Diagnostic of a definition as an entry of `errors`.
pub(crate) fn of_diagnostic(diagnostic: &etude_spec::Diagnostic) -> Failure {
    let hint = diagnostic.hint.as_deref().map(commands::complete);
    let mut failure = Failure::new(FailureKind::DefinitionInvalid, diagnostic.message.clone());
    let (line, column) = diagnostic.position().unwrap_or((0, 0));
    failure.origin = Some(etude_core::plan::Origin { file: diagnostic.file.path().to_owned(), line, column });
    let mut details = serde_json::json!({"code": diagnostic.code.as_str(), "hint": hint});
    if let Some(rule) = &diagnostic.rule {
        let mut context = serde_json::json!({
            "path": rule.path, "file": diagnostic.file.path(), "code": diagnostic.code.as_str(), "hint": hint,
        });
        if let Some((name, id)) = &rule.subject {
            context[*name] = id.as_str().into();
        }
        details = serde_json::json!({"class": rule.class, "code": rule.name, "stage": null, "context": context});
    }
    failure.details = Some(etude_core::data::Json::of(&details));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use etude_core::data::Json;
    use etude_core::plan::Origin;

    /// cli: the hints of a model that did not respond say what to correct.
    #[test]
    fn a_model_without_a_response_has_its_fix() {
        for (why, expected) in [
            ("status 401: Incorrect API key", "check the key of `v`: "),
            ("status 404: no model `m`", "check the name of the model in `model_mapping`"),
            ("http://127.0.0.1:1/v1 cannot be reached: Connection refused (attempt 5 of 5)", "start the server of `v`"),
            ("no response from http://127.0.0.1:1/v1 within 2 min", "allow more time: `timeout` of the provider `v`"),
            ("the response cannot be parsed: not JSON", "check `base_url` of `v`"),
        ] {
            let message = format!("llm step `ask` got no response: `v/m`: {why}");
            let hints = hints(&Failure::new(FailureKind::ModelError, message), None);
            assert!(hints.iter().any(|hint| hint.starts_with(expected)), "{why}: {hints:?}");
        }
        let quota = "llm step `ask` got no response: `v/m`: status 429: quota";
        assert_eq!(of_model(&Failure::new(FailureKind::ModelError, quota)), None);
        // A process that prints these words is not a model.
        let printed = "code step `go` got no response: `v/m`: status 401: no";
        assert_eq!(of_model(&Failure::new(FailureKind::StepFailed, printed)), None);
    }

    /// cli: the hints of a process name the fix of its usual faults.
    #[test]
    fn a_failed_process_has_its_fix() {
        let failed = |kind, message: &str| Failure::new(kind, message);
        let mut slow = failed(FailureKind::StepTimeout, "code step `go` exceeded its timeout of 1 s");
        slow.origin = Some(Origin { file: "pipelines/p/pipeline.yaml".to_owned(), line: 4, column: 1 });
        assert_eq!(
            of_process(&slow).as_deref(),
            Some("allow more time: `timeout` of the step in pipelines/p/pipeline.yaml")
        );
        let tail = "Traceback\nModuleNotFoundError: No module named 'requestz'\n".to_owned();
        let mut module = failed(FailureKind::StepFailed, "code step `go` exited with status 1");
        module.stderr = Some(Stderr { lines: 2, bytes: tail.len() as u64, tail, blob: None });
        assert!(of_process(&module).is_some_and(|hint| hint.starts_with("install `requestz` for the Python")));
        for (status, expected) in [(126, Some("status 126: ")), (127, Some("status 127: ")), (1, None)] {
            let mut exited = failed(FailureKind::StepFailed, "it exited");
            exited.exit_status = Some(status);
            let hint = of_process(&exited);
            assert_eq!(hint.is_some(), expected.is_some(), "{status}");
            assert!(hint.is_none_or(|hint| expected.is_some_and(|start| hint.starts_with(start))), "{status}");
        }
    }

    /// B-20.4: the stderr of a gate that fails is shown as that of a step.
    #[test]
    fn stderr_of_a_hook_is_shown() {
        let mut failure = Failure::new(FailureKind::StageError, "the gate script of stage `a` exited with status 1");
        let shown = |failure: &Failure| text(failure, None, false);
        assert!(!shown(&failure).contains("stderr"));
        let details = |tail: &str| serde_json::json!({"code": "LifecycleFailure", "context": {"stderrTail": tail}});
        failure.details = Some(Json::of(&details("")));
        assert!(!shown(&failure).contains("stderr"));
        failure.details = Some(Json::of(&details("first\nNameError: x\n")));
        assert!(shown(&failure).contains("stderr, 2 lines:"), "{}", shown(&failure));
        assert!(shown(&failure).contains("NameError: x"), "{}", shown(&failure));
    }

    /// the tail of stderr fits on a screen, whatever the length of its lines.
    #[test]
    fn a_long_line_of_stderr_is_cut() {
        let mut failure = Failure::new(FailureKind::StepFailed, "code step `a` exited with status 1");
        let tail = format!("{}\n{}\nlast\n", "x".repeat(STDERR_WIDTH), "y".repeat(STDERR_WIDTH + 1));
        failure.stderr = Some(Stderr { lines: 3, bytes: tail.len() as u64, tail, blob: None });
        let shown = anstream::adapter::strip_str(&text(&failure, None, false)).to_string();
        let rows: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("   | ")).collect();
        let cut = format!("{}…", "y".repeat(STDERR_WIDTH - 1));
        assert_eq!(rows, [&*"x".repeat(STDERR_WIDTH), &*cut, "last"]);
    }
}

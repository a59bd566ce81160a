use serde_json::json;

use super::*;

fn plain(document: &Value, extra: &Extra) -> String {
    anstream::adapter::strip_str(&text(document, extra)).to_string()
}

fn extra() -> Extra {
    Extra { started: "2026-11-23 01:12:14".to_owned(), width: 80, ..Extra::default() }
}

fn row(name: &str, status: &str) -> Value {
    json!({"phase": "business", "name": name, "type": "code", "status": status, "attempts": 1, "duration_ms": 12})
}

#[test]
fn a_failed_run_says_why_and_what_to_do_next_on_one_screen() {
    let mut each = row("each", "succeeded");
    each["items"] = json!({"total": 51, "succeeded": 50, "failed": [7]});
    let attempt = json!({"rejected_by": "validate", "errors": ["12 files, but the diff has 8"], "duration_ms": 1200, "tokens": 210});
    let document = json!({
        "run_id": "9x0db7nsqx7cyhbh", "status": "failed", "mode": "pipeline", "pipeline": "code-review", "attempt": 2,
        "errors": [{
            "code": "R0203", "kind": "validation_exhausted", "step": "analyze", "file": "pipelines/p.yaml", "line": 9,
            "message": "llm step `analyze` was rejected 6 times (1 attempt + 5 retries); last reason: 12 files, but the diff has 8",
            "stderr_tail": "a\nb\n\nc\nd\ne\nf\ng\n", "stderr_lines": 40,
            "attempts": [attempt, attempt, attempt, attempt, attempt, attempt],
        }],
        "steps": [row("fetch", "succeeded"), each, row("analyze", "failed"), row("report", "not_started")],
        "usage": {"calls": 6, "input_tokens": 1200, "output_tokens": 60, "cost_usd": 0.0123},
        "duration_ms": 4200, "app": "/apps/review", "input": {"pr": 42},
    });
    let resume = Some("etude runs resume 9x0db7".to_owned());
    let shown = plain(&document, &Extra { resume, ..extra() });
    assert_eq!(
        shown,
        "run       9x0db7nsqx7cyhbh, attempt 2
pipeline  code-review
status    failed (4.2 s, 6 model calls, 1260 tokens, $0.0123)
started   2026-11-23 01:12:14
app       /apps/review
input     {\"pr\":42}

error[R0203]: llm step `analyze` was rejected 6 times (1 attempt + 5 retries);
last reason: 12 files, but the diff has 8
  --> pipelines/p.yaml:9
  stderr, last 6 of 40 lines:
  | b
  | c
  | d
  | e
  | f
  | g
   #    rejected by  reason                            time   tokens
   …    2 earlier
   3    validate     12 files, but the diff has 8     1.2 s      210
   4    validate     12 files, but the diff has 8     1.2 s      210
   5    validate     12 files, but the diff has 8     1.2 s      210
   6    validate     12 files, but the diff has 8     1.2 s      210

steps
  ✓ fetch    12 ms
  ✓ each     12 ms, 51 elements: 50 succeeded, 1 failed: [7]
  ✗ analyze  12 ms
  · report   not started

next      etude runs show 9x0db7 analyze  the step's attempts, input and output
          etude runs resume 9x0db7        continue after the cause is fixed
          etude explain R0203             explain the error
"
    );
    assert!(shown.lines().count() <= 36 && shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

/// `design: cli`: the code of a stage machine's error is a word, which `etude explain` does not know as a code.
#[test]
fn an_error_of_a_machine_names_the_code_that_can_be_explained() {
    let error = json!({
        "code": "MissingCapability", "kind": "stage_error", "class": "ProviderCapability", "step": "write",
        "message": "the model does not guarantee tool calls",
    });
    let document = json!({
        "run_id": "9x0db7nsqx7cyhbh", "status": "failed", "errors": [error], "steps": [row("write", "failed")], "duration_ms": 1,
    });
    let shown = plain(&document, &extra());
    assert!(shown.contains("\nerror[R0501]: the model does not guarantee tool calls\n"), "{shown}");
    assert!(shown.contains("etude explain R0501 "), "{shown}");
}

#[test]
fn a_run_that_succeeded_shows_its_output_and_how_to_print_it_whole() {
    let document = json!({
        "run_id": "9x0db7nsqx7cyhbh", "status": "succeeded", "mode": "pipeline", "pipeline": "p", "errors": [],
        "steps": [row("one", "succeeded")], "usage": {"calls": 0}, "duration_ms": 12, "app": "/a",
    });
    let output = Some(Excerpt { lines: vec!["[1, 2".to_owned()], hidden: 5000 });
    assert_eq!(
        plain(&document, &Extra { output, ..extra() }),
        "run       9x0db7nsqx7cyhbh
pipeline  p
status    succeeded (12 ms)
started   2026-11-23 01:12:14
app       /a

steps
  ✓ one  12 ms

output
  [1, 2
  … 4.9 KiB more: etude runs show 9x0db7 --stream output

next      etude runs show 9x0db7 one  the step's attempts, input and output
"
    );
}

#[test]
fn of_many_steps_those_that_went_well_are_folded() {
    let mut rows: Vec<Value> = (0..40).map(|n| row(&format!("s{n}"), "succeeded")).collect();
    rows[30] = row("s30", "failed");
    rows.extend((40..50).map(|n| row(&format!("s{n}"), "not_started")));
    let document =
        json!({"run_id": "9x0db7nsqx7cyhbh", "status": "failed", "steps": rows, "errors": [], "duration_ms": 1});
    let shown = plain(&document, &extra());
    assert!(shown.contains("  ✗ s30  12 ms\n  … 28 more succeeded, 10 more not started\n"), "{shown}");
    assert!(shown.lines().count() <= 30, "{shown}");
}

#[test]
fn a_run_that_waits_shows_the_question_and_how_to_answer_it() {
    let document = json!({
        "run_id": "9x0db7nsqx7cyhbh", "status": "waiting", "mode": "skill", "target": "skill:helper", "errors": [],
        "steps": [], "duration_ms": 5, "app": "/a",
        "waiting": [{"id": "9x0db7nsqx7cyhbh:x/Bash[0]", "kind": "tool",
                     "payload": {"message": "run a command", "arguments": {"command": "git push"}}}],
    });
    let shown = plain(&document, &extra());
    assert!(
        shown.contains(
            "\nwaits for tool: run a command
  | command: git push
      etude approve '9x0db7nsqx7cyhbh:x/Bash[0]'
      etude deny '9x0db7nsqx7cyhbh:x/Bash[0]'

next      etude runs resume 9x0db7  continue after the decision
"
        ),
        "{shown}"
    );
}

#[test]
fn nothing_in_a_run_steers_the_terminal() {
    let evil = "\u{1b}[2J\u{1b}]0;x\u{7}evil\u{202e}";
    let mut step = row(evil, "failed");
    step["model"] = evil.into();
    let document = json!({
        "run_id": "9x0db7nsqx7cyhbh", "status": "failed", "mode": "pipeline", "pipeline": evil, "app": evil,
        "errors": [{"code": "R0101", "message": evil, "step": evil, "stderr_tail": evil, "file": evil, "line": 1,
                    "attempts": [{"rejected_by": "schema", "errors": [evil]}]}],
        "steps": [step], "duration_ms": 1, "input": {"k": evil},
        "waiting": [{"id": evil, "kind": evil, "payload": {"message": evil, "arguments": {"a": evil}}}],
    });
    let shown = plain(&document, &extra());
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n') && !shown.contains('\u{202e}'), "{shown:?}");
}

/// cli: a step of an active run is not shown as waiting for an answer.
#[test]
fn steps_that_are_under_way_are_marked_by_the_state_of_their_run() {
    let document = |status: &str| {
        let mut each = row("each", status);
        each["elements"] = 12.into();
        json!({"run_id": "9x0db7nsqx7cyhbh", "status": status, "pipeline": "p", "steps": [row("nap", status), each]})
    };
    let shown = |status: &str| plain(&document(status), &extra());
    assert!(shown("running").contains("\n  ▸ nap   running\n  ▸ each  running, 12 elements\n"), "{}", shown("running"));
    let interrupted = shown("interrupted");
    assert!(interrupted.contains("\n  ! nap   interrupted\n  ! each  interrupted, 12 elements\n"), "{interrupted}");
}

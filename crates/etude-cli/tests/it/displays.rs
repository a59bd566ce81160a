//! Complete human-readable output of failed runs: the event, its place, the step's stderr, every attempt, the next command.
//! stdout stays empty.

use serde_json::json;

use crate::server::{Reply, Server};
use crate::test::Test;

const REVIEW: &str = "\
name: code-review
description: Reviews a change.
input: {pr: integer}
steps:
  - name: fetch_diff
    type: code
    command: bash steps/fetch_diff.sh

  - name: analyze_files
    type: llm
    prompt: |
      Review this: {{fetch_diff.output}}
    schema: schemas/analysis.json
    validate: steps/validate_analysis.sh
    retry: 3

  - name: gen_report
    type: code
    command: bash steps/gen_report.sh
";

fn review() -> Test {
    Test::new()
        .yaml("code-review", REVIEW)
        .file("pipelines/code-review/steps/fetch_diff.sh", "echo '{\"output\":\"a diff\"}'\n")
        .file("pipelines/code-review/steps/gen_report.sh", "echo '{\"output\":\"a report\"}'\n")
        .file(
            "pipelines/code-review/schemas/analysis.json",
            r#"{"type":"object","properties":{"files":{"type":"integer"},"severity":{"enum":["low","high"]}},"required":["files"]}"#,
        )
        .file(
            "pipelines/code-review/steps/validate_analysis.sh",
            "case \"$(cat)\" in *'\"files\":8'*) echo '{\"valid\":true}' ;;\n\
             *) echo '{\"valid\":false,\"errors\":[\"Analyzed 12 files but the diff only has 8\"]}' ;; esac\n",
        )
}

const RUN: [&str; 5] = ["run", "-p", "code-review", "-i", "pr=42"];

/// A-4.8: for exhausted retries, the last reason leads, and all attempts follow.
#[test]
fn exhausted_retries_report_every_attempt() {
    let server = Server::new([
        Reply::json(&json!({"files": 12, "severity": "urgent"})),
        Reply::json(&json!({"files": 12})).tokens(200, 10),
    ]);
    review().model(&server).run(&RUN).exit(1).stdout("").stderr(
            r#"
  ✓ fetch_diff [TIME]
  ↻ analyze_files response rejected by schema: /severity: "urgent" is not one of "low" or "high", attempt 2 of 4
  ↻ analyze_files response rejected by validate: Analyzed 12 files but the diff only has 8, attempt 3 of 4
  ↻ analyze_files response rejected by validate: Analyzed 12 files but the diff only has 8, attempt 4 of 4
  ✗ analyze_files [TIME], 3 retries, 740 tokens, mock/m-std

error[R0203]: llm step `analyze_files` was rejected 4 times (1 attempt + 3 retries); last reason: Analyzed 12 files but the diff only has 8
  --> pipelines/code-review/pipeline.yaml:9:11
  |
9 |   - name: analyze_files
  |           ^^^^^^^^^^^^^
  |

   #    rejected by  reason                                                 time   tokens
   1    schema       /severity: "urgent" is not one of "low" or "high" [TIME]      110
   2    validate     Analyzed 12 files but the diff only has 8 [TIME]      210
   3    validate     Analyzed 12 files but the diff only has 8 [TIME]      210
   4    validate     Analyzed 12 files but the diff only has 8 [TIME]      210

code-review failed in [TIME], 4 model calls, 740 tokens, run [RUN]
not started: gen_report
hint: fix the cause, then run: etude runs resume [RUN]; after an edit of the app: etude runs resume [RUN] --accept-changes
hint: see every prompt and response: etude runs show [RUN]
hint: explain this code: etude explain R0203"#,
        );
}

/// A-3.5, A-5.4: a failing step, and a destructor that fails too: both are shown, the first stays first.
#[test]
fn two_failures_are_both_reported_the_first_one_first() {
    review()
        .file(
            "pipelines/code-review/steps/fetch_diff.sh",
            "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo \"fetching page $n\"; done >&2\n\
             echo \"gh: could not resolve repository 'owner/repo'\" >&2\nexit 2\n",
        )
        .pipeline("_destructor", |p| p.sh("cleanup", "echo 'no such file: /tmp/my-app.lock' >&2; exit 1"))
        .run(&[&RUN[..], &["--quiet"]].concat())
        .exit(1)
        .stdout("")
        .stderr(
            r"
error[R0101]: code step `fetch_diff` exited with status 2
  --> pipelines/code-review/pipeline.yaml:5:11
  |
5 |   - name: fetch_diff
  |           ^^^^^^^^^^ ran [TIME]
  |
   stderr, last 12 of 13 lines:
   | fetching page 2
   | fetching page 3
   | fetching page 4
   | fetching page 5
   | fetching page 6
   | fetching page 7
   | fetching page 8
   | fetching page 9
   | fetching page 10
   | fetching page 11
   | fetching page 12
   | gh: could not resolve repository 'owner/repo'

error[R0101]: code step `cleanup` exited with status 1
  --> pipelines/_destructor/pipeline.yaml:4:11
  |
4 |   - name: cleanup
  |           ^^^^^^^ ran [TIME]; reported as well; it does not replace the error above
  |
   stderr, 1 line:
   | no such file: /tmp/my-app.lock",
        );
}

/// A-3.3: output that is not one document is shown, with what was expected.
#[test]
fn unusable_output_is_shown() {
    review()
        .file("pipelines/code-review/steps/fetch_diff.sh", "echo 'Fetching...'; echo '{\"output\":1}'\n")
        .run(&RUN)
        .exit(1)
        .stdout("")
        .stderr(
            r#"
  ✗ fetch_diff [TIME]

error[R0102]: code step `fetch_diff`: text before the JSON document; print diagnostics to stderr; stdout must be exactly one JSON object with `output`
  --> pipelines/code-review/pipeline.yaml:5:11
  |
5 |   - name: fetch_diff
  |           ^^^^^^^^^^ ran [TIME]
  |
   found on stdout:
   | Fetching...\n{"output":1}\n

code-review failed in [TIME], run [RUN]
not started: analyze_files, gen_report
hint: fix the cause, then run: etude runs resume [RUN]; after an edit of the app: etude runs resume [RUN] --accept-changes
hint: see the step's input and output: etude runs show [RUN]
hint: explain this code: etude explain R0102"#,
        );
}

/// A-4.5: for a provider that keeps failing, its last message leads, and each attempt has a row.
#[test]
fn a_failing_provider_is_reported_attempt_by_attempt() {
    let busy = || Reply::status(503).header("retry-after-ms", "1").message("overloaded");
    let server = Server::new([busy(), busy(), Reply::status(404).message("no such model: m-std")]);
    review().model(&server).run(&RUN).exit(1).stdout("").stderr(
        r"
  ✓ fetch_diff [TIME]
  ↻ analyze_files 503, next attempt in [TIME] (2 of 5)
  ↻ analyze_files 503, next attempt in [TIME] (3 of 5)
  ✗ analyze_files [TIME]

error[R0201]: llm step `analyze_files` got no response: `mock/m-std`: status 404: no such model: m-std (attempt 3 of 5)
  --> pipelines/code-review/pipeline.yaml:9:11
  |
9 |   - name: analyze_files
  |           ^^^^^^^^^^^^^
  |

   #    rejected by  reason                                                            time   tokens
   1    transport    attempt 1 of 5: status 503: overloaded; asked to wait [TIME]
        transport    attempt 2 of 5: status 503: overloaded; asked to wait [TIME]
        transport    `mock/m-std`: status 404: no such model: m-std (attempt 3 o… [TIME]

code-review failed in [TIME], run [RUN]
not started: gen_report
hint: fix the cause, then run: etude runs resume [RUN]; after an edit of the app: etude runs resume [RUN] --accept-changes
hint: see every prompt and response: etude runs show [RUN]
hint: check the name of the model in `model_mapping`, and `base_url` of `mock`: etude model list
hint: explain this code: etude explain R0201",
    );
}

/// A-4.7: a broken validator is reported as such, with its stderr.
#[test]
fn a_broken_validator_is_reported_with_its_stderr() {
    let server = Server::new([Reply::json(&json!({"files": 8}))]);
    review()
        .model(&server)
        .file("pipelines/code-review/steps/validate_analysis.sh", "echo 'ModuleNotFoundError: yaml' >&2; exit 3\n")
        .run(&RUN)
        .exit(1)
        .stdout("")
        .stderr(
            r"
  ✓ fetch_diff [TIME]
    analyze_files/validate | ModuleNotFoundError: yaml
  ✗ analyze_files [TIME], 110 tokens, mock/m-std

error[R0205]: validator `steps/validate_analysis.sh` failed: it exited with status 3 and printed no verdict
  --> pipelines/code-review/pipeline.yaml:9:11
  |
9 |   - name: analyze_files
  |           ^^^^^^^^^^^^^
  |

code-review failed in [TIME], 1 model call, 110 tokens, run [RUN]
not started: gen_report
hint: fix the cause, then run: etude runs resume [RUN]; after an edit of the app: etude runs resume [RUN] --accept-changes
hint: see the step's input and output: etude runs show [RUN]
hint: explain this code: etude explain R0205",
        );
}

/// A-2.2: definition errors, all of them, each under its source line.
#[test]
fn definition_errors_are_drawn_under_their_source_lines() {
    let wrong =
        REVIEW.replace("    prompt: |", "    modle: standard\n    prompt: |").replace("{{fetch_diff", "{{fetch_dif");
    review().yaml("code-review", &wrong).run(&["check"]).exit(3).stdout("").stderr(
        r"
error[P0201]: unknown field `modle` in llm step `analyze_files`
  --> pipelines/code-review/pipeline.yaml:11:5
   |
 9 |   - name: analyze_files
10 |     type: llm
11 |     modle: standard
   |     ^^^^^ an llm step has: name, type, model, prompt, schema, validate, retry; extensions: choose, system, temperature, max_tokens, cache_prompt, images, timeout, when, require, for_each, max_parallel, max_items, on_item_failure, cache, effects
   |
hint: did you mean `model`?

error[P0303]: `prompt` refers to `fetch_dif.output`, but there is no such step
  --> pipelines/code-review/pipeline.yaml:13:20
   |
11 |     modle: standard
12 |     prompt: |
13 |       Review this: {{fetch_dif.output}}
   |                    ^^^^^^^^^^^^^^^^^^^^ steps before `analyze_files`: fetch_diff
   |
hint: did you mean `fetch_diff`?

2 errors in `code-review`. More: etude explain P0201",
    );
}

/// A-2.4: all faults of the input are reported at once.
#[test]
fn faults_of_the_input_are_reported_at_once() {
    review().run(&["run", "-p", "code-review", "-i", "pr=many", "-i", "repo=x"]).exit(2).stdout("").stderr(
        r"
error[R0301]: parameter `pr` must be an integer, not `many`
error[R0301]: parameter `repo` is not declared
hint: declared parameters: `pr`",
    );
}

/// A run that succeeds: its steps on stderr, its output alone on stdout.
#[test]
fn a_run_that_succeeds_reports_its_steps_and_prints_its_output() {
    let server = Server::new([Reply::json(&json!({"files": 7})), Reply::json(&json!({"files": 8}))]);
    review().model(&server).run(&RUN).exit(0).stdout("\"a report\"").stderr(
        r"
  ✓ fetch_diff [TIME]
  ↻ analyze_files response rejected by validate: Analyzed 12 files but the diff only has 8, attempt 2 of 4
  ✓ analyze_files [TIME], 1 retry, 220 tokens, mock/m-std
  ✓ gen_report [TIME]

code-review succeeded in [TIME], 2 model calls, 220 tokens, run [RUN]",
    );
}

/// cli: `--quiet` prints nothing if nothing is wrong.
#[test]
fn quiet_says_nothing_about_a_run_that_succeeds() {
    let server = Server::new([Reply::json(&json!({"files": 8}))]);
    review().model(&server).run(&[&RUN[..], &["--quiet"]].concat()).exit(0).stdout("\"a report\"").stderr("");
}

/// A-5.2: a failing constructor reports that nothing else ran.
#[test]
fn a_failing_constructor_says_that_nothing_else_ran() {
    review()
        .pipeline("_constructor", |p| p.sh("check_tools", "echo 'gh is not installed' >&2; exit 1"))
        .run(&RUN)
        .exit(1)
        .stdout("")
        .stderr(
            r"
    check_tools | gh is not installed
  ✗ check_tools [TIME]

error[R0101]: code step `check_tools` exited with status 1
  --> pipelines/_constructor/pipeline.yaml:4:11
  |
4 |   - name: check_tools
  |           ^^^^^^^^^^^ ran [TIME]; the constructor failed, so nothing else ran
  |

code-review failed in [TIME], run [RUN]
not started: fetch_diff, analyze_files, gen_report
hint: fix the cause, then run: etude runs resume [RUN]; after an edit of the app: etude runs resume [RUN] --accept-changes
hint: see the step's input and output: etude runs show [RUN]
hint: explain this code: etude explain R0101",
        );
}

/// A-3.3: nothing that a step prints reaches the terminal as a control sequence.
#[test]
fn control_sequences_of_steps_do_not_reach_the_terminal() {
    let ran = review()
        .file("pipelines/code-review/steps/fetch_diff.sh", "printf '\\033[2J\\033]0;title\\007gone\\n' >&2; exit 1\n")
        .run(&RUN)
        .exit(1);
    assert!(!ran.err().contains('\u{1b}') && ran.err().contains("gone"), "{:?}", ran.err());
}

/// cli: without a terminal there are no colours, whatever the flags.
#[test]
fn there_are_no_colours_without_a_terminal() {
    for more in [&[][..], &["--no-color"], &["--verbose"]] {
        let ran =
            review().file("pipelines/code-review/steps/fetch_diff.sh", "exit 1\n").run(&[&RUN[..], more].concat());
        assert!(!ran.err().contains('\u{1b}'));
    }
}

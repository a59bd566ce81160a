//! Programs around steps that print endlessly: providers, validators, guards and skills.

use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::test::Test;

const RUN: [&str; 5] = ["run", "-p", "p", "--format", "json"];

/// Runs in too little address space, in KiB, to keep the printed text: none of these programs ends by itself.
fn bounded(test: &Test) -> Ran {
    test.bounded_by(1 << 20, &RUN)
}

fn provider(script: &str) -> Test {
    Test::new().pipeline("p", |p| p.llm("ask", "hi", "retry: 0")).file("model.sh", script).user_config(
        "model_mapping: {standard: prog/m}\nproviders: {prog: {kind: command, command: \"sh model.sh\"}}\n",
    )
}

/// a provider that is a program and prints endlessly is killed when it has printed more than any response has.
#[test]
fn an_answer_of_a_program_has_an_end() {
    let ran = bounded(&provider("exec yes\n")).exit(1).failed_with(&["business ask: model_error"]);
    ran.stderr_has("printed more than 67108864 bytes, the limit of a response, and was killed");
}

/// only the end of its stderr is kept, however long it is.
#[test]
fn stderr_of_a_provider_is_kept_in_part() {
    let noise = "yes | head -c 1200000000 >&2; echo the reason >&2\n";
    bounded(&provider(&format!("{noise}exit 3"))).exit(1).stderr_has("the reason");
    bounded(&provider(&format!("{noise}echo done"))).output("done");
}

/// a validator that prints endlessly is killed, and has no verdict.
#[test]
fn a_verdict_has_an_end() {
    let server = Server::new([Reply::says("fine")]);
    let test = Test::new()
        .pipeline("p", |p| p.llm("ask", "hi", "retry: 0\nvalidate: steps/v.sh").file("steps/v.sh", "exec yes\n"))
        .model(&server);
    bounded(&test).exit(1).stderr_has("more than 16 MiB; the program was killed");
}

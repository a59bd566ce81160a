//! Questions of a run, asked at the terminal.

use etude::definition::Definition;
use etude::runner::{Error, RunResult, Runner};
use etude_core::data::Json;
use etude_core::effect::{Gate, Subject};
use etude_core::outcome::Decision;
use etude_runtime::driver::Stop;
use etude_runtime::record;
use serde_json::{Value, json};

use super::watched;
use crate::command::user_name;
use crate::context::Context;
use crate::problem::Problem;
use crate::render::runs::waiting::{details, effects as changing};
use crate::render::stopped::of_engine;
use crate::render::text::visible;
use crate::signals;
use crate::typed::{Typed, typed};

/// Reaction of the person at the terminal.
enum Reaction {
    Decided(Decision),
    /// The question stays open.
    Nothing,
    /// The user pressed Ctrl-C.
    Stopped(Stop),
}

/// Asks the questions of the run at the terminal and continues it, until it waits for nothing more or a question is left open.
pub(crate) fn while_waiting(
    context: &Context,
    runner: &Runner,
    definition: &Definition,
    mut ended: Result<RunResult, Error>,
) -> Result<Result<RunResult, Error>, Problem> {
    while let Ok(waiting) = &ended
        && !waiting.gates.is_empty()
        && context.global.can_ask()
    {
        let (mut is_answered, mut stopped) = (false, None);
        let attempt = waiting.document.attempt.unwrap_or(1);
        for (id, gate) in &waiting.gates {
            match ask(gate)? {
                Reaction::Decided(decision) => {
                    let signal = record::decision_signal(id.as_str(), &record::question(gate, attempt), &decision);
                    runner.engine.signal(&waiting.run_id, &signal).map_err(|e| of_engine(&e))?;
                    is_answered = true;
                }
                Reaction::Nothing => {}
                Reaction::Stopped(stop) => {
                    stopped = Some(stop);
                    break;
                }
            }
        }
        if !is_answered && stopped.is_none() {
            break;
        }
        let session = runner.engine.claim(&waiting.run_id).map_err(|e| of_engine(&e))?;
        ended = watched(context, &definition.target, async |mut watch| {
            if let Some(stop) = stopped {
                watch.stop = signals::listen_after(stop).unwrap_or(watch.stop);
            }
            runner.proceed(session, definition, watch).await
        })?;
    }
    Ok(ended)
}

fn ask(gate: &Gate) -> Result<Reaction, Problem> {
    let by = user_name();
    let is_open = gate.schema.is_some() || !(gate.approvers.is_empty() || gate.approvers.contains(&by));
    if is_open || matches!(&gate.subject, Subject::Other { kind: "parked", .. }) {
        // A suspended stage waits for a later time. Answers with a schema, or of another person, are given with `etude
        // approve`.
        return Ok(Reaction::Nothing);
    }
    let can_be_remembered = matches!(&gate.subject, Subject::Other { kind: "tool", .. });
    let choices = if can_be_remembered { "[y]es, [a]lways, [n]o, [l]ater" } else { "[y]es, [n]o, [l]ater" };
    loop {
        let question = format!("\n? {}\n{}  {choices}: ", visible(&gate.message), whole(gate));
        let line = match typed(&question)? {
            Typed::Line(line) => line,
            Typed::End => return Ok(Reaction::Nothing),
            Typed::Stopped(stop) => return Ok(Reaction::Stopped(stop)),
        };
        let decided = |approved: bool, answer: Json| {
            let at = etude_runtime::clock::now_rfc3339();
            Ok(Reaction::Decided(Decision { approved, answer, by: by.clone(), at, reason: None }))
        };
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return decided(true, Json::null()),
            "a" | "always" if can_be_remembered => return decided(true, Json::string("always")),
            "n" | "no" => return decided(false, Json::null()),
            "l" | "later" => return Ok(Reaction::Nothing),
            _ => crate::render::say!("  please answer with one of: {choices}"),
        }
    }
}

/// Full content of a question, so that no one approves something that was not shown.
fn whole(gate: &Gate) -> String {
    if let Subject::Before { effects } = &gate.subject {
        let effects = changing(&json!({ "effects": effects })).unwrap_or_default();
        return format!("  then: {effects}\n");
    }
    let Subject::Other { payload, .. } = &gate.subject else { return String::new() };
    let Ok(Value::Object(facts)) = payload.value() else { return String::new() };
    let Some(given) = facts.get("arguments").or_else(|| facts.get("args")) else { return String::new() };
    details(given)
}

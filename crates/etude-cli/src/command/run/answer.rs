//! Questions of a run, asked at the terminal.

use std::io::Write;

use etude::core::data::Json;
use etude::core::effect::{EffectId, Gate, Subject};
use etude::core::outcome::Decision;
use etude::definition::Definition;
use etude::disk::Disk;
use etude::runner::{Ended, Error, Runner};
use etude::runtime::record;

use super::watched;
use crate::command::user_name;
use crate::context::{Context, Problem};
use crate::render::stopped::of_engine;
use crate::render::text::harmless;

/// What somebody at the terminal says.
enum Said {
    Decided(Decision),
    /// The question stays open.
    Nothing,
}

/// Asks whoever is at the terminal what the run waits for, and goes on with it, until it waits for nothing more or a
/// question is left open.
pub(crate) fn while_waiting(
    context: &Context,
    runner: &Runner,
    definition: &Definition,
    disk: &Disk,
    mut ended: Result<Ended, Error>,
) -> Result<Result<Ended, Error>, Problem> {
    while let Ok(waiting) = &ended
        && !waiting.gates.is_empty()
        && context.can_ask()
    {
        let mut is_answered = false;
        for (id, gate) in &waiting.gates {
            if let Said::Decided(decision) = ask(id, gate) {
                let signal = record::decision_signal(id, &decision);
                runner.engine.signal(&waiting.run_id, &signal).map_err(|e| of_engine(&e))?;
                is_answered = true;
            }
        }
        if !is_answered {
            break;
        }
        let session = runner.engine.claim(&waiting.run_id).map_err(|e| of_engine(&e))?;
        ended = watched(context, async |watch| runner.resume(session, definition, disk, false, watch).await)?;
    }
    Ok(ended)
}

fn ask(id: &EffectId, gate: &Gate) -> Said {
    let by = user_name();
    let is_open = gate.schema.is_some() || !(gate.approvers.is_empty() || gate.approvers.contains(&by));
    if is_open {
        // An answer with a schema, or of somebody else, is given with `etude approve`.
        return Said::Nothing;
    }
    let can_be_remembered = matches!(&gate.subject, Subject::Other { kind: "tool", .. });
    let choices = if can_be_remembered { "[y]es, [a]lways, [n]o, [l]ater" } else { "[y]es, [n]o, [l]ater" };
    loop {
        anstream::eprint!("\n? {}\n  {choices}: ", harmless(&gate.message));
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
            return Said::Nothing;
        }
        let decided = |approved: bool, answer: Json| {
            let at = etude::clock::now_rfc3339();
            Said::Decided(Decision { approved, answer, by: by.clone(), at, reason: None })
        };
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return decided(true, Json::null()),
            "a" | "always" if can_be_remembered => return decided(true, Json::string("always")),
            "n" | "no" => return decided(false, Json::null()),
            "l" | "later" => return Said::Nothing,
            _ => anstream::eprintln!("  `{}` is none of these ({id})", harmless(line.trim())),
        }
    }
}

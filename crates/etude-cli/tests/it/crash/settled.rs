//! Settled parts of a run when its process was killed: effects of the ledger, and their records.

use std::collections::BTreeSet;

use super::construct::Construct;
use super::life::{Death, Life};

impl Death {
    /// True if an effect must not begin again: it had an outcome, or its stage had ended.
    pub(super) fn has_settled(&self, effect: &str, construct: &Construct, whole: &Life) -> bool {
        if !construct.restarts {
            let (id, _) = effect.rsplit_once('@').unwrap_or((effect, ""));
            // A call that needed approval was held at the first attempt and did its work at the second.
            let was_held = whole.keys.contains(&format!("{id}!ask"));
            let done = format!("{id}#2");
            return self.keys.iter().any(|key| if was_held { *key == done } else { is_of(effect, key) });
        }
        let Some(stage) = stage_of(effect) else {
            return self.keys.iter().any(|key| is_of(effect, &without_return(key)));
        };
        let of_stage = |keys: &[String]| -> BTreeSet<String> {
            keys.iter().filter(|key| stage_of(&without_tries(key)) == Some(stage)).cloned().collect()
        };
        let (wanted, found) = (of_stage(&whole.keys), of_stage(&self.keys));
        // All of it within one entry: as in the whole run, or all with the number of a later entry.
        let entries: BTreeSet<&str> = found.iter().filter_map(|key| entry(key)).collect();
        let is_whole =
            |entry: &str| wanted.iter().all(|key| found.contains(&key.replacen(stage, &format!("{stage}{entry}"), 1)));
        entries.into_iter().any(is_whole)
    }
}

/// Execution of the stage that an effect belongs to, such as `m/m/plan#1`.
fn stage_of(effect: &str) -> Option<&str> {
    let at = effect.find('#')?;
    let digits = effect[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
    Some(&effect[..at + 1 + digits])
}

/// Entry of the stage that a record is from: empty for the first, `@2` for the second.
fn entry(key: &str) -> Option<&str> {
    let rest = &key[stage_of(key)?.len()..];
    Some(rest.split(['/', '!']).next().unwrap_or_default())
}

/// An id without `@2`, neither of a stage's entry nor of an attempt.
pub(super) fn without_tries(id: &str) -> String {
    let mut parts = id.split('@');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |id, part| id + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// An id without the number of the return that a migration belongs to: a death before the migration makes it a later one.
pub(super) fn without_return(id: &str) -> String {
    let Some((before, rest)) = id.split_once("/migrate") else { return id.to_owned() };
    format!("{before}/migrate{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// True if the record `key` belongs to `ID@TRY` of the ledger. `ID~LAYER@TRY` of middleware is a part of it.
pub(super) fn is_of(effect: &str, key: &str) -> bool {
    let (id, attempt) = effect.rsplit_once('@').unwrap_or((effect, ""));
    let id = id.split_once('~').map_or(id, |(id, _)| id);
    match attempt {
        "" | "1" => key == id,
        // An effect that belongs to an attempt has it in its path.
        _ if id.contains('#') => key == id,
        _ => key.strip_prefix(id) == Some(&format!("#{attempt}")),
    }
}

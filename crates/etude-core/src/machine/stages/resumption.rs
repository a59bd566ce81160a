//! Work before the stages of a machine continue in another process: the session begins again (`b-stages` §12, §14).
//!
//! | state     | ends                                      | next                                              |
//! |-----------|-------------------------------------------|---------------------------------------------------|
//! | opening   | the current tools                         | probing                                           |
//! | probing   | the model calls tools                     | migrating, or over                                |
//! | probing   | it does not                               | over, with that failure                           |
//! | migrating | all data has the machine's version        | over                                              |
//! | migrating | the script failed, or its reply is wrong  | over, with that failure                           |

use std::sync::Arc;
use std::task::Poll;

use serde_json::{Value, json};

use super::audit::emit;
use super::fault::{drift_rejected, migration_failed};
use super::hook::{Hook, Reply};
use super::probe::Probe;
use super::shared::Shared;
use crate::effect::{Effect, EffectId};
use crate::failure::Failure;
use crate::machine::outcome_error::unexpected_outcome;
use crate::machine::{Cx, Path};
use crate::outcome::Outcome;
use crate::plan::stages::{Drift, SlotForm};

/// The return of a machine to its work in another process.
#[derive(Debug)]
pub(super) struct Resumption {
    /// Number of the return, from 1.
    number: u32,
    /// The unfinished migration of an earlier return, whose process died.
    broken_off: Option<Box<Migration>>,
    state: State,
}

#[derive(Debug)]
enum State {
    Opening(EffectId),
    Probing(Probe),
    Migrating(Box<Migration>),
}

/// Migration of slot data to another version. Branches of a fan-out may have changed the data in different ways, so
/// there may be several values.
#[derive(Debug)]
struct Migration {
    /// Number of the return that began the migration: its keys stay the same if a later return continues it.
    since: u32,
    /// Stored values, each with its migrated value.
    done: Vec<(Value, Value)>,
    /// Values that are still to be migrated, the next one last.
    left: Vec<Value>,
    hook: Option<Hook>,
    /// The target version.
    to: SlotForm,
}

impl Resumption {
    /// A return after `before`, if that one is unfinished.
    pub(super) fn new(number: u32, path: &Path, before: Option<Self>) -> Self {
        let broken_off = before.and_then(|before| match before.state {
            State::Migrating(migration) => Some(migration),
            State::Opening(_) | State::Probing(_) => before.broken_off,
        });
        Self { number, broken_off, state: State::Opening(path.child("tools").attempt(number + 1)) }
    }

    /// Ready when the machine may continue; `slots` holds all the data that it keeps.
    pub(super) fn poll(
        &mut self,
        cx: &mut Cx,
        shared: &mut Shared,
        slots: &mut [&mut Value],
        stopped: Option<&Failure>,
    ) -> Poll<Result<(), Failure>> {
        loop {
            match &mut self.state {
                State::Opening(id) => {
                    let tool_selection = Arc::clone(&shared.tool_selection);
                    let Poll::Ready(done) = cx.run_effect(id, || Effect::Open(tool_selection)) else {
                        return Poll::Pending;
                    };
                    cx.book(shared.ledger, id, &done);
                    if let Some(why) = stopped {
                        return Poll::Ready(Err(why.clone()));
                    }
                    let Outcome::Opened(tool_list) = done.outcome else {
                        return Poll::Ready(Err(unexpected_outcome(id)));
                    };
                    shared.tool_list = *tool_list;
                    let path = shared.path.child("probe").incarnation(self.number + 1);
                    self.state = State::Probing(Probe::new(&shared.machine, &shared.tool_list, path));
                }
                State::Probing(probe) => {
                    let Poll::Ready(can) = probe.poll(cx, shared, stopped) else { return Poll::Pending };
                    can?;
                    let Some(to) = drifted(cx, shared)? else { return Poll::Ready(Ok(())) };
                    let migration = match self.broken_off.take() {
                        // Values that are already migrated are not migrated again.
                        Some(before) if before.to == to => Migration { hook: None, ..*before },
                        _ => Migration::new(self.number, slots, to),
                    };
                    self.state = State::Migrating(Box::new(migration));
                }
                State::Migrating(migration) => {
                    let Poll::Ready(done) = migration.poll(cx, shared, self.number, stopped) else {
                        return Poll::Pending;
                    };
                    done?;
                    migration.apply(slots);
                    shared.slot_version.clone_from(&migration.to.version);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    pub(super) fn stop(&self, cx: &mut Cx) {
        match &self.state {
            State::Opening(id) => cx.abandon(id),
            State::Probing(probe) => probe.stop(cx),
            State::Migrating(migration) => migration.hook.iter().for_each(|hook| hook.stop(cx)),
        }
    }

    /// Abandons effects that died with their process.
    pub(super) fn forget(&self, cx: &mut Cx) {
        match &self.state {
            State::Opening(id) => cx.forget(id),
            State::Probing(probe) => probe.forget(cx),
            State::Migrating(migration) => migration.hook.iter().for_each(|hook| hook.forget(cx)),
        }
    }
}

/// The form that the slot must be migrated to, if its version differs from the machine's (B-ST3).
fn drifted(cx: &mut Cx, shared: &mut Shared) -> Result<Option<SlotForm>, Failure> {
    let id = shared.machine.id.clone();
    // The form when the run was resumed: the machine may have changed again since.
    let Some(to) = cx.facts.slots.get(&id).cloned() else { return Ok(None) };
    if to.version == shared.slot_version {
        return Ok(None);
    }
    let facts = json!({
        "extId": id, "storedVersion": shared.slot_version, "currentVersion": to.version, "decision": to.drift,
    });
    emit(cx, "StateSlotDrift", shared.event(facts));
    match to.drift.as_str() {
        "migrate" => Ok(Some(to)),
        "warn" => {
            shared.slot_version = to.version;
            Ok(None)
        }
        _ => Err(drift_rejected(&id, &shared.slot_version, &to.version)),
    }
}

impl Migration {
    fn new(since: u32, slots: &[&mut Value], to: SlotForm) -> Self {
        let mut left: Vec<Value> = Vec::new();
        for slot in slots {
            if !left.contains(slot) {
                left.push((**slot).clone());
            }
        }
        left.reverse();
        Self { since, done: Vec::new(), left, hook: None, to }
    }

    fn poll(
        &mut self,
        cx: &mut Cx,
        shared: &Shared,
        number: u32,
        stopped: Option<&Failure>,
    ) -> Poll<Result<(), Failure>> {
        loop {
            let Some(hook) = &mut self.hook else {
                if let Some(why) = stopped {
                    return Poll::Ready(Err(why.clone()));
                }
                let Some(stored) = self.left.last() else { return Poll::Ready(Ok(())) };
                let hook = self.hook(shared, number, stored)?;
                self.hook = Some(hook);
                continue;
            };
            let Poll::Ready(reply) = hook.poll(cx, shared.ledger) else { return Poll::Pending };
            self.hook = None;
            if let Some(why) = stopped {
                return Poll::Ready(Err(why.clone()));
            }
            let now = self.read(shared, reply.unwrap_or(Reply::Nothing))?;
            self.done.extend(self.left.pop().map(|stored| (stored, now)));
        }
    }

    fn hook(&self, shared: &Shared, number: u32, stored: &Value) -> Result<Hook, Failure> {
        let machine = &shared.machine;
        let script = match (&self.to.script, &machine.slot.drift) {
            (Some(script), _) => script,
            // Records of earlier versions of the program do not name the script.
            (None, Drift::Migrate(script)) => script,
            (None, Drift::Reject | Drift::Warn) => {
                return Err(migration_failed(&machine.id, "the machine no longer has a migration script", json!({})));
            }
        };
        let more = json!({
            "run": {"workflowRunId": shared.run_id, "cwd": shared.app_dir},
            "stored": {"slotVersion": shared.slot_version, "data": stored},
        });
        let stdin = shared.document("migrate", stored, more);
        let path = |number: u32| shared.path.child(&format!("migrate{number}")).item(self.done.len());
        Ok(Hook::new(&path(number), path(self.since).as_str(), 1, script, &machine.dir, stdin.into()))
    }

    /// The migrated data in a script's reply, which must have the requested version. It must also fit the machine's
    /// schema, if that has this version: the reply may be read again in a later process, and the machine may have
    /// changed since.
    fn read(&self, shared: &Shared, reply: Reply) -> Result<Value, Failure> {
        let (id, wanted) = (&shared.machine.id, &self.to.version);
        let facts = Value::Object(reply.fields());
        let members = match reply {
            Reply::Value(Value::Object(members)) => members,
            Reply::Value(_) => return Err(migration_failed(id, "the script must print one JSON object", facts)),
            Reply::Nothing => return Err(migration_failed(id, "the script printed nothing", facts)),
            Reply::Broken { why, .. } => return Err(migration_failed(id, &format!("the script {why}"), facts)),
        };
        let version = members.get("slotVersion").and_then(Value::as_str);
        if version != Some(wanted) {
            let found = version.map_or("none".to_owned(), |version| format!("`{version}`"));
            let why = format!("the script printed {found} as `slotVersion`; the machine has {wanted}");
            return Err(migration_failed(id, &why, json!({"slotVersion": version, "currentVersion": wanted})));
        }
        let data = members.get("data").cloned().unwrap_or_default();
        let is_current = *wanted == shared.machine.slot.version;
        let faults = if is_current { shared.machine.slot.schema.faults(&data) } else { Vec::new() };
        if faults.is_empty() {
            return Ok(data);
        }
        let why = format!("the new data does not match the schema of the slot: {}", faults.join("; "));
        Err(migration_failed(id, &why, json!({"errors": faults})))
    }

    fn apply(&self, slots: &mut [&mut Value]) {
        for slot in slots {
            if let Some((_, now)) = self.done.iter().find(|(stored, _)| stored == *slot) {
                **slot = now.clone();
            }
        }
    }
}

//! State that all stage executions of a machine share.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::audit::emit;
use super::grants::Ledger;
use crate::data::overlaid;
use crate::machine::{Cx, NAMES_MACHINES, Path};
use crate::plan::stages::StageMachine;
use crate::report::{StageRow, StageStatus};
use crate::tool::{ToolList, ToolSelection, approval_key, asked_arguments};

/// State that all stage executions of a machine share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) machine: Arc<StageMachine>,
    pub(super) run_id: String,
    /// The version of the interpreter that began the run.
    pub(super) abi: u32,
    pub(super) app_dir: String,
    /// True if questions are answered with yes automatically (B-HL2).
    pub(super) yolo: bool,
    pub(super) input: Value,
    /// Everything that the user has typed: secrets in it were meant for the model.
    pub(super) typed: Arc<str>,
    /// The version of the data in the slot (B-ST3).
    pub(super) slot_version: String,
    pub(super) tool_selection: Arc<ToolSelection>,
    pub(super) tool_list: ToolList,
    /// Row of the machine's step in the report.
    pub(super) ledger: Option<usize>,
    pub(super) path: Path,
    pub(super) grants: Ledger,
    /// Number of decisions by each rule of the grant policy.
    pub(super) rules_used: BTreeMap<usize, u32>,
    visits: BTreeMap<String, u32>,
    executions: u32,
    compounds: u32,
}

/// Slot and outputs as the executions of one branch see them.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// The data of the state slot.
    pub(super) slot: Value,
    /// The outputs of completed stages, by their ids.
    pub(super) steps: Map<String, Value>,
}

impl View {
    pub(super) fn new() -> Self {
        Self { slot: json!({}), steps: Map::new() }
    }

    /// Merges the changes of a branch since it began at `before`.
    pub(super) fn merge(&mut self, before: &Self, after: &Self) {
        if let (Some(now), Some(before), Some(after)) =
            (self.slot.as_object_mut(), before.slot.as_object(), after.slot.as_object())
        {
            for (name, value) in after {
                if before.get(name) != Some(value) {
                    now.insert(name.clone(), value.clone());
                }
            }
            now.retain(|name, _| after.contains_key(name) || !before.contains_key(name));
        } else if before.slot != after.slot {
            self.slot = after.slot.clone();
        }
        for (stage, output) in &after.steps {
            if before.steps.get(stage) != Some(output) {
                self.steps.insert(stage.clone(), output.clone());
            }
        }
    }
}

impl Shared {
    pub(super) fn new(machine: &Arc<StageMachine>, input: Value, path: Path, ledger: Option<usize>, cx: &Cx) -> Self {
        let mut typed = String::new();
        add_typed(&input, &mut typed);
        let (tier, dir) = (machine.tier, machine.dir.clone());
        let tool_selection =
            ToolSelection { tier, dir, lists_skills: true, lists_in_tools: true, ..ToolSelection::default() };
        Self {
            machine: Arc::clone(machine),
            run_id: cx.facts.run_id.clone(),
            abi: cx.facts.abi,
            app_dir: cx.facts.app_dir.clone(),
            yolo: cx.facts.yolo,
            typed: typed.into(),
            slot_version: slot_version(machine, cx),
            input,
            tool_selection: Arc::new(tool_selection),
            tool_list: ToolList::default(),
            ledger,
            path,
            grants: Ledger::default(),
            rules_used: BTreeMap::new(),
            visits: BTreeMap::new(),
            executions: 0,
            compounds: 0,
        }
    }

    /// Adopts the slot version that the run has now, while the slot is still empty (B-ST3).
    pub(super) fn take_form(&mut self, cx: &Cx) {
        self.slot_version = slot_version(&self.machine, cx);
    }

    /// Counts an execution; false if the maximum is exceeded (B-N8).
    pub(super) fn count(&mut self) -> bool {
        self.executions += 1;
        self.executions <= self.machine.max_executions
    }

    /// Prefix of the ids of executions: the run, and the place of the machine unless it is the target of the run. Machines
    /// of one run need different ids (B-ID3).
    pub(super) fn prefix(&self) -> String {
        let place = self.path.as_str();
        let is_target = place.split_once('/') == Some((self.machine.id.as_str(), self.machine.id.as_str()));
        if is_target || self.abi < NAMES_MACHINES {
            return self.run_id.clone();
        }
        format!("{}/{place}", self.run_id)
    }

    /// Counts a visit of the stage, and returns its number, from 1 (B-ID2).
    pub(super) fn visit(&mut self, stage: &str) -> u32 {
        let visits = self.visits.entry(stage.to_owned()).or_default();
        *visits += 1;
        *visits
    }

    /// The id of the next compound turn, opened by `stage` (B-P18).
    pub(super) fn compound(&mut self, stage: &str) -> String {
        self.compounds += 1;
        format!("{}:{stage}:compound:{}", self.prefix(), self.compounds)
    }

    pub(super) fn is_tool(&self, name: &str) -> bool {
        self.tool_list.tools.iter().any(|available| available.tool.name == name)
    }

    /// The common input of every script of the machine (`b-stages` §20.4), with the members of `more` laid over it.
    pub(super) fn document(&self, hook: &str, slot: &Value, more: Value) -> Value {
        let base = json!({
            "protocol": "stage-hook/1", "hook": hook, "input": self.input,
            "machine": {"id": self.machine.id, "config": self.machine.config.value().unwrap_or_default()},
            "slot": {"slotVersion": self.slot_version, "data": slot},
        });
        overlaid(base, more)
    }

    /// The approval key of a call: from the tool's template, or the tool's name.
    pub(super) fn approval_key(&self, name: &str, arguments: &str) -> String {
        let available = self.tool_list.tools.iter().find(|available| available.tool.name == name);
        match (available.and_then(|available| available.approval_key.as_ref()), asked_arguments(arguments, self.abi)) {
            (Some(template), Value::Object(args)) => approval_key(template, &args),
            _ => name.to_owned(),
        }
    }

    /// The payload of an event that concerns no stage (`b-stages` §17).
    pub(super) fn event(&self, more: Value) -> Value {
        overlaid(json!({"sessionId": self.run_id, "workflowRunId": self.run_id}), more)
    }

    /// Emits that the machine has its slot, and begins or continues (B-M6).
    pub(super) fn emit_attached(&self, cx: &mut Cx, is_resumed: bool) {
        let facts = json!({"smId": self.machine.id, "resumed": is_resumed, "sawSlot": true});
        emit(cx, "SMAttached", self.event(facts));
    }

    /// Emits that the progress so far is stored (B-ST4).
    pub(super) fn emit_persisted(&self, cx: &mut Cx) {
        emit(cx, "SessionPersisted", self.event(json!({"storeId": "journal"})));
    }
}

/// The version of an empty slot.
fn slot_version(machine: &StageMachine, cx: &Cx) -> String {
    cx.facts.slots.get(&machine.id).map_or(&machine.slot.version, |form| &form.version).clone()
}

/// Collects all texts that the user has typed, each on a line.
fn add_typed(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => {
            out.push_str(text);
            out.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| add_typed(item, out)),
        Value::Object(members) => members.values().for_each(|member| add_typed(member, out)),
        other => {
            out.push_str(&other.to_string());
            out.push('\n');
        }
    }
}

/// Adds a row for an execution that begins.
pub(super) fn add_row(cx: &mut Cx, stage: &str, execution: &str) -> usize {
    cx.stages.rows.push(StageRow {
        stage_id: stage.to_owned(),
        stage_execution_id: execution.to_owned(),
        status: StageStatus::Running,
        verdict: None,
        cap_hit: false,
        attempt_count: 0,
    });
    cx.stages.rows.len() - 1
}

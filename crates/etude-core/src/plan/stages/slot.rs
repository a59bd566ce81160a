//! What a machine keeps between its runs (`b-stages` §14).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Script;
use crate::schema::Schema;

/// The state slot of a machine (B-14).
#[derive(Debug, Clone)]
pub struct Slot {
    /// The version of its form.
    pub version: String,
    /// What its data must be.
    pub schema: Arc<Schema>,
    /// What happens to data of another version (B-ST3).
    pub drift: Drift,
}

/// What happens to the data of an older slot.
#[derive(Debug, Clone, PartialEq)]
pub enum Drift {
    /// The run stops.
    Reject,
    /// It is taken as it is.
    Warn,
    /// A script changes it.
    Migrate(Script),
}

impl Drift {
    /// The word in machine files.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Warn => "warn",
            Self::Migrate(_) => "migrate",
        }
    }
}

/// The form of the data that a machine keeps: what a run goes on with may be of another (B-ST3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotForm {
    /// The `slotVersion` that the data was written with.
    pub version: String,
    /// The word for what happens to data of another version.
    pub drift: String,
    /// What migrates such data, if that is what happens to it: a later form may have another script, or none, when the
    /// migration to this one is read once more.
    pub script: Option<Script>,
}

/// The forms of all slots of a plan, by the ids of their machines.
pub type SlotForms = BTreeMap<String, SlotForm>;

impl Slot {
    /// The part of the slot that a run keeps, to notice a change when it is resumed (B-ST3).
    pub fn form(&self) -> SlotForm {
        let script = match &self.drift {
            Drift::Migrate(script) => Some(script.clone()),
            Drift::Reject | Drift::Warn => None,
        };
        SlotForm { version: self.version.clone(), drift: self.drift.word().to_owned(), script }
    }
}

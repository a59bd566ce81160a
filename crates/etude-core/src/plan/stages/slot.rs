//! State slots: data that a machine keeps while its run moves between processes (`b-stages` §14).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Script;
use crate::schema::Schema;

/// The state slot of a machine (B-14).
#[derive(Debug, Clone)]
pub struct Slot {
    /// The version of the data's form.
    pub version: String,
    /// Schema of the data.
    pub schema: Arc<Schema>,
    /// Treatment of data of another version (B-ST3).
    pub drift: Drift,
}

/// Treatment of slot data of another version.
#[derive(Debug, Clone, PartialEq)]
pub enum Drift {
    /// The run fails.
    Reject,
    /// The data is used unchanged, with a warning event.
    Warn,
    /// A script migrates the data.
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

/// The form of a slot's data; a resumed run may have data of another form (B-ST3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotForm {
    /// The `slotVersion` that the data was written with.
    pub version: String,
    /// The word for the treatment of data of another version.
    pub drift: String,
    /// The script that migrates data to this version, if `drift` is `migrate`. It is kept here, because a later form
    /// may have another script or none when the migration to this form is replayed.
    pub script: Option<Script>,
}

/// The forms of all slots of a plan, by the ids of their machines.
pub type SlotForms = BTreeMap<String, SlotForm>;

impl Slot {
    /// The form of the slot, which a run keeps to notice a change when it is resumed (B-ST3).
    pub fn form(&self) -> SlotForm {
        let script = match &self.drift {
            Drift::Migrate(script) => Some(script.clone()),
            Drift::Reject | Drift::Warn => None,
        };
        SlotForm { version: self.version.clone(), drift: self.drift.word().to_owned(), script }
    }
}

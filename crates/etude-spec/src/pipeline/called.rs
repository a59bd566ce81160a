//! A stage machine that steps run, with the parts that all of them share.

use std::sync::Arc;

use etude_core::plan::stages::StageMachine;
use etude_core::schema::Schema;

use crate::input::InputDecl;

/// A stage machine that steps run.
pub(crate) struct CalledMachine {
    pub(crate) plan: Arc<StageMachine>,
    pub(crate) input: InputDecl,
    pub(crate) schema: Arc<Schema>,
    pub(super) files: Vec<String>,
}

impl CalledMachine {
    pub(super) fn new(plan: Arc<StageMachine>, input: InputDecl, files: Vec<String>) -> Self {
        let schema = input.compiled(&format!("input of {}", plan.id));
        Self { plan, input, schema, files }
    }
}

//! Checks of a skill's schemas for arguments and results (D-2.3, D-0.1.12).

use std::collections::BTreeMap;

use etude_core::schema::Schema;

use crate::cascade::resolve::RESOLVE;
use crate::cascade::skill::Skill;
use crate::diagnose::cascade as diagnose;
use crate::diagnostic::Diagnostic;

/// Keys whose values are schemas.
const KEYS: [&str; 2] = ["params", "returns"];

/// Cached faults by schema text; `None` for valid ones. Many skills share a schema.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<String, Option<String>>);

impl Known {
    /// Faults of the schemas that a skill declares itself. Parts that a call fills in are checked by the call.
    pub(super) fn faults(&mut self, skill: &Skill) -> Vec<Diagnostic> {
        let declares = |mut keys: Box<dyn Iterator<Item = &str> + '_>| keys.any(|key| KEYS.contains(&key));
        if skill.outline().is_some_and(|(keys, _)| !declares(Box::new(keys))) {
            return Vec::new();
        }
        let fault = |key: &str| {
            let schema = skill.metadata().get(key).filter(|schema| !schema.is_null())?;
            let text = schema.to_string();
            if text.contains("${") || text.contains(RESOLVE) {
                return None;
            }
            let compile = || Schema::compile(key, schema.clone(), BTreeMap::new()).err();
            let why = self.0.entry(text).or_insert_with(compile).as_deref()?;
            Some(diagnose::schema(&skill.file, skill.place(&format!("/{key}")), &skill.name, key, why))
        };
        KEYS.into_iter().filter_map(fault).collect()
    }
}

//! Values that are known before a run: those of the input.

use std::cell::Cell;
use std::rc::Rc;

use etude_core::condition::Condition;
use etude_core::data::Json;
use etude_core::plan::{Binding, SubPipeline};
use etude_core::template::{Reference, Scope, Template};
use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::describe;

/// Known part of an input.
pub(super) struct Known {
    members: IndexMap<String, Json>,
    /// True if every member is known.
    is_whole: bool,
    /// The known members as one object.
    object: Json,
    /// Remaining bytes of text in the whole dry run: definitions can multiply the texts that they pass on.
    left: Rc<Cell<usize>>,
}

impl Known {
    /// Input whose members are all known.
    pub(super) fn all(input: &Json, left: &Rc<Cell<usize>>) -> Self {
        let text = input.text().unwrap_or_else(|_| "{}".into());
        let members: IndexMap<String, &RawValue> = serde_json::from_str(&text).unwrap_or_default();
        let members = members.into_iter().map(|(name, raw)| (name, Json::trusted(raw.get()))).collect();
        Self { members, is_whole: true, object: input.clone(), left: Rc::clone(left) }
    }

    /// Known part of the input of another pipeline that a step runs.
    pub(super) fn of_sub_pipeline(&self, sub: &SubPipeline) -> Self {
        let resolved = sub.input.iter().filter_map(|(name, value)| Some((name.clone(), self.value(value)?)));
        let members: IndexMap<String, Json> = resolved.collect();
        let texts = members
            .iter()
            .filter_map(|(name, value)| Some(format!("{}:{}", Value::from(name.as_str()), value.text().ok()?)));
        let object = Json::trusted(format!("{{{}}}", texts.collect::<Vec<_>>().join(",")));
        Self { is_whole: members.len() == sub.input.len(), members, object, left: Rc::clone(&self.left) }
    }

    /// Value of a binding; `None` if it is unknown or there is no room for it.
    pub(super) fn value(&self, binding: &Binding) -> Option<Json> {
        let value = match binding {
            // A template is rendered only while there is room.
            Binding::Template(template) => {
                template
                    .references()
                    .all(|(reference, _)| reference.resolve(self).is_ok())
                    .then(|| self.text(template))?;
                if self.left.get() == 0 {
                    return None;
                }
                binding.resolve(self).ok()?
            }
            _ => binding.resolve(self).ok()?,
        };
        let len = value.text().ok()?.len();
        let left = self.left.get();
        self.left.set(left.saturating_sub(len));
        (len <= left).then_some(value)
    }

    /// Template, rendered with the known values and cut where the room ends.
    pub(super) fn text(&self, template: &Template) -> String {
        let left = self.left.get();
        let text = template.render_partly(self, left);
        self.left.set(left.saturating_sub(text.len()));
        text
    }

    /// Value of the condition; `None` if it depends on unknown values.
    pub(super) fn decides(&self, condition: &Condition) -> Option<bool> {
        let mut references = Vec::new();
        describe::of_condition(condition, &mut references);
        // `exists` asks if a value is present: a value that is still unknown is not a missing one.
        let is_known =
            |reference: &&Reference| matches!(reference, Reference::Input { .. }) && self.may_answer(reference);
        if !references.iter().all(is_known) {
            return None;
        }
        condition.holds(self).ok()
    }

    fn may_answer(&self, reference: &Reference) -> bool {
        self.is_whole || reference.path().first().is_some_and(|name| self.members.contains_key(&name.to_string()))
    }
}

impl Scope for Known {
    fn root(&self, reference: &Reference) -> Result<Json, String> {
        match reference {
            Reference::Input { .. } if self.may_answer(reference) => Ok(self.object.clone()),
            _ => Err("the value is known only at run time".to_owned()),
        }
    }
}

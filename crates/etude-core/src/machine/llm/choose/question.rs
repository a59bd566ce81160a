//! A closed question: its list, the allowed answers, and the elements that an answer stands for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::choose_of;
use crate::data::{Json, ReadError};
use crate::exact::same;
use crate::failure::{Failure, FailureKind, Reason};
use crate::machine::binding::{kind_of_maker, unreadable, unresolved};
use crate::machine::deviation;
use crate::machine::values::Values;
use crate::plan::Step;
use crate::schema::Schema;
use crate::template::{Scope, compact};
use crate::tree::{self, TreeError};

/// The answer for no element.
const NONE: &str = "none";

/// The first version of the interpreter whose output has the element as it is written, with all its digits.
const KEEPS_ELEMENTS: u32 = 8;

/// The first version of the interpreter that deviates if the list is not a list, as for an empty list (L-50). Earlier
/// ones failed as for a template without a value.
const DEVIATES_WITHOUT_LIST: u32 = 10;

/// A question with the elements that may be chosen.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) step: Arc<Step>,
    pub(super) many: bool,
    /// The elements, each with the answer that stands for it.
    elements: Vec<(Json, Value)>,
    abi: u32,
}

impl Question {
    /// Reads the list and builds the question.
    ///
    /// # Errors
    /// The list has no value, is not a list, or has elements that cannot be asked about.
    pub(super) fn of(step: &Arc<Step>, values: &Values) -> Result<Self, Failure> {
        let (name, choose) = (&step.name, choose_of(step));
        let list = choose.from.resolve(values).map_err(|e| unresolved(&e))?;
        let list = elements(&list, choose.by.as_deref(), values.abi()).map_err(|why| {
            let what = format!("the list that step `{name}` chooses from");
            unreadable(&what, &why, kind_of_maker(&choose.from), FailureKind::Environment, values.abi())
        })?;
        let Some(list) = list else {
            if values.abi() >= DEVIATES_WITHOUT_LIST {
                return Err(deviation::of_choice(name, &choose.from, Reason::FieldType, "there is no list"));
            }
            let message = format!("`choose` of step `{name}` needs a list; the value is not a list");
            return Err(Failure::new(FailureKind::TemplateUnresolved, message).because(Reason::FieldType));
        };
        if list.is_empty() {
            return Err(deviation::of_choice(name, &choose.from, Reason::ChooseEmpty, "the list is empty"));
        }
        // Compared as they are written: the list may be long, and comes from outside.
        let mut known = BTreeSet::from([Value::from(NONE).to_string()]);
        for (_, answer) in &list {
            if !matches!(answer, Value::String(_) | Value::Number(_) | Value::Bool(_)) {
                let of = choose.by.as_ref().map_or_else(String::new, |by| format!("`{by}` of "));
                let message = format!("{of}an element is neither text nor a number");
                return Err(deviation::of_choice(name, &choose.from, Reason::FieldType, &message));
            }
            if !known.insert(answer.to_string()) {
                let message = format!("two choices would be {answer}");
                return Err(deviation::of_choice(name, &choose.from, Reason::ChooseAmbiguous, &message));
            }
        }
        Ok(Self { step: Arc::clone(step), many: choose.many, elements: list, abi: values.abi() })
    }

    /// The only element, if it is chosen without asking.
    pub(super) fn only_element(&self) -> Option<&Json> {
        let is_asked = self.many || choose_of(&self.step).always;
        self.elements.first().filter(|_| self.elements.len() == 1 && !is_asked).map(|(element, _)| element)
    }

    /// The schema of the answer.
    fn schema(&self) -> Value {
        let answers: Vec<Value> = self.elements.iter().map(|(_, answer)| answer.clone()).chain([NONE.into()]).collect();
        match self.many {
            true => json!({"type": "array", "items": {"enum": answers}}),
            false => json!({ "enum": answers }),
        }
    }

    /// The faults of this question's answer among `answers`.
    pub(super) fn faults(&self, answers: &Value) -> Vec<String> {
        let name = &self.step.name;
        let own: Map<String, Value> = answers.get(name).map(|own| (name.clone(), own.clone())).into_iter().collect();
        let own = Value::Object(own);
        let schema = Schema::lazy(name.clone(), schema_of(std::slice::from_ref(self)), Default::default());
        let faults = schema.faults(&own);
        if faults.is_empty() && self.many { contradictions(std::slice::from_ref(name), &own) } else { faults }
    }

    /// The output for a valid answer: the chosen elements in the order of the list.
    pub(super) fn chosen(&self, answer: &Value) -> Result<Json, Failure> {
        let said: &[Value] = answer.as_array().map_or(std::slice::from_ref(answer), Vec::as_slice);
        let is_said = |known: &Value| {
            said.contains(known) || self.abi >= KEEPS_ELEMENTS && said.iter().any(|said| same(said, known))
        };
        let mut found = self.elements.iter().filter(|(_, known)| is_said(known)).map(|(element, _)| element);
        let nothing = || {
            deviation::of_choice(
                &self.step.name,
                &choose_of(&self.step).from,
                Reason::ChooseNone,
                "no element was chosen",
            )
        };
        if self.many {
            let all: Vec<&str> = found.filter_map(Json::inline).collect();
            return if all.is_empty() { Err(nothing()) } else { Ok(Json::trusted(format!("[{}]", all.join(",")))) };
        }
        found.next().cloned().ok_or_else(nothing)
    }
}

/// The elements of a list in compact JSON, each with the answer that stands for it; `None` if the value is not a list.
fn elements(list: &Json, by: Option<&str>, abi: u32) -> Result<Option<Vec<(Json, Value)>>, ReadError> {
    if abi < KEEPS_ELEMENTS {
        let Value::Array(list) = list.value()? else { return Ok(None) };
        let answer = |element: &Value| by.map_or(element, |by| &element[by]).clone();
        let with_answer = |element: Value| (Json::of(&element), answer(&element));
        return Ok(Some(list.into_iter().map(with_answer).collect()));
    }
    let text = list.text()?;
    if !text.starts_with('[') {
        return Ok(None);
    }
    let opaque = |error: TreeError| ReadError::Opaque(error.to_string());
    tree::check_size(&text).map_err(opaque)?;
    let list: Vec<&RawValue> = serde_json::from_str(&text).map_err(|error| opaque(error.into()))?;
    let with_answer = |element: &RawValue| {
        let answer = match by {
            None => tree::parse(element.get())?,
            Some(by) if element.get().starts_with('{') => {
                let members: BTreeMap<String, &RawValue> = serde_json::from_str(element.get())?;
                members.get(by).map_or(Ok(Value::Null), |member| tree::parse(member.get()))?
            }
            Some(_) => Value::Null,
        };
        Ok((Json::trusted(compact(element.get())), answer))
    };
    list.into_iter().map(with_answer).collect::<Result<_, TreeError>>().map(Some).map_err(opaque)
}

/// The schema of the answers, with one member per question.
pub(super) fn schema_of(questions: &[Question]) -> Value {
    let members: Map<String, Value> =
        questions.iter().map(|question| (question.step.name.clone(), question.schema())).collect();
    let names: Vec<&str> = questions.iter().map(|question| question.step.name.as_str()).collect();
    json!({"type": "object", "properties": members, "required": names, "additionalProperties": false})
}

/// One fault for each list that has `none` beside other choices.
pub(in crate::machine::llm) fn contradictions(lists: &[String], answers: &Value) -> Vec<String> {
    let contradicts = |name: &&String| {
        let chosen = answers[name.as_str()].as_array().map_or(&[][..], Vec::as_slice);
        chosen.iter().any(|choice| choice == NONE) && chosen.iter().any(|choice| choice != NONE)
    };
    lists.iter().filter(contradicts).map(|name| format!("/{name}: `{NONE}` beside other choices")).collect()
}

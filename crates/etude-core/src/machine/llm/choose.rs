//! A closed question (L-47 to L-49): a model chooses among the elements of a list, and what it says is an element or nothing.
//!
//! | list                                  | next                                                        |
//! |---------------------------------------|-------------------------------------------------------------|
//! | empty                                 | deviates: `choose_empty`                                    |
//! | something else than a list            | deviates: `field_type`                                      |
//! | two elements with the same answer     | deviates: `choose_ambiguous`                                |
//! | one element, neither `always` nor `many` | over, with that element                                  |
//! | answered together with an earlier one | over, with what was chosen                                  |
//! | anything else                         | asked, together with the questions after it that can be     |
//!
//! A step that another attempt starts again asks by itself: what was said together with an older question does not count for it.
//!
//! An answer outside the list breaks the schema, and `none` beside other choices contradicts itself: both are asked for again,
//! as for every llm step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Poll;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{LlmTask, llm_of};
use crate::data::{Json, ReadError};
use crate::exact::same;
use crate::failure::{Failure, FailureKind, Reason};
use crate::machine::binding::{kind_of_maker, unreadable, unresolved};
use crate::machine::step_context::StepContext;
use crate::machine::values::Values;
use crate::machine::{Cx, Task, deviation};
use crate::plan::{Choose, Step};
use crate::schema::Schema;
use crate::template::{Scope, compact};
use crate::tree::{self, TreeError};

/// The answer that stands for no element.
const NONE: &str = "none";

/// The first version of the interpreter that rejects `none` beside other choices; earlier ones passed over it.
const EXCLUDES_NONE: u32 = 7;

#[derive(Debug)]
pub(in crate::machine) struct ChooseTask {
    step: Arc<Step>,
    step_context: StepContext,
    values: Arc<Values>,
    state: State,
    stopped: Option<Failure>,
}

#[derive(Debug)]
enum State {
    New,
    Asking {
        /// The own question, then those that are asked with it.
        questions: Vec<Question>,
        call: Box<LlmTask>,
    },
}

/// The first version of the interpreter whose output is the element as it is written, with all its digits.
const KEEPS_ELEMENTS: u32 = 8;

/// The first version of the interpreter for which something else in the place of the list is a deviation like an empty list (L-50);
/// for earlier ones it was a template without a value.
const DEVIATES_WITHOUT_LIST: u32 = 10;

/// A question with the elements that may be chosen.
#[derive(Debug)]
struct Question {
    step: Arc<Step>,
    many: bool,
    /// Per element the answer that stands for it.
    elements: Vec<(Json, Value)>,
    abi: u32,
}

impl ChooseTask {
    pub(in crate::machine) fn new(step: Arc<Step>, step_context: StepContext, values: Arc<Values>) -> Self {
        Self { step, step_context, values, state: State::New, stopped: None }
    }

    /// What is chosen without a call, or the call.
    fn begin(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if let Some(why) = &self.stopped {
            return Poll::Ready(Err(why.clone()));
        }
        if let Some(answer) = cx.answers.remove(&self.key_of(&self.step.name)) {
            let question = Question::of(&self.step, &self.values)?;
            return Poll::Ready(question.chosen(&answer));
        }
        let own = Question::of(&self.step, &self.values)?;
        if let Some(element) = own.only_element() {
            return Poll::Ready(Ok(element.clone()));
        }
        let mut questions = vec![own];
        for step in &choose_of(&self.step).together {
            // An attempt that asks for one of them alone has the answers to the others.
            if cx.answers.contains_key(&self.key_of(&step.name)) {
                continue;
            }
            // What is wrong with a later list is that step's failure.
            let question = Question::of(step, &self.values).ok();
            questions.extend(question.filter(|question| question.only_element().is_none()));
        }
        let schema = Arc::new(Schema::lazy(self.step.name.clone(), schema_of(&questions), Default::default()));
        let more: Vec<_> = questions[1..].iter().map(|question| &llm_of(&question.step).prompt).collect();
        let (step, values) = (Arc::clone(&self.step), Arc::clone(&self.values));
        let lists = questions.iter().filter(|question| question.many && cx.facts.abi >= EXCLUDES_NONE);
        let lists = lists.map(|question| question.step.name.clone()).collect();
        let call = LlmTask::asking(step, self.step_context.clone(), values, Some(schema), &more)?.excluding_none(lists);
        self.state = State::Asking { questions, call: Box::new(call) };
        Poll::Pending
    }

    /// Where the answer to a question of the same pipeline is kept until its step begins.
    fn key_of(&self, step: &str) -> String {
        let own = self.step_context.path.as_str();
        let above = own.strip_suffix(self.step.name.as_str()).unwrap_or(own);
        format!("{above}{step}")
    }
}

impl Task for ChooseTask {
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if matches!(self.state, State::New)
            && let Poll::Ready(result) = self.begin(cx)
        {
            return Poll::Ready(result);
        }
        let State::Asking { call, .. } = &mut self.state else { return Poll::Pending };
        let Poll::Ready(answers) = call.poll(cx) else { return Poll::Pending };
        let damaged = |why: String| Failure::new(FailureKind::Internal, why);
        let exhausted = |failure: Failure| match failure.kind {
            FailureKind::ValidationExhausted => failure.because(Reason::ChooseExhausted),
            _ => failure,
        };
        let answers = answers.map_err(exhausted)?.value().map_err(|e| damaged(e.to_string()))?;
        let State::Asking { questions, .. } = &self.state else { return Poll::Pending };
        let asked_in = cx.facts.restarted(self.step_context.path.as_str());
        for question in questions.iter().skip(1) {
            let name = question.step.name.as_str();
            let key = self.key_of(name);
            // A question that has been started again since then asks by itself.
            if cx.facts.restarted(&key) <= asked_in {
                cx.answers.insert(key, answers[name].clone());
            }
        }
        let own = questions.first().ok_or_else(|| damaged("a call without a question".to_owned()))?;
        Poll::Ready(own.chosen(&answers[self.step.name.as_str()]))
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        if let State::Asking { call, .. } = &mut self.state {
            call.stop(cx, why);
        }
    }
}

impl Question {
    /// # Errors
    /// The list has no value, is none, or cannot be asked about.
    fn of(step: &Arc<Step>, values: &Values) -> Result<Self, Failure> {
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
            let message = format!("`choose` of step `{name}` needs a list and got something else");
            return Err(Failure::new(FailureKind::TemplateUnresolved, message).because(Reason::FieldType));
        };
        if list.is_empty() {
            return Err(deviation::of_choice(name, &choose.from, Reason::ChooseEmpty, "the list is empty"));
        }
        // As they are written: others made the list, and it may be long.
        let mut known = BTreeSet::from([Value::from(NONE).to_string()]);
        for (_, answer) in &list {
            if !matches!(answer, Value::String(_) | Value::Number(_) | Value::Bool(_)) {
                let of = choose.by.as_ref().map_or_else(String::new, |by| format!("`{by}` of "));
                let message = format!("{of}an element is no text and no number");
                return Err(deviation::of_choice(name, &choose.from, Reason::FieldType, &message));
            }
            if !known.insert(answer.to_string()) {
                let message = format!("two answers would be {answer}");
                return Err(deviation::of_choice(name, &choose.from, Reason::ChooseAmbiguous, &message));
            }
        }
        Ok(Self { step: Arc::clone(step), many: choose.many, elements: list, abi: values.abi() })
    }

    /// The element that is chosen without a question.
    fn only_element(&self) -> Option<&Json> {
        let is_asked = self.many || choose_of(&self.step).always;
        self.elements.first().filter(|_| self.elements.len() == 1 && !is_asked).map(|(element, _)| element)
    }

    /// The schema of its answer.
    fn schema(&self) -> Value {
        let answers: Vec<Value> = self.elements.iter().map(|(_, answer)| answer.clone()).chain([NONE.into()]).collect();
        match self.many {
            true => json!({"type": "array", "items": {"enum": answers}}),
            false => json!({ "enum": answers }),
        }
    }

    /// The output for an answer of that schema: elements in the order of the list.
    fn chosen(&self, answer: &Value) -> Result<Json, Failure> {
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

/// The elements of a list in compact JSON, each with the answer that stands for it; `None` if it is no list.
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
            None => tree::of(element.get())?,
            Some(by) if element.get().starts_with('{') => {
                let members: BTreeMap<String, &RawValue> = serde_json::from_str(element.get())?;
                members.get(by).map_or(Ok(Value::Null), |member| tree::of(member.get()))?
            }
            Some(_) => Value::Null,
        };
        Ok((Json::trusted(compact(element.get())), answer))
    };
    list.into_iter().map(with_answer).collect::<Result<_, TreeError>>().map(Some).map_err(opaque)
}

/// One member per question.
fn schema_of(questions: &[Question]) -> Value {
    let members: Map<String, Value> =
        questions.iter().map(|question| (question.step.name.clone(), question.schema())).collect();
    let names: Vec<&str> = questions.iter().map(|question| question.step.name.as_str()).collect();
    json!({"type": "object", "properties": members, "required": names, "additionalProperties": false})
}

/// One fault per list that has `none` beside other choices.
pub(super) fn contradictions(lists: &[String], answers: &Value) -> Vec<String> {
    let contradicts = |name: &&String| {
        let chosen = answers[name.as_str()].as_array().map_or(&[][..], Vec::as_slice);
        chosen.iter().any(|choice| choice == NONE) && chosen.iter().any(|choice| choice != NONE)
    };
    lists.iter().filter(contradicts).map(|name| format!("/{name}: `{NONE}` beside other choices")).collect()
}

fn choose_of(step: &Step) -> &Choose {
    match &llm_of(step).choose {
        Some(choose) => choose,
        None => unreachable!("a closed question for a step that asks an open one"),
    }
}

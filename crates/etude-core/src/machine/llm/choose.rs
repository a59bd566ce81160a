//! A closed question (L-47 to L-49): a model chooses elements of a list, and any other answer is rejected.
//!
//! | list                                  | next                                                        |
//! |---------------------------------------|-------------------------------------------------------------|
//! | empty                                 | deviates: `choose_empty`                                    |
//! | not a list                            | deviates: `field_type`                                      |
//! | two elements with the same label      | deviates: `choose_ambiguous`                                |
//! | one element, neither `always` nor `many` | over, with that element                                  |
//! | answered together with an earlier one | over, with the chosen element                               |
//! | a sibling in its group is asking it   | waits for that call; asks on its own if the sibling fails   |
//! | anything else                         | asked, together with later questions if possible            |
//!
//! A question with a `when` or a `require` is asked with others if the condition holds, which can be decided at that
//! time. If the retries are used up, the first question without a valid answer fails, as if it had been asked alone;
//! earlier ones keep theirs.
//!
//! A step that another attempt restarts asks on its own: answers that came together with an older question do not count
//! for it.
//!
//! An answer outside the list breaks the schema, and `none` beside other choices is a contradiction. Both are rejected
//! and asked again, as for every llm step.

mod question;

use std::sync::Arc;
use std::task::Poll;

use serde_json::Value;

use self::question::{Question, schema_of};
use super::{LlmTask, llm_of};
use crate::data::Json;
use crate::failure::{Failure, FailureKind, Reason};
use crate::machine::step_context::StepContext;
use crate::machine::values::Values;
use crate::machine::{Cx, JOINS_QUESTIONS, Task};
use crate::plan::{Choose, Step};
use crate::schema::Schema;
use crate::template::Scope;

pub(super) use self::question::contradictions;

/// The first version of the interpreter that rejects `none` beside other choices; earlier ones ignored it.
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
        /// The step's own question, then the questions that are asked with it.
        questions: Vec<Question>,
        call: Box<LlmTask>,
    },
}

/// Treatment of a later question.
enum Other {
    /// The question goes into the call.
    IsAsked(Question),
    /// The question's step is skipped, or needs no call.
    IsNotAsked,
    /// The question's step will fail.
    Fails,
}

impl ChooseTask {
    pub(in crate::machine) fn new(step: Arc<Step>, step_context: StepContext, values: Arc<Values>) -> Self {
        Self { step, step_context, values, state: State::New, stopped: None }
    }

    /// Starts the call, or returns a choice that needs none.
    fn begin(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if let Some(why) = &self.stopped {
            return Poll::Ready(Err(why.clone()));
        }
        if cx.asked.contains(self.step_context.path.as_str()) {
            return Poll::Pending;
        }
        match cx.answers.remove(&self.key_of(&self.step.name)) {
            Some(Ok(answer)) => {
                let question = Question::of(&self.step, &self.values)?;
                return Poll::Ready(question.chosen(&answer));
            }
            Some(Err(failure)) => return Poll::Ready(Err(*failure)),
            None => {}
        }
        let own = Question::of(&self.step, &self.values)?;
        if let Some(element) = own.only_element() {
            return Poll::Ready(Ok(element.clone()));
        }
        let questions = self.with_others(cx, own);
        let schema = Arc::new(Schema::lazy(self.step.name.clone(), schema_of(&questions), Default::default()));
        let more: Vec<_> = questions[1..].iter().map(|question| llm_of(&question.step)).collect();
        let (step, values) = (Arc::clone(&self.step), Arc::clone(&self.values));
        let lists = questions.iter().filter(|question| question.many && cx.facts.abi >= EXCLUDES_NONE);
        let lists = lists.map(|question| question.step.name.clone()).collect();
        let call = LlmTask::asking(step, self.step_context.clone(), values, Some(schema), &more)?.excluding_none(lists);
        if self.is_in_group(cx) {
            let keys = questions[1..].iter().map(|question| self.key_of(&question.step.name));
            let waiting: Vec<String> = keys.filter(|key| self.is_of_this_call(cx, key)).collect();
            cx.asked.extend(waiting);
        }
        self.state = State::Asking { questions, call: Box::new(call) };
        Poll::Pending
    }

    /// The step's own question, then the questions that are asked with it.
    fn with_others(&self, cx: &Cx, own: Question) -> Vec<Question> {
        let choose = choose_of(&self.step);
        let mut questions = vec![own];
        if self.is_in_group(cx) {
            // A restarted child must not ask a question that a sibling has an answer to, so it asks alone.
            let is_first = cx.facts.restarted(self.step_context.path.as_str()) == 0;
            let others = choose.beside.iter().flatten().filter(|_| is_first);
            questions.extend(others.filter_map(|step| match self.other(step) {
                Other::IsAsked(question) => Some(question),
                Other::IsNotAsked | Other::Fails => None,
            }));
            return questions;
        }
        for step in &choose.together {
            if cx.facts.abi < JOINS_QUESTIONS && (is_guarded(&self.step) || is_guarded(step)) {
                break;
            }
            // An attempt that repeats one of the questions already has the answers to the others.
            if cx.answers.contains_key(&self.key_of(&step.name)) {
                continue;
            }
            match self.other(step) {
                Other::IsAsked(question) => questions.push(question),
                // A fault of a later question is that step's failure, and questions after it are not needed.
                Other::Fails if cx.facts.abi >= JOINS_QUESTIONS => break,
                Other::IsNotAsked | Other::Fails => {}
            }
        }
        questions
    }

    /// Treatment of a later question, decided before the call. All values that it refers to are known.
    fn other(&self, step: &Arc<Step>) -> Other {
        let values = &*self.values;
        match step.when.as_ref().map(|when| when.holds(values)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => return Other::IsNotAsked,
            Some(Err(_)) => return Other::Fails,
        }
        if !step.require.as_ref().is_none_or(|require| matches!(require.condition.is_met(values), Ok(true))) {
            return Other::Fails;
        }
        let Ok(question) = Question::of(step, values) else { return Other::Fails };
        if question.only_element().is_some() {
            return Other::IsNotAsked;
        }
        let llm = llm_of(step);
        let mut templates = std::iter::once(&llm.prompt).chain(&llm.images);
        match values.abi() < JOINS_QUESTIONS || templates.all(|template| template.render(values).is_ok()) {
            true => Other::IsAsked(question),
            false => Other::Fails,
        }
    }

    /// True if the question is asked with other children of its group, and not with the steps after it.
    fn is_in_group(&self, cx: &Cx) -> bool {
        cx.facts.abi >= JOINS_QUESTIONS && choose_of(&self.step).beside.is_some()
    }

    /// True unless the other question was restarted since it was asked here: it is then asked alone.
    fn is_of_this_call(&self, cx: &Cx, key: &str) -> bool {
        cx.facts.restarted(key) <= cx.facts.restarted(self.step_context.path.as_str())
    }

    /// Distributes the answers to the questions of the call, and returns this step's own.
    fn hand_out(&self, cx: &mut Cx, end: Result<Json, Failure>) -> Result<Json, Failure> {
        let State::Asking { questions, call } = &self.state else { return end };
        let damaged = |why: String| Failure::new(FailureKind::Internal, why);
        let Some((own, others)) = questions.split_first() else {
            return Err(damaged("a call without a question".to_owned()));
        };
        for question in others {
            cx.asked.remove(&self.key_of(&question.step.name));
        }
        let (answers, is_exhausted) = match end {
            Ok(answers) => (answers.value().map_err(|e| damaged(e.to_string()))?, false),
            Err(failure) if failure.kind == FailureKind::ValidationExhausted => {
                let failure = failure.because(Reason::ChooseExhausted);
                let answers = call
                    .rejected()
                    .filter(|answers| cx.facts.abi >= JOINS_QUESTIONS && is_of_others(questions, answers));
                (answers.ok_or(failure)?, true)
            }
            Err(failure) => return Err(failure),
        };
        let chosen = own.chosen(&answers[self.step.name.as_str()]);
        if chosen.is_err() && self.is_in_group(cx) {
            // This failure is repeated with its call in another attempt, so a sibling must not depend on it.
            return chosen;
        }
        let mut has_failed = false;
        for question in others {
            let name = question.step.name.as_str();
            let faults = if is_exhausted { question.faults(&answers) } else { Vec::new() };
            let answer = match faults.is_empty() {
                true => Ok(answers[name].clone()),
                // The run ends with the first failure; a later attempt asks the other questions.
                false if has_failed && !self.is_in_group(cx) => continue,
                false => Err(Box::new(call.exhausted(name, &faults).because(Reason::ChooseExhausted))),
            };
            has_failed |= answer.is_err();
            let key = self.key_of(name);
            if self.is_of_this_call(cx, &key) {
                cx.answers.insert(key, answer);
            }
        }
        chosen
    }

    /// Key of a step of the same pipeline, under which the answer to its question is kept until the step begins.
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
        call.poll(cx).map(|end| self.hand_out(cx, end))
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        self.stopped = Some(why.clone());
        if let State::Asking { call, .. } = &mut self.state {
            call.stop(cx, why);
        }
    }
}

/// True if the first question has a valid answer, and another one has none.
fn is_of_others(questions: &[Question], answers: &Value) -> bool {
    let mut is_good = questions.iter().map(|question| question.faults(answers).is_empty());
    is_good.next() == Some(true) && !is_good.all(|is_good| is_good)
}

/// True if the step may be skipped, or the run may deviate before it.
fn is_guarded(step: &Step) -> bool {
    step.when.is_some() || step.require.is_some()
}

fn choose_of(step: &Step) -> &Choose {
    match &llm_of(step).choose {
        Some(choose) => choose,
        None => unreachable!("a closed question for a step that asks an open one"),
    }
}

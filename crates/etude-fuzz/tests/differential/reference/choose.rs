//! Closed questions (X-5 `choose`): their possible answers, and the questions that share a call.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::work::Question;
use super::{Beside, Part, Place, Received, Reference, Verdict, Window};
use crate::definition::{Choose, Step, Work};
use crate::values::{Scope, is_same};

/// A question that can be asked.
struct Asked<'a> {
    step: &'a Step,
    choose: &'a Choose,
    elements: Vec<Value>,
    /// Answers that stand for the elements, then `none`.
    answers: Vec<Value>,
    prompt: String,
}

/// The result of a question before it is asked.
enum Before<'a> {
    IsAsked(Asked<'a>),
    /// The only element of the list.
    IsChosen(Value),
    Fails(&'static str),
}

impl<'a> Asked<'a> {
    fn of(step: &'a Step, choose: &'a Choose, scope: &Scope) -> Before<'a> {
        let elements = match scope.value(&choose.from) {
            Ok(Value::Array(elements)) => elements,
            Ok(_) => return Before::Fails("deviated"),
            Err(_) => return Before::Fails("template_unresolved"),
        };
        let mut answers = vec![json!("none")];
        for answer in elements.iter().map(|element| answer_of(choose, element)) {
            let is_scalar = matches!(answer, Value::String(_) | Value::Number(_) | Value::Bool(_));
            if !is_scalar || answers.contains(&answer) {
                return Before::Fails("deviated");
            }
            answers.push(answer);
        }
        match elements.as_slice() {
            [] => return Before::Fails("deviated"),
            [only] if !choose.always && !choose.many => return Before::IsChosen(only.clone()),
            _ => {}
        }
        answers.rotate_left(1);
        match scope.text(&choose.prompt) {
            Ok(prompt) => Before::IsAsked(Self { step, choose, elements, answers, prompt }),
            Err(_) => Before::Fails("template_unresolved"),
        }
    }

    fn schema(&self) -> Value {
        let one = json!({ "enum": self.answers });
        if self.choose.many { json!({"type": "array", "items": one}) } else { one }
    }

    /// True if the question allows its answer in `answers`.
    fn is_good(&self, answers: &Value) -> bool {
        let is_answer = |answer: &Value| self.answers.iter().any(|known| is_same(known, answer));
        let is_none = |answer: &Value| *answer == "none";
        match (answers.get(&self.step.name), self.choose.many) {
            // An answer that combines `none` with other choices is contradictory.
            (Some(Value::Array(all)), true) => {
                all.iter().all(is_answer) && all.windows(2).all(|two| is_none(&two[0]) == is_none(&two[1]))
            }
            (Some(answer), false) => is_answer(answer),
            _ => false,
        }
    }

    /// The elements that the answer stands for; `None` for no element.
    fn chosen(&self, answer: &Value) -> Option<Value> {
        let said = match answer {
            Value::Array(all) => all.clone(),
            one => vec![one.clone()],
        };
        let is_said = |element: &&Value| said.iter().any(|said| is_same(said, &answer_of(self.choose, element)));
        let chosen: Vec<Value> = self.elements.iter().filter(is_said).cloned().collect();
        let first = chosen.first()?.clone();
        Some(if self.choose.many { chosen.into() } else { first })
    }

    fn verdict(&self, answer: &Value, place: &Place) -> Verdict {
        self.chosen(answer).map_or_else(|| place.fault("deviated", self.step), Verdict::Output)
    }
}

impl Reference<'_> {
    /// X-5 `choose`: the output is one element of a list, or a list of several of them; otherwise the run deviates.
    pub(super) fn choose(
        &self,
        step: &Step,
        choose: &Choose,
        place: &Place,
        scope: &Scope,
        mut window: Window,
        beside: Beside<'_>,
    ) -> Part {
        let own = match Asked::of(step, choose, scope) {
            Before::IsAsked(own) => own,
            Before::IsChosen(only) => return Part::at_once(window.from, Verdict::Output(only)),
            Before::Fails(kind) => return Part::at_once(window.from, place.fault(kind, step)),
        };
        if let Some(received) = self.received(&place.path, beside) {
            if received.at > window.from && received.at >= window.until {
                return Part::at_once(window.until, Verdict::Stopped);
            }
            window.from = window.from.max(received.at);
            match &received.answer {
                Some(Ok(answer)) => return Part::at_once(window.from, own.verdict(answer, place)),
                Some(Err(())) => return Part::at_once(window.from, place.fault("validation_exhausted", step)),
                None => {}
            }
        }
        let others = self.asked_with(step, choose, place, scope, beside);
        let all = || std::iter::once(&own).chain(&others);
        let prompts: Vec<&str> = all().map(|one| one.prompt.as_str()).collect();
        let names: Vec<&str> = all().map(|one| one.step.name.as_str()).collect();
        let members: Map<String, Value> = all().map(|one| (one.step.name.clone(), one.schema())).collect();
        let schema = json!({
            "type": "object", "properties": members, "required": names, "additionalProperties": false,
        });
        let (is_good, is_enough) =
            (|value: &Value| all().all(|one| one.is_good(value)), |value: &Value| own.is_good(value));
        let question = Question {
            step,
            prompt: prompts.join("\n\n"),
            schema: Some(schema),
            retry: choose.retry,
            has_validator: false,
            is_good: &is_good,
            is_enough: &is_enough,
        };
        let mut part = self.ask(&question, place, scope, window);
        let said = if let Verdict::Output(said) = &part.verdict { Some(said.clone()) } else { None };
        // If the asking child of a group fails, its siblings get no answer from its call: no child depends on one that fails.
        let is_lost = said.as_ref().is_some_and(|said| beside.is_group && own.chosen(&said[&step.name]).is_none());
        let mut has_failed = false;
        for other in &others {
            let is_good = said.as_ref().is_some_and(|said| other.is_good(said));
            let answer = match &said {
                _ if is_lost => None,
                Some(said) if is_good => Some(Ok(said[&other.step.name].clone())),
                // *(open)* A pipeline ends with the first question without an answer; another attempt asks for the others.
                Some(_) if beside.is_group || !has_failed => Some(Err(())),
                _ => None,
            };
            has_failed |= !is_good;
            let received = Received { asker: place.path.clone(), at: part.ends, answer };
            part.received.insert(place.sibling(&other.step.name), received);
        }
        if let Some(said) = said {
            part.verdict = own.verdict(&said[&step.name], place);
        }
        part
    }

    /// later questions that join this call: those that depend only on values known before it. In a pipeline they follow
    /// each other directly, and none comes after a failure.
    fn asked_with<'s>(
        &self,
        step: &Step,
        choose: &Choose,
        place: &Place,
        scope: &Scope,
        beside: Beside<'s>,
    ) -> Vec<Asked<'s>> {
        let (mut others, mut names) = (Vec::new(), BTreeSet::from([step.name.as_str()]));
        // *(open)* A restarted child of a group asks alone.
        let is_alone = step.timeout_ms.is_some() || beside.is_group && self.restarts.contains(&place.path);
        for other in beside.after.iter().filter(|_| !is_alone) {
            let of = match &other.work {
                Work::Choose(of) if of.retry == choose.retry && other.timeout_ms.is_none() => of,
                _ if beside.is_group => continue,
                _ => break,
            };
            if other.needs(&names) {
                break;
            }
            names.insert(&other.name);
            let received = self.received(&place.sibling(&other.name), beside);
            if !beside.is_group && received.is_some_and(|received| received.answer.is_some()) {
                continue;
            }
            match self.before(other, of, scope) {
                Some(Before::IsAsked(asked)) => others.push(asked),
                Some(Before::Fails(_)) if !beside.is_group => break,
                _ => {}
            }
        }
        others
    }

    /// The result of a later question before it is asked; `None`: its step is skipped.
    fn before<'s>(&self, step: &'s Step, choose: &'s Choose, scope: &Scope) -> Option<Before<'s>> {
        match step.when.as_ref().map(|when| scope.holds(when)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => return None,
            Some(Err(_)) => return Some(Before::Fails("template_unresolved")),
        }
        if step.require.as_ref().is_some_and(|require| !scope.meets(require)) {
            return Some(Before::Fails("deviated"));
        }
        Some(Asked::of(step, choose, scope))
    }

    /// The answer from the call of another question: in this attempt, or in an earlier one if the asker is kept.
    fn received<'s>(&'s self, path: &str, beside: Beside<'s>) -> Option<&'s Received> {
        let is_kept = |received: &&Received| {
            received.answer.is_some() && ![path, &received.asker].iter().any(|one| self.restarts.contains(*one))
        };
        let earlier = || self.earlier.and_then(|earlier| earlier.received.get(path)).filter(is_kept);
        beside.received.get(path).or_else(earlier)
    }
}

fn answer_of(choose: &Choose, element: &Value) -> Value {
    if choose.by_k { element["k"].clone() } else { element.clone() }
}

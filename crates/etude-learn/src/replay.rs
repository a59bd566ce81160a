//! Replay of a program on the recorded results of a run: the writes that it would have made (2.8 a).
//!
//! Questions are answered as the agent decided, or with `none` if the closed set does not have that value. A question after a
//! deviation is answered as well if one call could ask it together with a question before it (L-49).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::episode::Episode;
use crate::program::{Argument, Condition, Program, Question, Step, StepKind};
use crate::synth::{ALLOWED, OPEN_HOLE};
use crate::term::{Func, Scope, Source, Term};
use crate::value::{Path, at, is_same_call};

/// End of a replay.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// The arguments of its writes, in order.
    Wrote(Vec<Value>),
    /// The program only reads.
    Answered,
    /// The program would have left the pipeline.
    Deviated { step: String, reason: &'static str },
}

/// A replay with everything that a case needs.
#[derive(Debug)]
pub(crate) struct Replay<'p> {
    pub(crate) end: End,
    pub(crate) input: Map<String, Value>,
    pub(crate) answers: Map<String, Value>,
    /// The reads that the program made.
    pub(crate) reads: Vec<(String, Value)>,
    outputs: BTreeMap<String, Value>,
    /// The steps whose code was evaluated.
    evaluated: Vec<(&'p str, &'p Func)>,
}

impl Replay<'_> {
    /// Results of the code of its steps: `[STEP, RUN]` with the part of the run that the step reads, and the output.
    pub(crate) fn evaluations(&self) -> impl Iterator<Item = (Value, &Value)> {
        self.evaluated.iter().filter_map(|(step, func)| {
            let (mut input, mut steps) = (Map::new(), Map::new());
            for of in func.refs() {
                match &of.source {
                    Source::Param(name) => {
                        input.extend(self.input.get(name).map(|value| (name.clone(), value.clone())));
                    }
                    Source::Step(name) => {
                        steps.extend(self.outputs.get(name).map(|output| (name.clone(), json!({"output": output}))));
                    }
                    Source::Item | Source::Node(_) | Source::Var(_) => {}
                }
            }
            Some((json!([step, {"input": input, "steps": steps}]), self.outputs.get(*step)?))
        })
    }
}

impl Scope for Replay<'_> {
    fn get(&self, source: &Source) -> Option<&Value> {
        match source {
            Source::Param(name) => self.input.get(name),
            Source::Step(name) => self.outputs.get(name),
            Source::Item | Source::Node(_) | Source::Var(_) => None,
        }
    }
}

/// Changes the result of a read; `None` keeps the recorded one.
pub(crate) type Change<'c> = &'c dyn Fn(&str, &Value) -> Option<Value>;

/// Runs a program on an episode. `permission` is the answer to the question of 2.7.
pub(crate) fn replay<'p>(
    program: &'p Program,
    episode: &Episode<'_>,
    permission: &str,
    change: Change<'_>,
) -> Replay<'p> {
    let mut run = Run {
        program,
        episode,
        change,
        outputs: BTreeMap::new(),
        item: None,
        input: Map::new(),
        answers: Map::new(),
        reads: Vec::new(),
        evaluated: Vec::new(),
    };
    for param in &program.params {
        if let Some(value) = param.argument.value(episode).filter(|value| episode.said.has(value)) {
            run.input.insert(param.name.clone(), value);
        }
    }
    let mut end = End::Answered;
    for (n, step) in program.steps.iter().enumerate() {
        match run.step(step, permission) {
            Ok(Some(writes)) => end = End::Wrote(writes),
            Ok(None) => {}
            Err(reason) => {
                end = End::Deviated { step: step.name.clone(), reason };
                run.answer_together(&program.steps[n..]);
                break;
            }
        }
    }
    let Run { outputs, input, answers, reads, evaluated, .. } = run;
    Replay { end, input, answers, reads, outputs, evaluated }
}

/// The comparison of a replay with what the agent did (2.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Agreed,
    FellBack,
    Disagreed,
}

/// Compares a program with a run. If the run made other writes as well, the question before the write leaves the pipeline.
pub(crate) fn compare(program: &Program, episode: &Episode<'_>) -> Kind {
    match compare_part(program, episode) {
        Kind::Agreed if !episode.is_whole() => Kind::FellBack,
        kind => kind,
    }
}

/// Compares a program with the writes of its family alone: the part of a run that it is learned from.
pub(crate) fn compare_part(program: &Program, episode: &Episode<'_>) -> Kind {
    match replay(program, episode, "yes", &|_, _| None).end {
        End::Deviated { .. } => Kind::FellBack,
        End::Answered if episode.writes.is_empty() => Kind::Agreed,
        End::Wrote(writes) if is_as_recorded(&writes, episode) => Kind::Agreed,
        End::Answered | End::Wrote(_) => Kind::Disagreed,
    }
}

fn is_as_recorded(writes: &[Value], episode: &Episode<'_>) -> bool {
    let recorded: Vec<&Value> = episode.writes.iter().map(|write| &write.arguments).collect();
    writes.len() == recorded.len() && writes.iter().all(|one| recorded.iter().any(|other| is_same_call(one, other)))
}

struct Run<'p, 'r> {
    program: &'p Program,
    episode: &'r Episode<'r>,
    change: Change<'r>,
    outputs: BTreeMap<String, Value>,
    item: Option<Value>,
    input: Map<String, Value>,
    answers: Map<String, Value>,
    reads: Vec<(String, Value)>,
    evaluated: Vec<(&'p str, &'p Func)>,
}

impl Scope for Run<'_, '_> {
    fn get(&self, source: &Source) -> Option<&Value> {
        match source {
            Source::Param(name) => self.input.get(name),
            Source::Step(name) => self.outputs.get(name),
            Source::Item => self.item.as_ref(),
            Source::Node(_) | Source::Var(_) => None,
        }
    }
}

type Done = Result<Option<Vec<Value>>, &'static str>;

/// The output of a question, and the answer if a model is asked.
type Asked = (Result<Value, &'static str>, Option<Value>);

impl<'p> Run<'p, '_> {
    fn step(&mut self, step: &'p Step, permission: &str) -> Done {
        if !step.when.iter().all(|condition| condition.holds(self)) {
            self.outputs.insert(step.name.clone(), Value::Null);
            return Ok(None);
        }
        let unmet = step.require.iter().find(|condition| !condition.holds(self));
        if let Some(unmet) = unmet {
            return Err(reason_of(unmet));
        }
        match &step.kind {
            StepKind::Code { func, .. } => {
                let output = func.eval(self).unwrap_or(Value::Null);
                self.outputs.insert(step.name.clone(), output);
                self.evaluated.push((step.name.as_str(), func));
            }
            StepKind::Call { tool, args, for_each, is_write } => {
                return self.call(&step.name, tool, args, for_each.as_ref(), *is_write);
            }
            StepKind::Choose(question) => {
                let (output, answer) = self.ask(question);
                self.answers.extend(answer.map(|answer| (step.name.clone(), answer)));
                self.outputs.insert(step.name.clone(), output?);
            }
            StepKind::Allowed => {
                // The prompt shows the call, so that a missing value leads to a deviation here, before the write.
                if self.program.shown().iter().any(|of| of.find(self).is_none()) {
                    return Err("field_missing");
                }
                let answer = json!({"allowed": permission, "rule": ""});
                self.outputs.insert(ALLOWED.to_owned(), answer.clone());
                self.answers.insert(ALLOWED.to_owned(), answer);
            }
            StepKind::Answer => {
                let answer = self.episode.trace.answer.clone().unwrap_or_default();
                self.answers.insert(step.name.clone(), answer.into());
            }
        }
        Ok(None)
    }

    fn call(
        &mut self,
        name: &str,
        tool: &str,
        args: &Term,
        for_each: Option<&crate::term::Ref>,
        is_write: bool,
    ) -> Done {
        let items = match for_each {
            None => vec![None],
            Some(list) => {
                let list = list.find(self).ok_or("field_missing")?.as_array().ok_or("field_type")?;
                list.iter().cloned().map(Some).collect()
            }
        };
        let mut results = Vec::new();
        let mut writes = Vec::new();
        for item in items {
            self.item = item;
            let arguments = args.eval(self).ok_or("field_missing")?;
            if is_write {
                writes.push(arguments);
                continue;
            }
            let recorded = self.episode.recorded(tool, &arguments).ok_or("tool_error")?;
            results.push((self.change)(tool, recorded).unwrap_or_else(|| recorded.clone()));
            self.reads.push((tool.to_owned(), arguments));
        }
        self.item = None;
        if is_write {
            return Ok(Some(writes));
        }
        let output = if for_each.is_some() { Value::from(results) } else { results.pop().unwrap_or_default() };
        self.outputs.insert(name.to_owned(), output);
        Ok(None)
    }

    /// Answers the questions that directly follow a question: one call may ask all of them.
    fn answer_together(&mut self, steps: &[Step]) {
        for step in steps {
            let StepKind::Choose(question) = &step.kind else { break };
            let (_, answer) = self.ask(question);
            self.answers.extend(answer.map(|answer| (step.name.clone(), answer)));
        }
    }

    fn ask(&mut self, question: &Question) -> Asked {
        let truth = question.truth.0.value(self.episode);
        let Some(for_each) = &question.for_each else {
            return self.choose(question, truth.as_ref());
        };
        let each = match for_each.find(self).map(Value::as_array) {
            Some(Some(each)) => each.clone(),
            Some(None) => return (Err("field_type"), None),
            None => return (Err("field_missing"), None),
        };
        let (mut outputs, mut answers, mut deviation) = (Vec::new(), Vec::new(), None);
        for element in each {
            let truth = truth.as_ref().and_then(|all| self.truth_of(question, &element["of"], all));
            self.item = Some(element);
            let (output, answer) = self.choose(question, truth.as_ref());
            match output {
                Ok(output) => outputs.push(output),
                Err(reason) => deviation = deviation.or(Some(reason)),
            }
            // One answer for each element: `null` if no model was asked.
            answers.push(answer.unwrap_or_default());
        }
        self.item = None;
        let answers = answers.iter().any(|answer| !answer.is_null()).then(|| answers.into());
        (deviation.map_or_else(|| Ok(outputs.into()), Err), answers)
    }

    /// Value that was chosen for one element: parallel lists have the same order.
    fn truth_of(&self, question: &Question, element: &Value, all: &Value) -> Option<Value> {
        let (argument, key): &(Argument, Path) = question.of_each.as_ref()?;
        let named = argument.value(self.episode)?;
        let place = named.as_array()?.iter().position(|name| at(element, key) == Some(name))?;
        all.as_array()?.get(place).cloned()
    }

    fn choose(&self, question: &Question, truth: Option<&Value>) -> Asked {
        let (list, names) = match self.options(question) {
            Ok(options) => options,
            Err(reason) => return (Err(reason), None),
        };
        if list.len() == 1 && !question.many && !question.always {
            return (Ok(list[0].clone()), None);
        }
        let nothing = || -> Asked {
            let answer = if question.many { json!([]) } else { json!("none") };
            (Err("choose_none"), Some(answer))
        };
        let Some(truth) = truth else { return nothing() };
        let field = &question.truth.1;
        if !question.many {
            let place = list.iter().position(|element| at(element, field) == Some(truth));
            return place.map_or_else(nothing, |place| (Ok(list[place].clone()), Some(names[place].clone())));
        }
        let wanted = truth.as_array().map(Vec::as_slice).unwrap_or_default();
        let places: Vec<usize> =
            (0..list.len()).filter(|n| at(&list[*n], field).is_some_and(|value| wanted.contains(value))).collect();
        if places.is_empty() || places.len() != wanted.len() {
            return nothing();
        }
        let of = |from: &[Value]| places.iter().map(|n| from[*n].clone()).collect::<Value>();
        (Ok(of(list)), Some(of(&names)))
    }

    /// Elements of the closed set, and the answers that name them.
    fn options(&self, question: &Question) -> Result<(&[Value], Vec<Value>), &'static str> {
        let list = question.from.find(self).ok_or("field_missing")?.as_array().ok_or("field_type")?;
        if list.is_empty() {
            return Err("choose_empty");
        }
        let by = |element: &Value| match &question.by {
            Some(by) => element.get(by).cloned(),
            None => Some(element.clone()),
        };
        let names: Vec<Value> = list.iter().map(by).collect::<Option<_>>().ok_or("field_type")?;
        if names.iter().enumerate().any(|(n, name)| names[..n].contains(name)) {
            return Err("choose_ambiguous");
        }
        Ok((list.as_slice(), names))
    }
}

fn reason_of(unmet: &Condition) -> &'static str {
    let reads = |name: &str| unmet.refs().iter().any(|of| of.source == Source::Step(name.to_owned()));
    match (reads(OPEN_HOLE), reads(ALLOWED)) {
        (true, _) => "open_hole",
        (_, true) => "not_allowed",
        _ => "require",
    }
}

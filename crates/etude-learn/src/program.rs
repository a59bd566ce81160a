//! A learned pipeline as data: parameters, steps, guards, and the source of each value.

use serde_json::{Value, json};

use crate::commands::Form;
use crate::episode::Episode;
use crate::term::{Func, Ref, Scope, Source, Term, escaped};
use crate::value::{Path, at, pointer};

/// Calls that an argument belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Of {
    /// The write; with `spread` the values of all its calls.
    Write { spread: bool },
    /// The reads; the value is the only one among them that the user said.
    Said,
    /// The last read.
    Last,
}

/// An argument of a tool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Argument {
    pub(crate) tool: String,
    pub(crate) path: Path,
    pub(crate) of: Of,
}

impl Argument {
    /// Value in a run; `None` if it is missing or ambiguous.
    pub(crate) fn value(&self, episode: &Episode<'_>) -> Option<Value> {
        let reads = || episode.reads.iter().filter(|call| call.tool == self.tool);
        match self.of {
            Of::Write { spread } => {
                let mut values = episode.writes.iter().map(|write| at(&write.arguments, &self.path).cloned());
                if spread { values.collect::<Option<Vec<_>>>().map(Value::from) } else { values.next()? }
            }
            Of::Said => {
                let said = reads().filter_map(|call| at(&call.arguments, &self.path));
                let mut said: Vec<&Value> = said.filter(|value| episode.said.has(value)).collect();
                said.dedup();
                // If the user said several values, any of them may be meant.
                said.first().filter(|_| said.len() == 1).map(|value| (*value).clone())
            }
            Of::Last => at(&reads().next_back()?.arguments, &self.path).cloned(),
        }
    }

    /// Name in messages and in the set of banned arguments: the tool and the JSON Pointer.
    pub(crate) fn key(&self) -> String {
        format!("{}{}", self.tool, pointer(&self.path))
    }
}

/// A program: the pipeline that becomes `pipeline.yaml`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    pub(crate) params: Vec<Param>,
    pub(crate) steps: Vec<Step>,
    pub(crate) rows: Vec<Row>,
    pub(crate) holes: Vec<Hole>,
    pub(crate) guards: Vec<Guard>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) argument: Argument,
    /// Value that it had in a run.
    pub(crate) example: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) kind: StepKind,
    pub(crate) when: Vec<Condition>,
    pub(crate) require: Vec<Condition>,
}

/// Action of a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StepKind {
    Call {
        tool: String,
        args: Term,
        for_each: Option<Ref>,
        is_write: bool,
    },
    Code {
        func: Func,
        provenance: String,
    },
    Choose(Question),
    /// The question of 2.7.
    Allowed,
    /// The answer of a run that only reads.
    Answer,
}

/// A closed question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Question {
    pub(crate) from: Ref,
    pub(crate) by: Option<String>,
    pub(crate) many: bool,
    pub(crate) always: bool,
    pub(crate) for_each: Option<Ref>,
    /// Source of the recorded choice: the argument, and the field of the element that is its value.
    pub(crate) truth: (Argument, Path),
    /// With `for_each`: the argument whose values name the elements, and the field with these names.
    pub(crate) of_each: Option<(Argument, Path)>,
}

/// A condition of `when` or `require`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Condition {
    Equals(Ref, Value),
    Same(Ref, Ref),
    Within(Ref, Ref),
    NotNull(Ref),
    Exists(Ref),
    Form(Ref, Form),
    /// The value of an argument, at its path, has the type that it had in the runs (L-70).
    Typed {
        of: Ref,
        scalar: Scalar,
        argument: Path,
    },
}

/// A type of values that a condition can tell from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text,
    Number,
    Truth,
}

impl Scalar {
    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(_) => Some(Self::Text),
            Value::Number(_) => Some(Self::Number),
            Value::Bool(_) => Some(Self::Truth),
            _ => None,
        }
    }

    /// JSON of a condition that holds only for values of this type: a comparison holds for values of its own type only.
    fn condition(self, template: &str) -> Value {
        match self {
            Self::Text => json!({"value": template, "matches": "^"}),
            Self::Number => json!({"any": [{"value": template, "gte": 0}, {"value": template, "lt": 0}]}),
            Self::Truth => json!({"value": template, "in": [true, false]}),
        }
    }
}

impl Condition {
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Equals(of, value) => json!({"value": of.template(), "equals": escaped(value)}),
            Self::Same(of, other) => json!({"value": of.template(), "equals": other.template()}),
            Self::Within(of, list) => json!({"value": of.template(), "in": list.template()}),
            Self::NotNull(of) => json!({"value": of.template(), "not_equals": null}),
            Self::Exists(of) => json!({"value": of.template(), "exists": true}),
            Self::Form(of, form) => json!({"value": of.template(), "matches": form.pattern()}),
            Self::Typed { of, scalar, .. } => scalar.condition(&of.template()),
        }
    }

    pub(crate) fn holds(&self, scope: &dyn Scope) -> bool {
        match self {
            Self::Equals(of, value) => of.find(scope) == Some(value),
            Self::Same(of, other) => of.find(scope).is_some_and(|value| other.find(scope) == Some(value)),
            Self::Within(of, list) => {
                let list = list.find(scope).and_then(Value::as_array);
                of.find(scope).is_some_and(|value| list.is_some_and(|list| list.contains(value)))
            }
            Self::NotNull(of) => of.find(scope).is_some_and(|value| !value.is_null()),
            Self::Exists(of) => of.find(scope).is_some(),
            Self::Form(of, form) => of.find(scope).and_then(Value::as_str).is_some_and(|word| form.has(word)),
            Self::Typed { of, scalar, .. } => of.find(scope).and_then(Scalar::from_value) == Some(*scalar),
        }
    }

    pub(crate) fn refs(&self) -> Vec<&Ref> {
        match self {
            Self::Same(of, other) | Self::Within(of, other) => vec![of, other],
            Self::Equals(of, _) | Self::NotNull(of) | Self::Exists(of) | Self::Form(of, _) | Self::Typed { of, .. } => {
                vec![of]
            }
        }
    }
}

/// Source of the value of an argument (1.8).
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The step that calls the tool.
    pub step: String,
    /// JSON Pointer of the argument.
    pub argument: String,
    /// `input`, `result`, `element`, `argument`, `constant`, `computed` or `question`.
    pub source: &'static str,
    /// Expression as written in the pipeline.
    pub expression: String,
    /// Number of runs in which it gave the value.
    pub held: usize,
    /// Number of all runs.
    pub of: usize,
    /// Other expressions that would have given the value.
    pub alternatives: Vec<String>,
    /// `words_first`, `only_alternative`, `shortest`, `nearest` or `asked`.
    pub why: &'static str,
}

/// A value that the runs do not determine.
#[derive(Debug, Clone, PartialEq)]
pub struct Hole {
    /// The step that needs it.
    pub step: String,
    /// JSON Pointer of the argument.
    pub argument: String,
    /// `no_expression`, `choice` or `default_not_universal`.
    pub why: &'static str,
    /// Closed set: a template or a list of values; `null` for an open hole.
    pub set: Value,
    /// Field that names an element of the set.
    pub by: Option<String>,
}

/// A condition that held in all runs and not everywhere else.
#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    /// The step that it guards.
    pub step: String,
    /// Condition in the form of `require`.
    pub condition: Value,
    /// Number of other runs that violated it.
    pub violated: usize,
}

impl Step {
    pub(crate) fn new(name: &str, kind: StepKind) -> Self {
        Self { name: name.to_owned(), kind, when: Vec::new(), require: Vec::new() }
    }

    /// Names of the steps whose outputs it reads.
    pub(crate) fn reads(&self) -> Vec<&str> {
        let mut refs: Vec<&Ref> = self.when.iter().chain(&self.require).flat_map(Condition::refs).collect();
        match &self.kind {
            StepKind::Call { args, for_each, .. } => refs.extend(args.refs().into_iter().chain(for_each)),
            StepKind::Code { func, .. } => refs.extend(func.refs()),
            StepKind::Choose(question) => refs.extend(std::iter::once(&question.from).chain(&question.for_each)),
            StepKind::Allowed | StepKind::Answer => {}
        }
        let names = refs.into_iter().filter_map(|one| match &one.source {
            Source::Step(name) => Some(name.as_str()),
            _ => None,
        });
        names.collect()
    }
}

impl Program {
    /// Step that writes; `None` if the pipeline only reads.
    pub(crate) fn write(&self) -> Option<&Step> {
        self.steps.iter().find(|step| matches!(step.kind, StepKind::Call { is_write: true, .. }))
    }

    /// The values of the write that the question of 2.7 shows. In a loop the list stands for its elements.
    pub(crate) fn shown(&self) -> Vec<&Ref> {
        let Some(StepKind::Call { args, for_each, .. }) = self.write().map(|step| &step.kind) else {
            return Vec::new();
        };
        let refs = args.refs().into_iter().filter(|of| of.source != Source::Item);
        refs.chain(for_each).collect()
    }

    /// Names of its questions with a closed set.
    pub(crate) fn questions(&self) -> Vec<&str> {
        let chooses = self.steps.iter().filter(|step| matches!(step.kind, StepKind::Choose(_)));
        chooses.map(|step| step.name.as_str()).collect()
    }

    /// True if it has a hole without a closed set, and so never writes.
    pub(crate) fn is_open(&self) -> bool {
        self.holes.iter().any(|hole| hole.set.is_null())
    }
}

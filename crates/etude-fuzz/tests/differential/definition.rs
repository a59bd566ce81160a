//! Definitions of the model: the words of the protocol and of its extensions. They are written as
//! files of an app, so that the interpreter gets them through the reader of definitions.

use std::collections::BTreeSet;

use etude_spec::source::MemorySources;
use serde_json::{Map, Value, json};

/// An app, with the options of its run.
#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) constructor: Option<Pipeline>,
    pub(crate) pipeline: Pipeline,
    pub(crate) destructor: Option<Pipeline>,
    /// The values of the parameters, by name.
    pub(crate) input: Map<String, Value>,
    /// `--timeout`.
    pub(crate) timeout_ms: Option<u64>,
    /// Time at which the user cancels the run.
    pub(crate) cancel_ms: Option<u64>,
}

/// A `pipeline.yaml`.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) steps: Vec<Step>,
    /// The step whose output is the pipeline's output; `None`: the last step.
    pub(crate) output: Option<String>,
}

/// A required parameter: an integer, or any value.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) is_integer: bool,
}

/// A step, with the properties of every type.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) when: Option<Condition>,
    pub(crate) require: Option<Condition>,
    pub(crate) for_each: Option<ForEach>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) work: Work,
}

#[derive(Debug, Clone)]
pub(crate) struct ForEach {
    pub(crate) items: Reference,
    pub(crate) max_parallel: usize,
    pub(crate) max_items: usize,
    /// `on_item_failure: collect`.
    pub(crate) collects: bool,
}

/// The types of steps.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Code(Code),
    Llm(Llm),
    Choose(Choose),
    Group(Group),
    Call(Call),
    Approval(Approval),
}

#[derive(Debug, Clone)]
pub(crate) struct Code {
    /// Kind of the printed value; the world knows it by its word.
    pub(crate) prints: Prints,
    pub(crate) env: Vec<(String, Template)>,
    pub(crate) allow_exit: Vec<i32>,
    /// True if the schema demands an integer.
    pub(crate) wants_integer: bool,
    pub(crate) retry: Option<Retry>,
}

/// Kind of the value that a program usually prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prints {
    Anything,
    List,
    Object,
    Integer,
    /// Texts for a question to choose from.
    Words,
    /// Objects for a question to choose from.
    Records,
    /// `output: text`.
    Text,
}

impl Prints {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Anything => "anything",
            Self::List => "list",
            Self::Object => "object",
            Self::Integer => "integer",
            Self::Words => "words",
            Self::Records => "records",
            Self::Text => "text",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Retry {
    pub(crate) max: u32,
    pub(crate) backoff_ms: u64,
    pub(crate) factor: u64,
    pub(crate) max_backoff_ms: u64,
    /// Exit statuses and `signal`; empty: all failures.
    pub(crate) on: Vec<Value>,
}

#[derive(Debug, Clone)]
pub(crate) struct Llm {
    pub(crate) prompt: Template,
    /// True if the schema demands an object with an integer `n`.
    pub(crate) wants_n: bool,
    pub(crate) has_validator: bool,
    pub(crate) retry: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Choose {
    pub(crate) prompt: Template,
    pub(crate) from: Reference,
    /// True if the answers are the members `k` of the elements.
    pub(crate) by_k: bool,
    pub(crate) many: bool,
    pub(crate) always: bool,
    pub(crate) retry: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) steps: Vec<Step>,
    pub(crate) max_parallel: Option<usize>,
    /// `on_failure: wait`.
    pub(crate) waits: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) pipeline: Pipeline,
    pub(crate) input: Vec<(String, Binding)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Approval {
    pub(crate) message: Template,
    pub(crate) on_timeout: OnTimeout,
    /// `on_deny: continue`.
    pub(crate) continues: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnTimeout {
    Fail,
    Deny,
    Approve,
}

/// A reference: `{{input.NAME…}}`, `{{STEP.output…}}`, `{{item…}}`, `{{index}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference {
    Input { name: String, path: Vec<String> },
    Output { step: String, path: Vec<String> },
    Item { path: Vec<String> },
    Index,
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (root, path) = match self {
            Self::Input { name, path } => (format!("input.{name}"), path.as_slice()),
            Self::Output { step, path } => (format!("{step}.output"), path.as_slice()),
            Self::Item { path } => ("item".to_owned(), path.as_slice()),
            Self::Index => ("index".to_owned(), &[][..]),
        };
        let path: String = path.iter().map(|part| format!(".{part}")).collect();
        write!(f, "{{{{{root}{path}}}}}")
    }
}

/// Text with references.
pub(crate) type Template = Vec<Piece>;

#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Text(String),
    Reference(Reference),
}

/// A literal value, a text with references, or exactly one reference, which keeps its JSON type.
#[derive(Debug, Clone)]
pub(crate) enum Binding {
    Literal(Value),
    Reference(Reference),
    Text(Template),
}

/// A condition of `when` or `require`.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    Truthy(Reference),
    Exists(Reference, bool),
    Compare {
        value: Reference,
        op: Op,
        with: Value,
    },
    /// `equals` between two values of the run, for `require` only.
    Same(Reference, Reference),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

impl Condition {
    fn references(&self) -> Vec<&Reference> {
        match self {
            Self::Truthy(value) | Self::Exists(value, _) | Self::Compare { value, .. } => vec![value],
            Self::Same(value, other) => vec![value, other],
            Self::All(list) | Self::Any(list) => list.iter().flat_map(Self::references).collect(),
            Self::Not(one) => one.references(),
        }
    }
}

impl Step {
    /// True if a question refers to the output of one of these steps.
    pub(crate) fn needs(&self, steps: &BTreeSet<&str>) -> bool {
        let Work::Choose(choose) = &self.work else { return false };
        let conditions = self.when.iter().chain(&self.require).flat_map(Condition::references);
        let in_prompt = choose.prompt.iter().filter_map(|piece| match piece {
            Piece::Reference(reference) => Some(reference),
            Piece::Text(_) => None,
        });
        let mut all = conditions.chain(in_prompt).chain([&choose.from]);
        all.any(|one| matches!(one, Reference::Output { step, .. } if steps.contains(step.as_str())))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Equals,
    NotEquals,
    In,
    NotIn,
    Gt,
    Lte,
}

impl Op {
    const fn word(self) -> &'static str {
        match self {
            Self::Equals => "equals",
            Self::NotEquals => "not_equals",
            Self::In => "in",
            Self::NotIn => "not_in",
            Self::Gt => "gt",
            Self::Lte => "lte",
        }
    }
}

impl App {
    /// All pipelines, including called ones, once each.
    pub(crate) fn pipelines(&self) -> Vec<&Pipeline> {
        let mut all: Vec<&Pipeline> =
            [self.constructor.as_ref(), Some(&self.pipeline), self.destructor.as_ref()].into_iter().flatten().collect();
        let mut at = 0;
        while let Some(pipeline) = all.get(at) {
            let mut steps: Vec<&Step> = pipeline.steps.iter().collect();
            while let Some(step) = steps.pop() {
                match &step.work {
                    Work::Group(group) => steps.extend(&group.steps),
                    Work::Call(call) => all.push(&call.pipeline),
                    _ => {}
                }
            }
            at += 1;
        }
        all
    }

    /// The files of the app, with JSON as YAML.
    pub(crate) fn files(&self) -> MemorySources {
        let write = |sources: MemorySources, pipeline: &Pipeline| {
            sources.with(&format!("pipelines/{}/pipeline.yaml", pipeline.name), pipeline.file().to_string())
        };
        self.pipelines().into_iter().fold(MemorySources::new(), write)
    }
}

impl Pipeline {
    pub(crate) fn file(&self) -> Value {
        let parameter = |parameter: &Parameter| {
            let schema = if parameter.is_integer { json!({"type": "integer"}) } else { json!({"description": "any"}) };
            (parameter.name.clone(), schema)
        };
        let input: Map<String, Value> = self.parameters.iter().map(parameter).collect();
        let steps: Vec<Value> = self.steps.iter().map(Step::file).collect();
        let mut file = json!({"name": self.name, "description": "A pipeline", "steps": steps});
        set(&mut file, "input", (!input.is_empty()).then_some(input));
        set(&mut file, "output", self.output.as_deref());
        file
    }
}

fn set(file: &mut Value, field: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        file[field] = value.into();
    }
}

fn milliseconds(ms: &u64) -> String {
    format!("{ms}ms")
}

impl Step {
    fn file(&self) -> Value {
        let mut file = json!({"name": self.name});
        set(&mut file, "when", self.when.as_ref().map(Condition::file));
        set(&mut file, "require", self.require.as_ref().map(Condition::file));
        set(&mut file, "timeout", self.timeout_ms.as_ref().map(milliseconds));
        match &self.work {
            Work::Code(code) => code.write(&mut file, &self.name),
            Work::Llm(llm) => llm.write(&mut file, &self.name),
            Work::Choose(choose) => choose.write(&mut file),
            Work::Group(group) => {
                file["type"] = "parallel".into();
                file["steps"] = group.steps.iter().map(Step::file).collect();
                set(&mut file, "max_parallel", group.max_parallel);
                set(&mut file, "on_failure", group.waits.then_some("wait"));
            }
            Work::Call(call) => {
                file["type"] = "pipeline".into();
                file["pipeline"] = call.pipeline.name.as_str().into();
                let input = call.input.iter().map(|(name, binding)| (name.clone(), binding.file()));
                set(&mut file, "input", (!call.input.is_empty()).then(|| input.collect::<Map<_, _>>()));
            }
            Work::Approval(approval) => {
                file["type"] = "approval".into();
                file["message"] = text(&approval.message).into();
                let on_timeout = match approval.on_timeout {
                    OnTimeout::Fail => None,
                    OnTimeout::Deny => Some("deny"),
                    OnTimeout::Approve => Some("approve"),
                };
                set(&mut file, "on_timeout", on_timeout);
                set(&mut file, "on_deny", approval.continues.then_some("continue"));
            }
        }
        if let Some(each) = &self.for_each {
            file["for_each"] = each.items.to_string().into();
            file["max_parallel"] = each.max_parallel.into();
            file["max_items"] = each.max_items.into();
            set(&mut file, "on_item_failure", each.collects.then_some("collect"));
        }
        file
    }
}

impl Code {
    fn write(&self, file: &mut Value, name: &str) {
        file["type"] = "code".into();
        file["command"] = format!("work {} {name}", self.prints.word()).into();
        let env = self.env.iter().map(|(name, value)| (name.clone(), text(value).into()));
        set(file, "env", (!self.env.is_empty()).then(|| env.collect::<Map<_, _>>()));
        file["allow_exit"] = self.allow_exit.clone().into();
        set(file, "output", (self.prints == Prints::Text).then_some("text"));
        set(file, "schema", self.wants_integer.then(|| json!({"type": "integer"})));
        let retry = self.retry.as_ref().map(|retry| {
            let (backoff, most) = (milliseconds(&retry.backoff_ms), milliseconds(&retry.max_backoff_ms));
            let mut setting = json!({
                "max": retry.max, "backoff": backoff, "factor": retry.factor, "max_backoff": most, "jitter": false,
            });
            set(&mut setting, "on", (!retry.on.is_empty()).then(|| retry.on.clone()));
            setting
        });
        set(file, "retry", retry);
    }
}

impl Llm {
    /// The schema of a completion.
    pub(crate) fn schema() -> Value {
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    }

    fn write(&self, file: &mut Value, name: &str) {
        file["type"] = "llm".into();
        file["prompt"] = text(&self.prompt).into();
        file["retry"] = self.retry.into();
        set(file, "schema", self.wants_n.then(Self::schema));
        set(file, "validate", self.has_validator.then(|| json!({"command": format!("check {name}")})));
    }
}

impl Choose {
    fn write(&self, file: &mut Value) {
        file["type"] = "llm".into();
        file["prompt"] = text(&self.prompt).into();
        file["retry"] = self.retry.into();
        file["choose"] = json!({"from": self.from.to_string(), "many": self.many, "always": self.always});
        set(&mut file["choose"], "by", self.by_k.then_some("k"));
    }
}

impl Binding {
    fn file(&self) -> Value {
        match self {
            Self::Literal(value) => value.clone(),
            Self::Reference(reference) => reference.to_string().into(),
            Self::Text(template) => text(template).into(),
        }
    }
}

impl Condition {
    fn file(&self) -> Value {
        match self {
            Self::Truthy(value) => value.to_string().into(),
            Self::Exists(value, wanted) => json!({"value": value.to_string(), "exists": wanted}),
            Self::Compare { value, op, with } => json!({"value": value.to_string(), op.word(): with}),
            Self::Same(value, other) => json!({"value": value.to_string(), "equals": other.to_string()}),
            Self::All(all) => all.iter().map(Self::file).collect(),
            Self::Any(any) => json!({"any": any.iter().map(Self::file).collect::<Value>()}),
            Self::Not(one) => json!({"not": one.file()}),
        }
    }
}

fn text(template: &Template) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Reference(reference) => reference.to_string(),
    };
    template.iter().map(piece).collect()
}

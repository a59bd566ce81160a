//! Plans for tests, built from few words.
//!
//! The pipeline is called `p`, and every process succeeds with its name as output unless a script says otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::condition::{Condition, Op};
use crate::data::Json;
use crate::digest::Digest;
use crate::effect::{Command, Protocol};
use crate::machine::{Limits, Start};
use crate::model::{Tier, Tool};
use crate::plan::{
    Agent, Approval, Binding, Cache, Choose, Code, CodeRetry, ForEach, Llm, OnFailure, OnTimeout, Origin, OutputOf,
    Parallel, PipelineTool, Plan, Requirement, RetryOn, SandboxRules, Sequence, Step, StepKind, SubPipeline, ToolStep,
};
use crate::schema::Schema;
use crate::template::{self, Template};

/// A plan with its start parameters.
pub(super) struct Case {
    pub(super) plan: Plan,
    pub(super) start: Start,
}

/// The pipeline `p` with these steps.
pub(super) fn pipeline(steps: impl IntoIterator<Item = Step>) -> Case {
    let start = Start {
        run_id: "r1".to_owned(),
        abi: crate::machine::ABI,
        input: Json::trusted("{}"),
        request: None,
        limits: Limits::default(),
        spent: crate::model::Usage::default(),
        attempt: crate::machine::Attempt::default(),
        app_dir: "/app".to_owned(),
        yolo: false,
        slots: Default::default(),
        restarts: Default::default(),
    };
    Case {
        plan: Plan {
            before: None,
            body: Arc::new(sequence("p", steps)),
            after: None,
            phase: crate::failure::Phase::Business,
            fallback: None,
        },
        start,
    }
}

impl Case {
    /// Adds a constructor `_c`.
    pub(super) fn before(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.plan.before = Some(Arc::new(sequence("_c", steps)));
        self
    }

    /// Adds a destructor `_d`.
    pub(super) fn after(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.plan.after = Some(Arc::new(sequence("_d", steps)));
        self
    }

    /// Adds skill mode after a deviation, with the agent `agent`.
    pub(super) fn fallback(mut self) -> Self {
        let sequence = Arc::new(sequence("skill", [skill("agent", "{{run.request}}")]));
        self.plan.fallback = Some(Arc::new(crate::plan::Fallback { sequence, description: "Does p.".to_owned() }));
        self
    }

    pub(super) fn request(mut self, text: &str) -> Self {
        self.start.request = Some(text.to_owned());
        self
    }

    pub(super) fn input(mut self, text: &str) -> Self {
        self.start.input = json(text);
        self
    }

    /// Sets the step that gives the pipeline its output.
    pub(super) fn output(mut self, step: &str) -> Self {
        Arc::make_mut(&mut self.plan.body).output = OutputOf::Step(step.to_owned());
        self
    }

    pub(super) fn max_tokens(mut self, tokens: u64) -> Self {
        self.start.limits.max_tokens = Some(tokens);
        self
    }

    pub(super) fn max_cost(mut self, usd: f64) -> Self {
        self.start.limits.max_cost_usd = Some(usd);
        self
    }

    /// Sets the run's time budget, in seconds.
    pub(super) fn run_timeout(mut self, seconds: u64) -> Self {
        self.start.limits.timeout_ms = Some(seconds * 1000);
        self
    }
}

pub(super) fn sequence(name: &str, steps: impl IntoIterator<Item = Step>) -> Sequence {
    Sequence {
        name: name.to_owned(),
        dir: format!("pipelines/{name}"),
        steps: steps.into_iter().map(Arc::new).collect(),
        output: OutputOf::Last,
        description: None,
    }
}

fn step(name: &str, kind: StepKind) -> Step {
    Step {
        name: name.to_owned(),
        kind,
        when: None,
        require: None,
        for_each: None,
        timeout_ms: None,
        cache: None,
        effects: false,
        origin: Origin { file: format!("{name}.yaml"), line: 1, column: 1 },
    }
}

/// A code step whose command is its name.
pub(super) fn code(name: &str) -> Step {
    let command = Command::Direct(vec![name.to_owned()]);
    let code = Code {
        command,
        protocol: Protocol::Step,
        env: Vec::new(),
        env_from: Vec::new(),
        allow_exit: vec![0],
        schema: None,
        retry: None,
        worker: None,
        sandbox: None,
    };
    step(name, StepKind::Code(code))
}

/// An llm step without a schema.
pub(super) fn llm(name: &str, prompt: &str) -> Step {
    let llm = Llm {
        choose: None,
        tier: Tier::Standard,
        system: None,
        prompt: template(prompt),
        schema: None,
        validate: None,
        retry: 2,
        temperature: None,
        max_tokens: None,
        cache_prompt: false,
        images: Vec::new(),
    };
    step(name, StepKind::Llm(Box::new(llm)))
}

/// An llm step that chooses any number of the elements of a list.
pub(super) fn choose_many(name: &str, prompt: &str, from: &str) -> Step {
    choose(name, prompt, from, None)
}

/// The same, with a member of each element as its label.
pub(super) fn choose_by(name: &str, prompt: &str, from: &str, by: &str) -> Step {
    choose(name, prompt, from, Some(by.to_owned()))
}

/// Two questions: `first` asks `second` in the same call.
pub(super) fn asked_together(mut first: Step, second: Step) -> [Step; 2] {
    if let StepKind::Llm(llm) = &mut first.kind
        && let Some(choose) = &mut llm.choose
    {
        choose.together.push(Arc::new(second.clone()));
    }
    [first, second]
}

fn choose(name: &str, prompt: &str, from: &str, by: Option<String>) -> Step {
    let mut step = llm(name, prompt);
    if let StepKind::Llm(llm) = &mut step.kind {
        llm.choose =
            Some(Choose { from: binding(from), by, many: true, always: false, together: Vec::new(), beside: None });
    }
    step
}

/// A group whose children run all at once and stop each other on failure.
pub(super) fn group(name: &str, steps: impl IntoIterator<Item = Step>) -> Step {
    let steps = steps.into_iter().map(Arc::new).collect();
    step(name, StepKind::Parallel(Parallel { steps, max_parallel: None, on_failure: OnFailure::Stop }))
}

/// A step that runs another pipeline.
pub(super) fn call(name: &str, sequence: Sequence) -> Step {
    let sub = SubPipeline { sequence: Arc::new(sequence), input: Vec::new(), schema: schema("input", "{}") };
    step(name, StepKind::Pipeline(sub))
}

/// An approval that anyone may answer.
pub(super) fn approval(name: &str, message: &str) -> Step {
    let approval = Approval {
        effects: Vec::new(),
        message: template(message),
        schema: None,
        approvers: Vec::new(),
        on_timeout: OnTimeout::Fail,
        continue_on_deny: false,
    };
    step(name, StepKind::Approval(Box::new(approval)))
}

/// An agent of the skill `tidy` with three turns.
pub(super) fn skill(name: &str, prompt: &str) -> Step {
    let agent = Agent {
        skill: "tidy".to_owned(),
        tier: Tier::Standard,
        system: Template::literal("Be tidy."),
        prompt: template(prompt),
        tool_selection: Arc::default(),
        schema: None,
        turn_cap: 3,
        step_cap: None,
        pipelines: Vec::new(),
    };
    step(name, StepKind::Skill(Box::new(agent)))
}

/// Lets the agent call these steps as the tool `Look`.
pub(super) fn offering(mut step: Step, sequence: Sequence) -> Step {
    if let StepKind::Skill(agent) = &mut step.kind {
        let tool = Tool { name: "Look".to_owned(), description: String::new(), parameters: Arc::new(Value::Null) };
        let (sequence, input) = (Arc::new(sequence), schema("input", r#"{"required": ["id"]}"#));
        agent.pipelines.push(Arc::new(PipelineTool { tool, sequence, input, defaults: Vec::new() }));
    }
    step
}

/// A call of a tool with one argument; the tool writes unless its name begins with `get`.
pub(super) fn tool(name: &str, tool: &str, value: &str) -> Step {
    let (args, writes) = (vec![("id".to_owned(), binding(value))], !tool.starts_with("get"));
    let call = ToolStep { tool: tool.to_owned(), args, tool_selection: Arc::default(), writes };
    step(name, StepKind::Tool(Box::new(call)))
}

pub(super) fn template(text: &str) -> Template {
    let (template, problems) = template::parse(text);
    assert!(problems.is_empty(), "{problems:?}");
    template
}

fn binding(text: &str) -> Binding {
    let template = template(text);
    match template.sole_reference() {
        Some(reference) => Binding::Reference(reference.clone()),
        None => Binding::Template(template),
    }
}

pub(super) fn json(text: &str) -> Json {
    Json::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub(super) fn schema(name: &str, text: &str) -> Arc<Schema> {
    let document: Value = serde_json::from_str(text).expect("a JSON document");
    Arc::new(Schema::compile(name, document, BTreeMap::new()).expect("a JSON Schema"))
}

/// Fields of any step (X-1).
pub(super) trait Fields: Sized {
    /// Runs only if the value is truthy.
    fn when(self, text: &str) -> Self;
    /// Runs only if the value exists.
    fn when_exists(self, text: &str) -> Self;
    /// Starts only if the value is truthy.
    fn require(self, text: &str) -> Self;
    /// Starts only if the value equals this number.
    fn require_equal(self, text: &str, number: u64) -> Self;
    /// Ends after this number of seconds.
    fn timeout(self, seconds: u64) -> Self;
    /// Runs once per element, one at a time.
    fn for_each(self, text: &str) -> Self;
    /// Sets the maximum number of elements or children at once.
    fn max_parallel(self, n: usize) -> Self;
    fn max_items(self, n: usize) -> Self;
    /// Collects failures of elements in the output.
    fn collect(self) -> Self;
    /// Reuses earlier outputs.
    fn cached(self) -> Self;
    /// Reuses earlier outputs by this key.
    fn cached_by(self, key: &str) -> Self;
}

impl Fields for Step {
    fn when(mut self, text: &str) -> Self {
        self.when = Some(Condition::Truthy(binding(text)));
        self
    }

    fn when_exists(mut self, text: &str) -> Self {
        self.when =
            Some(Condition::Compare { value: binding(text), op: Op::Exists, literal: Value::Bool(true).into() });
        self
    }

    fn require(mut self, text: &str) -> Self {
        let condition = Condition::Truthy(binding(text));
        self.require = Some(Requirement { condition, written: text.to_owned() });
        self
    }

    fn require_equal(mut self, text: &str, number: u64) -> Self {
        let literal = Value::from(number).into();
        let condition = Condition::Compare { value: binding(text), op: Op::Equals, literal };
        self.require = Some(Requirement { condition, written: text.to_owned() });
        self
    }

    fn timeout(mut self, seconds: u64) -> Self {
        self.timeout_ms = Some(seconds * 1000);
        self
    }

    fn for_each(mut self, text: &str) -> Self {
        let items = binding(text);
        let stands_for = match &items {
            Binding::Reference(reference) => vec![reference.clone()],
            _ => Vec::new(),
        };
        self.for_each = Some(ForEach { items, max_parallel: 1, max_items: 1000, collect: false, stands_for });
        self
    }

    fn max_parallel(mut self, n: usize) -> Self {
        match (&mut self.for_each, &mut self.kind) {
            (Some(for_each), _) => for_each.max_parallel = n,
            (None, StepKind::Parallel(group)) => group.max_parallel = Some(n),
            _ => panic!("`max_parallel` without `for_each`"),
        }
        self
    }

    fn max_items(mut self, n: usize) -> Self {
        self.for_each.as_mut().expect("`for_each`").max_items = n;
        self
    }

    fn collect(mut self) -> Self {
        self.for_each.as_mut().expect("`for_each`").collect = true;
        self
    }

    fn cached(mut self) -> Self {
        let fingerprint = Digest::of(self.name.as_bytes());
        self.cache = Some(Cache { ttl_ms: None, key: None, fingerprint, uses_index: false });
        self
    }

    fn cached_by(mut self, key: &str) -> Self {
        let fingerprint = Digest::of(self.name.as_bytes());
        self.cache = Some(Cache { ttl_ms: Some(1000), key: Some(template(key)), fingerprint, uses_index: false });
        self
    }
}

/// Fields of one type of step only.
pub(super) trait Own: Sized {
    /// Sets the maximum number of retries; those of a code step wait 100 ms, then twice as long each time.
    fn retry(self, max: u32) -> Self;
    /// Sets the failures that a code step retries.
    fn retry_on<const N: usize>(self, on: [RetryOn; N]) -> Self;
    fn jitter(self) -> Self;
    fn allow_exit<const N: usize>(self, allowed: [i32; N]) -> Self;
    /// Sets `output: text`.
    fn text(self) -> Self;
    fn env(self, name: &str, value: &str) -> Self;
    fn sandbox(self, read: &str, write: &str) -> Self;
    /// Sets the schema of a step's output.
    fn schema(self, text: &str) -> Self;
    /// Sets the content validator of an llm step.
    fn validate(self, script: &str) -> Self;
    /// Sets a command as the content validator.
    fn validate_with<const N: usize>(self, words: [&str; N]) -> Self;
    /// Sets `on_failure: wait`: the others of a group run to their end after a failure.
    fn wait(self) -> Self;
    /// Sets a parameter of a sub-pipeline.
    fn with(self, name: &str, value: &str) -> Self;
    /// Sets the schema of a sub-pipeline's input.
    fn takes(self, text: &str) -> Self;
    fn on_timeout(self, on_timeout: OnTimeout) -> Self;
    fn continue_on_deny(self) -> Self;
}

impl Own for Step {
    fn retry(mut self, max: u32) -> Self {
        match &mut self.kind {
            StepKind::Llm(llm) => llm.retry = max,
            _ => {
                code_of(&mut self).retry = Some(CodeRetry {
                    max,
                    backoff_ms: 100,
                    factor: 2.0,
                    max_backoff_ms: 300,
                    jitter: false,
                    on: Vec::new(),
                });
            }
        }
        self
    }

    fn retry_on<const N: usize>(mut self, on: [RetryOn; N]) -> Self {
        code_of(&mut self).retry.as_mut().expect("`retry`").on = on.into();
        self
    }

    fn jitter(mut self) -> Self {
        code_of(&mut self).retry.as_mut().expect("`retry`").jitter = true;
        self
    }

    fn text(mut self) -> Self {
        code_of(&mut self).protocol = Protocol::Text;
        self
    }

    fn allow_exit<const N: usize>(mut self, allowed: [i32; N]) -> Self {
        code_of(&mut self).allow_exit = allowed.into();
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        code_of(&mut self).env.push((name.to_owned(), template(value)));
        self
    }

    fn sandbox(mut self, read: &str, write: &str) -> Self {
        let rules = SandboxRules { network: false, read: vec![template(read)], write: vec![template(write)] };
        code_of(&mut self).sandbox = Some(Box::new(rules));
        self
    }

    fn schema(mut self, text: &str) -> Self {
        let schema = schema("schema.json", text);
        match &mut self.kind {
            StepKind::Llm(llm) => llm.schema = Some(schema),
            StepKind::Approval(approval) => approval.schema = Some(schema),
            StepKind::Skill(agent) => agent.schema = Some(schema),
            _ => code_of(&mut self).schema = Some(schema),
        }
        self
    }

    fn validate_with<const N: usize>(mut self, words: [&str; N]) -> Self {
        match &mut self.kind {
            StepKind::Llm(llm) => llm.validate = Some(Command::Direct(words.map(str::to_owned).to_vec())),
            other => panic!("`validate` of a step of type {}", other.word()),
        }
        self
    }

    fn validate(mut self, script: &str) -> Self {
        match &mut self.kind {
            StepKind::Llm(llm) => llm.validate = Some(Command::Script(script.to_owned())),
            other => panic!("`validate` of a step of type {}", other.word()),
        }
        self
    }

    fn wait(mut self) -> Self {
        match &mut self.kind {
            StepKind::Parallel(group) => group.on_failure = OnFailure::Wait,
            other => panic!("`on_failure` of a step of type {}", other.word()),
        }
        self
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        sub_of(&mut self).input.push((name.to_owned(), binding(value)));
        self
    }

    fn takes(mut self, text: &str) -> Self {
        sub_of(&mut self).schema = schema("input", text);
        self
    }

    fn on_timeout(mut self, on_timeout: OnTimeout) -> Self {
        approval_of(&mut self).on_timeout = on_timeout;
        self
    }

    fn continue_on_deny(mut self) -> Self {
        approval_of(&mut self).continue_on_deny = true;
        self
    }
}

fn code_of(step: &mut Step) -> &mut Code {
    match &mut step.kind {
        StepKind::Code(code) => code,
        other => panic!("a field of code steps in a step of type {}", other.word()),
    }
}

fn sub_of(step: &mut Step) -> &mut SubPipeline {
    match &mut step.kind {
        StepKind::Pipeline(sub) => sub,
        other => panic!("a field of pipeline steps in a step of type {}", other.word()),
    }
}

fn approval_of(step: &mut Step) -> &mut Approval {
    match &mut step.kind {
        StepKind::Approval(approval) => approval,
        other => panic!("a field of approvals in a step of type {}", other.word()),
    }
}

//! Random apps in two steps: a shape, which proptest can shrink, and then definitions of that shape. Names are counted, and
//! each choice of a reference is a number that selects one of the valid references at its position.

use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop, prop_oneof};
use serde_json::{Value, json};

use crate::definition::{
    App, Approval, Binding, Call, Choose, Code, Condition, ForEach, Group, Llm, OnTimeout, Op, Parameter, Piece,
    Pipeline, Prints, Reference, Retry, Step, Template, Work,
};
use crate::world::World;

/// A number that selects one of the available options.
type Pick = u16;

/// An app without names and references.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    seed: u64,
    trouble: u64,
    constructor: Option<Vec<StepShape>>,
    steps: Vec<StepShape>,
    destructor: Option<Vec<StepShape>>,
    output: Option<Pick>,
    timeout_ms: Option<u64>,
    cancel_ms: Option<u64>,
}

#[derive(Debug, Clone)]
struct StepShape {
    work: WorkShape,
    when: Option<ConditionShape>,
    require: Option<ConditionShape>,
    for_each: Option<(Pick, usize, bool, bool)>,
    timeout_ms: Option<u64>,
}

#[derive(Debug, Clone)]
enum WorkShape {
    Code { prints: Prints, env: Option<Pick>, allows_3: bool, retry: Option<Retry> },
    Llm { prompt: Pick, wants_n: bool, has_validator: bool, retry: u32 },
    Choose { prompt: Pick, from: Pick, by_k: bool, many: bool, always: bool, retry: u32 },
    Group { steps: Vec<StepShape>, max_parallel: Option<usize>, waits: bool },
    Call { steps: Vec<StepShape>, output: Option<Pick>, n: Pick, list: Pick, is_integer: bool },
    Approval { message: Pick, on_timeout: OnTimeout, continues: bool },
}

#[derive(Debug, Clone)]
enum ConditionShape {
    Truthy(Pick),
    Exists(Pick, bool),
    Compare(Pick, Op, usize),
    Same(Pick, Pick),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

/// A random app in a random world.
pub(crate) fn any_shape() -> impl Strategy<Value = Shape> {
    let steps = |most: usize| any_row(any_step().boxed(), most);
    let rarely = |ms: std::ops::Range<u64>| prop::option::weighted(0.15, ms);
    (
        (any::<u64>(), prop_oneof![Just(0_u64), Just(10), Just(30)]),
        prop::option::weighted(0.3, steps(2)),
        steps(4),
        prop::option::weighted(0.5, steps(2)),
        prop::option::weighted(0.3, any::<Pick>()),
        rarely(20..600),
        rarely(1..500),
    )
        .prop_map(|((seed, trouble), constructor, steps, destructor, output, timeout_ms, cancel_ms)| Shape {
            seed,
            trouble,
            constructor,
            steps,
            destructor,
            output,
            timeout_ms,
            cancel_ms,
        })
}

/// Steps of a pipeline or a group; some of them are neighbouring questions.
fn any_row(step: BoxedStrategy<StepShape>, most: usize) -> impl Strategy<Value = Vec<StepShape>> {
    let steps = prop::collection::vec(step, 1..=most);
    let questions = prop::collection::vec(around(any_choose()), 2..=3);
    (steps, prop::option::weighted(0.2, questions)).prop_map(|(mut steps, questions)| {
        steps.extend(questions.into_iter().flatten());
        steps
    })
}

fn any_step() -> impl Strategy<Value = StepShape> {
    let leaf = around(prop_oneof![8 => any_code(), 4 => any_llm(), 2 => any_choose(), 2 => any_approval()].boxed());
    leaf.prop_recursive(3, 16, 4, |inner| {
        let group = (any_row(inner.clone(), 4), prop::option::weighted(0.4, 1_usize..=3), any::<bool>())
            .prop_map(|(steps, max_parallel, waits)| WorkShape::Group { steps, max_parallel, waits });
        let call = (
            any_row(inner.clone(), 3),
            prop::option::weighted(0.3, any::<Pick>()),
            any::<Pick>(),
            any::<Pick>(),
            prop::bool::weighted(0.3),
        )
            .prop_map(|(steps, output, n, list, is_integer)| WorkShape::Call {
                steps,
                output,
                n,
                list,
                is_integer,
            });
        prop_oneof![2 => inner, 3 => around(group.boxed()), 2 => around(call.boxed())]
    })
}

/// A step: the work, with the properties of every type of step.
fn around(work: impl Strategy<Value = WorkShape> + 'static) -> impl Strategy<Value = StepShape> {
    let for_each = (any::<Pick>(), 1_usize..=3, prop::bool::weighted(0.1), any::<bool>());
    (
        work,
        prop::option::weighted(0.15, any_condition()),
        prop::option::weighted(0.08, any_condition()),
        prop::option::weighted(0.25, for_each),
        prop::option::weighted(0.15, 5_u64..300),
    )
        .prop_map(|(work, when, require, for_each, timeout_ms)| StepShape {
            work,
            when,
            require,
            for_each,
            timeout_ms,
        })
}

fn any_code() -> impl Strategy<Value = WorkShape> {
    let prints = prop_oneof![
        2 => Just(Prints::Anything),
        4 => Just(Prints::List),
        2 => Just(Prints::Object),
        2 => Just(Prints::Integer),
        1 => Just(Prints::Words),
        1 => Just(Prints::Records),
        1 => Just(Prints::Text),
    ];
    let on = prop::sample::subsequence(vec![json!(1), json!(75), json!("signal")], 0..=2);
    let retry =
        (0_u32..=2, 1_u64..40, 1_u64..=3, 20_u64..60, on).prop_map(|(max, backoff_ms, factor, max_backoff_ms, on)| {
            Retry { max, backoff_ms, factor, max_backoff_ms, on }
        });
    let (env, retry) = (prop::option::weighted(0.4, any::<Pick>()), prop::option::weighted(0.5, retry));
    (prints, env, prop::bool::weighted(0.7), retry).prop_map(|(prints, env, allows_3, retry)| WorkShape::Code {
        prints,
        env,
        allows_3,
        retry,
    })
}

fn any_llm() -> impl Strategy<Value = WorkShape> {
    (any::<Pick>(), any::<bool>(), prop::bool::weighted(0.4), 0_u32..=2)
        .prop_map(|(prompt, wants_n, has_validator, retry)| WorkShape::Llm { prompt, wants_n, has_validator, retry })
}

fn any_choose() -> impl Strategy<Value = WorkShape> {
    (any::<Pick>(), any::<Pick>(), any::<bool>(), any::<bool>(), any::<bool>(), 0_u32..=1).prop_map(
        |(prompt, from, by_k, many, always, retry)| WorkShape::Choose { prompt, from, by_k, many, always, retry },
    )
}

fn any_approval() -> impl Strategy<Value = WorkShape> {
    let on_timeout = prop_oneof![Just(OnTimeout::Fail), Just(OnTimeout::Deny), Just(OnTimeout::Approve)];
    (any::<Pick>(), on_timeout, any::<bool>()).prop_map(|(message, on_timeout, continues)| WorkShape::Approval {
        message,
        on_timeout,
        continues,
    })
}

fn any_condition() -> impl Strategy<Value = ConditionShape> {
    let op =
        prop_oneof![Just(Op::Equals), Just(Op::NotEquals), Just(Op::In), Just(Op::NotIn), Just(Op::Gt), Just(Op::Lte),];
    let leaf = prop_oneof![
        3 => any::<Pick>().prop_map(ConditionShape::Truthy),
        2 => (any::<Pick>(), any::<bool>()).prop_map(|(value, wanted)| ConditionShape::Exists(value, wanted)),
        3 => (any::<Pick>(), op, 0_usize..5).prop_map(|(value, op, with)| ConditionShape::Compare(value, op, with)),
        1 => (any::<Pick>(), any::<Pick>()).prop_map(|(value, other)| ConditionShape::Same(value, other)),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..=3);
        prop_oneof![
            list.clone().prop_map(ConditionShape::All),
            list.prop_map(ConditionShape::Any),
            inner.prop_map(|one| ConditionShape::Not(Box::new(one))),
        ]
    })
}

/// The shape of a value that later steps may refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Any value; paths may lead into it.
    Open,
    /// An array of such values.
    Array,
    /// A value without members for references.
    Plain,
    /// A value that contains an error with wording of the interpreter; no template refers into it.
    Closed,
}

/// The names that a pipeline has so far.
#[derive(Debug, Clone, Default)]
struct Known {
    parameters: Vec<String>,
    steps: Vec<(String, Kind, Prints)>,
    has_item: bool,
}

/// A counter for names.
#[derive(Debug, Default)]
struct Builder {
    names: usize,
}

impl Shape {
    /// The app of this shape, with its world.
    pub(crate) fn app(&self) -> (App, World) {
        let mut builder = Builder::default();
        let integer = Parameter { name: "n".to_owned(), is_integer: true };
        let parameters = vec![integer, parameter("list"), parameter("o"), parameter("words")];
        let none = Known::default();
        let own = Known { parameters: names_of(&parameters), ..Known::default() };
        let constructor = self.constructor.as_ref().map(|steps| builder.pipeline("_constructor", steps, &none, None).0);
        let (mut pipeline, _) = builder.pipeline("p", &self.steps, &own, self.output);
        pipeline.parameters = parameters;
        let destructor = self.destructor.as_ref().map(|steps| builder.pipeline("_destructor", steps, &none, None).0);
        let input = json!({"n": 3, "list": [1, {"k": [1, 2], "items": []}, "x"], "o": {"k": 1, "items": [{"k": 2}]}, "words": ["a", "b"]});
        let input = input.as_object().expect("an object").clone();
        let (timeout_ms, cancel_ms) = (self.timeout_ms, self.cancel_ms);
        let app = App { constructor, pipeline, destructor, input, timeout_ms, cancel_ms };
        (app, World { seed: self.seed, trouble: self.trouble })
    }
}

fn parameter(name: &str) -> Parameter {
    Parameter { name: name.to_owned(), is_integer: false }
}

fn names_of(parameters: &[Parameter]) -> Vec<String> {
    parameters.iter().map(|parameter| parameter.name.clone()).collect()
}

impl Builder {
    fn name(&mut self, of: &str) -> String {
        self.names += 1;
        format!("{of}{}", self.names)
    }

    /// A pipeline, with the kind of its output.
    fn pipeline(&mut self, name: &str, shapes: &[StepShape], known: &Known, output: Option<Pick>) -> (Pipeline, Kind) {
        let mut known = known.clone();
        let mut steps: Vec<Step> = Vec::new();
        for shape in shapes {
            let (step, kind) = self.step(shape, &known);
            let prints = if let Work::Code(code) = &step.work { code.prints } else { Prints::Anything };
            known.steps.push((step.name.clone(), kind, prints));
            steps.push(step);
        }
        let outputs: Vec<(String, Kind)> = known.steps.iter().map(|(name, kind, _)| (name.clone(), *kind)).collect();
        let output = output.and_then(|pick| choose(pick, &outputs));
        let kind = output.as_ref().or(outputs.last()).map_or(Kind::Closed, |(_, kind)| *kind);
        let output = output.map(|(name, _)| name);
        (Pipeline { name: name.to_owned(), parameters: Vec::new(), steps, output }, kind)
    }

    fn step(&mut self, shape: &StepShape, known: &Known) -> (Step, Kind) {
        let condition = |shape: &Option<ConditionShape>, is_require| {
            shape.as_ref().and_then(|shape| known.condition(shape, is_require))
        };
        let (when, require) = (condition(&shape.when, false), condition(&shape.require, true));
        let is_choice = matches!(shape.work, WorkShape::Choose { .. });
        let for_each = shape.for_each.filter(|_| !is_choice).and_then(|(pick, max_parallel, is_short, collects)| {
            let items = known.list(pick)?;
            Some(ForEach { items, max_parallel, max_items: if is_short { 1 } else { 10 }, collects })
        });
        let inner = Known { has_item: known.has_item || for_each.is_some(), ..known.clone() };
        let (name, mut work, kind) = self.work(&shape.work, &inner);
        if let (Work::Approval(approval), None) = (&mut work, shape.timeout_ms) {
            approval.on_timeout = OnTimeout::Fail;
        }
        if let (Work::Group(group), Some(_)) = (&mut work, &for_each) {
            // With `for_each`, `max_parallel` limits the elements, not the children.
            group.max_parallel = None;
        }
        let kind = match &for_each {
            Some(each) if each.collects => Kind::Closed,
            Some(_) if kind == Kind::Open => Kind::Array,
            _ => kind,
        };
        (Step { name, when, require, for_each, timeout_ms: shape.timeout_ms, work }, kind)
    }

    fn work(&mut self, shape: &WorkShape, known: &Known) -> (String, Work, Kind) {
        match shape {
            WorkShape::Code { prints, env, allows_3, retry } => {
                let name = self.name("code");
                let env = env.iter().map(|pick| ("VALUE".to_owned(), known.template(*pick))).collect();
                let wants_integer = *prints == Prints::Integer;
                let kind = if wants_integer || *prints == Prints::Text { Kind::Plain } else { Kind::Open };
                let allow_exit = if *allows_3 { vec![0, 3] } else { vec![0] };
                let code = Code { prints: *prints, env, allow_exit, wants_integer, retry: retry.clone() };
                (name, Work::Code(code), kind)
            }
            WorkShape::Choose { prompt, from, by_k, many, always, retry } => {
                let wanted = if *by_k { Prints::Records } else { Prints::Words };
                let prompt = known.template(*prompt);
                let words = known.words().filter(|_| !by_k && from % 4 > 0);
                match words.or_else(|| known.printing(wanted, *from)).or_else(|| known.list(*from)) {
                    Some(from) => {
                        let (by_k, many, always, retry) = (*by_k, *many, *always, *retry);
                        let choose = Choose { prompt, from, by_k, many, always, retry };
                        (self.name("choose"), Work::Choose(choose), Kind::Plain)
                    }
                    None => (self.name("llm"), plain_llm(prompt), Kind::Plain),
                }
            }
            WorkShape::Llm { prompt, wants_n, has_validator, retry } => {
                let (wants_n, has_validator, retry) = (*wants_n, *has_validator, *retry);
                let llm = Llm { prompt: known.template(*prompt), wants_n, has_validator, retry };
                (self.name("llm"), Work::Llm(llm), Kind::Plain)
            }
            WorkShape::Group { steps, max_parallel, waits } => {
                let name = self.name("group");
                let child = |step: &StepShape| self.step(&step.as_child(), known);
                let children: Vec<(Step, Kind)> = steps.iter().map(child).collect();
                let is_closed = children.iter().any(|(_, kind)| *kind == Kind::Closed);
                let steps = children.into_iter().map(|(step, _)| step).collect();
                let group = Group { steps, max_parallel: *max_parallel, waits: *waits };
                (name, Work::Group(group), if is_closed { Kind::Closed } else { Kind::Plain })
            }
            WorkShape::Call { steps, output, n, list, is_integer } => {
                let name = self.name("call");
                let parameters = vec![Parameter { name: "n".to_owned(), is_integer: *is_integer }, parameter("list")];
                let inner = Known { parameters: names_of(&parameters), ..Known::default() };
                let (mut pipeline, kind) = self.pipeline(&format!("of-{name}"), steps, &inner, *output);
                pipeline.parameters = parameters;
                let input = vec![("n".to_owned(), known.binding(*n)), ("list".to_owned(), known.list_binding(*list))];
                let kind = if kind == Kind::Closed { Kind::Closed } else { Kind::Plain };
                (name, Work::Call(Call { pipeline, input }), kind)
            }
            WorkShape::Approval { message, on_timeout, continues } => {
                let message = known.template(*message);
                let approval = Approval { message, on_timeout: *on_timeout, continues: *continues };
                (self.name("approval"), Work::Approval(approval), Kind::Plain)
            }
        }
    }
}

impl StepShape {
    /// The step as a child of a group. A nested group is wrapped in a called pipeline, because groups must not nest directly.
    fn as_child(&self) -> Self {
        let work = match &self.work {
            WorkShape::Group { .. } => {
                let group = Self { when: None, require: None, for_each: None, timeout_ms: None, ..self.clone() };
                WorkShape::Call { steps: vec![group], output: None, n: 0, list: 0, is_integer: false }
            }
            work => work.clone(),
        };
        Self { work, ..self.clone() }
    }
}

fn plain_llm(prompt: Template) -> Work {
    Work::Llm(Llm { prompt, wants_n: false, has_validator: false, retry: 1 })
}

fn choose<T: Clone>(pick: Pick, of: &[T]) -> Option<T> {
    (!of.is_empty()).then(|| of[usize::from(pick) % of.len()].clone())
}

fn path(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

impl Known {
    /// All references that a template may contain here.
    fn references(&self) -> Vec<Reference> {
        let mut all = Vec::new();
        for name in &self.parameters {
            all.push(Reference::Input { name: name.clone(), path: Vec::new() });
        }
        if self.parameters.iter().any(|name| name == "o") {
            all.push(Reference::Input { name: "o".to_owned(), path: path(&["items", "0", "k"]) });
            all.push(Reference::Input { name: "o".to_owned(), path: path(&["missing"]) });
        }
        for (step, kind, _) in &self.steps {
            let output = |parts: &[&str]| Reference::Output { step: step.clone(), path: path(parts) };
            match kind {
                Kind::Closed => {}
                Kind::Plain => all.push(output(&[])),
                Kind::Array => all.extend([&[][..], &["0"], &["1", "k"]].map(output)),
                Kind::Open => all.extend([&[][..], &["k"], &["0"], &["items", "0"]].map(output)),
            }
        }
        if self.has_item {
            all.extend([&[][..], &["k"]].map(|parts| Reference::Item { path: path(parts) }));
            all.push(Reference::Index);
        }
        all
    }

    /// A reference that often leads to a list.
    fn list(&self, pick: Pick) -> Option<Reference> {
        let mut all = Vec::new();
        if self.parameters.iter().any(|name| name == "list") {
            all.push(Reference::Input { name: "list".to_owned(), path: Vec::new() });
        }
        for (step, kind, prints) in &self.steps {
            let output = |parts: &[&str]| Reference::Output { step: step.clone(), path: path(parts) };
            match (kind, prints) {
                (Kind::Open, Prints::Object) => all.push(output(&["items"])),
                (Kind::Open | Kind::Array, _) => all.push(output(&[])),
                _ => {}
            }
        }
        if self.has_item {
            all.push(Reference::Item { path: path(&["k"]) });
        }
        choose(pick, &all)
    }

    /// The parameter that is a list of texts.
    fn words(&self) -> Option<Reference> {
        let has_words = self.parameters.iter().any(|name| name == "words");
        has_words.then(|| Reference::Input { name: "words".to_owned(), path: Vec::new() })
    }

    /// The output of a step that prints values of this kind.
    fn printing(&self, wanted: Prints, pick: Pick) -> Option<Reference> {
        let fits = |(_, kind, prints): &&(String, Kind, Prints)| *kind == Kind::Open && *prints == wanted;
        let steps: Vec<String> = self.steps.iter().filter(fits).map(|(name, ..)| name.clone()).collect();
        choose(pick, &steps).map(|step| Reference::Output { step, path: Vec::new() })
    }

    fn template(&self, pick: Pick) -> Template {
        let text = |text: &str| Piece::Text(text.to_owned());
        let references = self.references();
        match (choose(pick, &references), choose(pick / 7, &references)) {
            (Some(one), Some(other)) if pick.is_multiple_of(3) => {
                vec![text("of "), Piece::Reference(one), text(" and "), Piece::Reference(other)]
            }
            (Some(one), _) => vec![Piece::Reference(one)],
            _ => vec![text("Go on.")],
        }
    }

    fn binding(&self, pick: Pick) -> Binding {
        match (choose(pick / 3, &self.references()), pick % 3) {
            (Some(reference), 0) => Binding::Reference(reference),
            (Some(_), 1) => Binding::Text([vec![Piece::Text("is ".to_owned())], self.template(pick / 3)].concat()),
            _ => Binding::Literal(json!(4)),
        }
    }

    fn list_binding(&self, pick: Pick) -> Binding {
        self.list(pick).map_or_else(|| Binding::Literal(json!([1, [2], {"k": []}])), Binding::Reference)
    }

    fn condition(&self, shape: &ConditionShape, is_require: bool) -> Option<Condition> {
        let references = self.references();
        let reference = |pick: Pick| choose(pick, &references);
        let list = |all: &[ConditionShape]| {
            all.iter().map(|one| self.condition(one, is_require)).collect::<Option<Vec<Condition>>>()
        };
        Some(match shape {
            ConditionShape::Truthy(value) => Condition::Truthy(reference(*value)?),
            ConditionShape::Exists(value, wanted) => Condition::Exists(reference(*value)?, *wanted),
            ConditionShape::Compare(value, op, at) => {
                let with = match op {
                    Op::Equals | Op::NotEquals => [json!(1), json!("x"), json!([0]), Value::Null, json!({"k": 1})],
                    Op::In | Op::NotIn => [json!([1, "x"]), json!([]), json!([null, false]), json!([2.0]), json!([3])],
                    Op::Gt | Op::Lte => [json!(0), json!(1), json!(2), json!(2.5), json!(-3)],
                };
                Condition::Compare { value: reference(*value)?, op: *op, with: with[*at].clone() }
            }
            ConditionShape::Same(value, other) if is_require => Condition::Same(reference(*value)?, reference(*other)?),
            ConditionShape::Same(value, _) => Condition::Truthy(reference(*value)?),
            ConditionShape::All(all) => Condition::All(list(all)?),
            ConditionShape::Any(any) => Condition::Any(list(any)?),
            ConditionShape::Not(one) => Condition::Not(Box::new(self.condition(one, is_require)?)),
        })
    }
}

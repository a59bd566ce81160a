//! Terms and functions: the expressions of a pipeline. Templates are written from terms, Python from functions. Both are
//! evaluated here over recorded results, so that the checked expression is the written one.

use etude_core::data::bare;
use etude_core::exact::MAX_EXACT;
use serde_json::{Map, Value, json};

use crate::value::{Collection, Kind, Path, at, is_at, only, same};

/// Start of a reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// A parameter of the pipeline.
    Param(String),
    /// The output of a step of the finished program.
    Step(String),
    /// The element of a `for_each`.
    Item,
    /// A read that may become a step.
    Node(usize),
    /// An argument whose binding is not known yet.
    Var(usize),
}

/// A value inside a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ref {
    pub(crate) source: Source,
    pub(crate) path: Path,
}

impl Ref {
    pub(crate) fn new(source: Source, path: Path) -> Self {
        Self { source, path }
    }

    pub(crate) fn step(name: &str) -> Self {
        Self::new(Source::Step(name.to_owned()), Path::new())
    }

    /// Template such as `{{user.output.orders}}`.
    pub(crate) fn template(&self) -> String {
        format!("{{{{{}}}}}", self.dotted())
    }

    fn dotted(&self) -> String {
        let head = match &self.source {
            Source::Param(name) => format!("input.{name}"),
            Source::Step(name) => format!("{name}.output"),
            Source::Item => "item".to_owned(),
            Source::Node(n) => format!("node {n}"),
            Source::Var(n) => format!("var {n}"),
        };
        self.path.iter().fold(head, |text, name| format!("{text}.{name}"))
    }

    pub(crate) fn find<'s>(&self, scope: &'s dyn Scope) -> Option<&'s Value> {
        at(scope.get(&self.source)?, &self.path)
    }

    fn eval(&self, scope: &dyn Scope) -> Option<Value> {
        self.find(scope).cloned()
    }
}

/// Values of sources during an evaluation.
pub(crate) trait Scope {
    /// Value of a source; `None` if there is none.
    fn get(&self, source: &Source) -> Option<&Value>;
}

/// Scope with the element of a list.
struct OfElement<'s> {
    scope: &'s dyn Scope,
    item: &'s Value,
}

impl Scope for OfElement<'_> {
    fn get(&self, source: &Source) -> Option<&Value> {
        match source {
            Source::Item => Some(self.item),
            other => self.scope.get(other),
        }
    }
}

/// A value with references in it, which a template can express.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Term {
    Const(Value),
    Ref(Ref),
    /// A text composed of parts.
    Text(Vec<Part>),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Plain(String),
    Ref(Ref),
}

impl Term {
    pub(crate) fn eval(&self, scope: &dyn Scope) -> Option<Value> {
        match self {
            Self::Const(value) => Some(value.clone()),
            Self::Ref(reference) => reference.eval(scope),
            Self::Text(parts) => {
                let texts = parts.iter().map(|part| match part {
                    Part::Plain(text) => Some(text.clone()),
                    Part::Ref(reference) => reference.eval(scope).map(|value| bare(&value).into_owned()),
                });
                Some(Value::String(texts.collect::<Option<String>>()?))
            }
            Self::List(items) => items.iter().map(|item| item.eval(scope)).collect::<Option<Vec<_>>>().map(Value::from),
            Self::Object(members) => {
                let members = members.iter().map(|(name, term)| Some((name.clone(), term.eval(scope)?)));
                members.collect::<Option<Map<_, _>>>().map(Value::Object)
            }
        }
    }

    /// JSON form in `pipeline.yaml`.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Const(value) => escaped(value),
            Self::Ref(reference) => reference.template().into(),
            Self::Text(parts) => {
                let text = parts.iter().map(|part| match part {
                    Part::Plain(text) => escape(text),
                    Part::Ref(reference) => reference.template(),
                });
                Value::String(text.collect())
            }
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Object(members) => members.iter().map(|(name, term)| (name.clone(), term.to_json())).collect(),
        }
    }

    /// True if `pipeline.yaml` cannot have it as an argument: a list or an object in which something is, or looks like, a
    /// reference.
    pub(crate) fn needs_code(&self) -> bool {
        fn has_braces(value: &Value) -> bool {
            match value {
                Value::String(text) => text.contains("{{"),
                Value::Array(items) => items.iter().any(has_braces),
                Value::Object(members) => members.iter().any(|(name, value)| name.contains("{{") || has_braces(value)),
                _ => false,
            }
        }
        fn is_plain(term: &Term) -> bool {
            match term {
                Term::Const(value) => !has_braces(value),
                Term::Ref(_) | Term::Text(_) => false,
                Term::List(items) => items.iter().all(is_plain),
                Term::Object(members) => members.iter().all(|(name, term)| !name.contains("{{") && is_plain(term)),
            }
        }
        match self {
            Self::Const(value) => !value.is_string() && has_braces(value),
            Self::List(_) | Self::Object(_) => !is_plain(self),
            Self::Ref(_) | Self::Text(_) => false,
        }
    }

    /// All references in the term.
    pub(crate) fn refs(&self) -> Vec<&Ref> {
        match self {
            Self::Const(_) => Vec::new(),
            Self::Ref(reference) => vec![reference],
            Self::Text(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    Part::Ref(reference) => Some(reference),
                    Part::Plain(_) => None,
                })
                .collect(),
            Self::List(items) => items.iter().flat_map(Self::refs).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, term)| term.refs()).collect(),
        }
    }

    /// The term with other references.
    pub(crate) fn map(&self, change: &dyn Fn(&Ref) -> Self) -> Self {
        match self {
            Self::Const(value) => Self::Const(value.clone()),
            Self::Ref(reference) => change(reference),
            Self::Text(parts) => Self::Text(
                parts
                    .iter()
                    .map(|part| match part {
                        Part::Plain(text) => Part::Plain(text.clone()),
                        Part::Ref(reference) => match change(reference) {
                            Self::Ref(reference) => Part::Ref(reference),
                            Self::Const(value) => Part::Plain(bare(&value).into_owned()),
                            _ => Part::Ref(reference.clone()),
                        },
                    })
                    .collect(),
            ),
            Self::List(items) => Self::List(items.iter().map(|item| item.map(change)).collect()),
            Self::Object(members) => {
                Self::Object(members.iter().map(|(name, term)| (name.clone(), term.map(change))).collect())
            }
        }
    }
}

/// Text in which nothing is read as a reference.
pub(crate) fn escape(text: &str) -> String {
    text.replace("{{", "\\{{")
}

/// Value in which no text is read as a reference.
pub(crate) fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => escape(text).into(),
        Value::Array(items) => items.iter().map(escaped).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), escaped(value))).collect(),
        other => other.clone(),
    }
}

/// A list: an array, or the members of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct List {
    pub(crate) of: Ref,
    pub(crate) kind: Kind,
}

impl List {
    pub(crate) fn elements<'s>(&self, scope: &'s dyn Scope) -> Option<Vec<&'s Value>> {
        let whole = Collection { path: Path::new(), kind: self.kind };
        whole.elements(self.of.find(scope)?)
    }
}

/// Function of `steps/bindings.py`: an expression that templates cannot have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Func {
    /// The members of an object as a list.
    Records(List),
    /// The same field of every element.
    Column { list: List, field: Path },
    /// The field of the only element; no value if there are several.
    Only { list: List, field: Path, as_list: bool },
    /// The element whose field has a value.
    Lookup { list: List, key: Path, is: Term },
    /// The elements whose field is one of several values, in the order of these.
    LookupAll { list: List, key: Path, are: Term },
    /// The value that a field has in every element; no value if it differs.
    Common { list: List, field: Path },
    /// The first of several outputs that is there.
    FirstOf(Vec<Ref>),
    /// The sum of a field of every element.
    Sum { list: List, field: Path },
    /// A calculation with two numbers.
    Arithmetic { op: Op, left: Ref, right: Ref },
    /// One term or another, by the value of an earlier output.
    Branch { on: Ref, cases: Vec<(Value, Term)> },
    /// The values that were seen.
    Values(Vec<Value>),
    /// For each element of a list, the element and the list in its own result.
    Options { over: Ref, results: Ref, list: Collection },
    /// A list or an object with references in it, for the argument of a call: a template has no references inside these.
    Build(Term),
    /// For each element of a list, the arguments of a call: terms that may read the element.
    Rows { list: List, fields: Vec<(String, Term)> },
    /// Arguments that nothing determines: each is `null`.
    Open(Vec<String>),
}

/// Arithmetic operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Add,
    Subtract,
    Multiply,
}

impl Op {
    pub(crate) const ALL: [Self; 3] = [Self::Add, Self::Subtract, Self::Multiply];

    pub(crate) fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
        }
    }

    pub(crate) fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
        }
    }
}

/// Number in the notation of results: an integer if `is_whole`, otherwise in cents. Only the last digits of a double are
/// rounded away: a value with more than cents gives `None`, and the run deviates. `files/head.py` computes in the same steps.
fn number(value: f64, is_whole: bool) -> Option<Value> {
    if is_whole {
        return (value.abs() < MAX_EXACT).then(|| Value::from(value as i64));
    }
    let cents = (value.abs() * 100.0 + 0.5).floor() / 100.0;
    let tolerance = (1e-9 + value.abs() * 1e-14).min(1e-4);
    if (value.abs() - cents).abs() > tolerance {
        return None;
    }
    serde_json::Number::from_f64(if value < 0.0 { -cents } else { cents }).map(Value::Number)
}

/// The value at a path; `null` counts as missing.
fn there(value: &Value, path: &Path) -> Option<Value> {
    at(value, path).filter(|value| !value.is_null()).cloned()
}

/// The options of each element that a question is about.
fn options(over: &Ref, results: &Ref, list: &Collection, scope: &dyn Scope) -> Option<Value> {
    let (over, results) = (over.find(scope)?.as_array()?, results.find(scope)?.as_array()?);
    let options = over.iter().zip(results).map(|(of, result)| {
        let options: Vec<Value> = list.elements(result)?.into_iter().cloned().collect();
        (!options.is_empty()).then_some(())?;
        Some(json!({"of": of, "options": options}))
    });
    options.collect::<Option<Vec<_>>>().filter(|_| over.len() == results.len()).map(Value::from)
}

impl Func {
    pub(crate) fn eval(&self, scope: &dyn Scope) -> Option<Value> {
        match self {
            Self::Records(list) => {
                let all = list.elements(scope).filter(|all| !all.is_empty())?;
                Some(all.into_iter().cloned().collect())
            }
            Self::Column { list, field } => {
                let all = list.elements(scope).filter(|all| !all.is_empty())?;
                all.iter().map(|one| there(one, field)).collect::<Option<Vec<_>>>().map(Value::from)
            }
            Self::Only { list, field, as_list } => match &list.elements(scope)?[..] {
                [one] => {
                    let value = there(one, field)?;
                    Some(if *as_list { Value::Array(vec![value]) } else { value })
                }
                _ => None,
            },
            Self::Lookup { list, key, is } => {
                let is = is.eval(scope)?;
                only(&list.elements(scope)?, key, &is).cloned()
            }
            Self::LookupAll { list, key, are } => {
                let (are, all) = (are.eval(scope)?, list.elements(scope)?);
                let found = are.as_array().filter(|are| !are.is_empty())?.iter().map(|is| only(&all, key, is).cloned());
                found.collect::<Option<Vec<_>>>().map(Value::from)
            }
            Self::Common { list, field } => {
                let all = list.elements(scope)?;
                let value = there(all.first()?, field)?;
                all.iter().all(|one| is_at(one, field, &value)).then_some(value)
            }
            Self::FirstOf(refs) => refs.iter().find_map(|one| one.eval(scope).filter(|value| !value.is_null())),
            Self::Sum { list, field } => {
                let all = list.elements(scope).filter(|all| !all.is_empty())?;
                let numbers: Vec<&Value> = all.iter().map(|one| at(one, field)).collect::<Option<_>>()?;
                let sum = numbers.iter().map(|one| one.as_f64()).sum::<Option<f64>>()?;
                number(sum, numbers.iter().all(|one| one.is_i64()))
            }
            Self::Arithmetic { op, left, right } => {
                let (left, right) = (left.eval(scope)?, right.eval(scope)?);
                number(op.apply(left.as_f64()?, right.as_f64()?), left.is_i64() && right.is_i64())
            }
            Self::Branch { on, cases } => {
                let on = on.eval(scope)?;
                cases.iter().find(|(is, _)| same(is, &on) && !on.is_null())?.1.eval(scope)
            }
            Self::Values(values) => Some(values.clone().into()),
            Self::Options { over, results, list } => options(over, results, list, scope),
            Self::Build(term) => {
                let is_there = |of: &&Ref| of.find(scope).is_some_and(|value| !value.is_null());
                term.eval(scope).filter(|_| term.refs().iter().all(is_there))
            }
            Self::Rows { list, fields } => {
                let all = list.elements(scope).filter(|all| !all.is_empty())?;
                let row = |item: &&Value| -> Option<Value> {
                    let scope = OfElement { scope, item };
                    let is_there = |of: &&Ref| of.find(&scope).is_some_and(|value| !value.is_null());
                    let value = |(name, term): &(String, Term)| {
                        term.refs().iter().all(is_there).then(|| Some((name.clone(), term.eval(&scope)?))).flatten()
                    };
                    fields.iter().map(value).collect::<Option<Map<_, _>>>().map(Value::Object)
                };
                all.iter().map(row).collect::<Option<Vec<_>>>().map(Value::from)
            }
            Self::Open(names) => Some(names.iter().map(|name| (name.clone(), Value::Null)).collect()),
        }
    }

    /// All references in the function.
    pub(crate) fn refs(&self) -> Vec<&Ref> {
        match self {
            Self::Records(list)
            | Self::Column { list, .. }
            | Self::Only { list, .. }
            | Self::Common { list, .. }
            | Self::Sum { list, .. } => vec![&list.of],
            Self::Lookup { list, is: term, .. } | Self::LookupAll { list, are: term, .. } => {
                std::iter::once(&list.of).chain(term.refs()).collect()
            }
            Self::FirstOf(refs) => refs.iter().collect(),
            Self::Arithmetic { left, right, .. } => vec![left, right],
            Self::Options { over, results, .. } => vec![over, results],
            Self::Branch { on, cases } => {
                std::iter::once(on).chain(cases.iter().flat_map(|(_, term)| term.refs())).collect()
            }
            Self::Build(term) => term.refs(),
            Self::Rows { list, fields } => {
                let of_fields = fields.iter().flat_map(|(_, term)| term.refs());
                std::iter::once(&list.of).chain(of_fields.filter(|of| of.source != Source::Item)).collect()
            }
            Self::Values(_) | Self::Open(_) => Vec::new(),
        }
    }

    /// The function with other references; a reference stays if `change` gives another term.
    pub(crate) fn map(&self, change: &dyn Fn(&Ref) -> Term) -> Self {
        let of = |reference: &Ref| match change(reference) {
            Term::Ref(reference) => reference,
            _ => reference.clone(),
        };
        let list = |list: &List| List { of: of(&list.of), kind: list.kind };
        match self {
            Self::Records(all) => Self::Records(list(all)),
            Self::Column { list: all, field } => Self::Column { list: list(all), field: field.clone() },
            Self::Only { list: all, field, as_list } => {
                Self::Only { list: list(all), field: field.clone(), as_list: *as_list }
            }
            Self::Lookup { list: all, key, is } => {
                Self::Lookup { list: list(all), key: key.clone(), is: is.map(change) }
            }
            Self::LookupAll { list: all, key, are } => {
                Self::LookupAll { list: list(all), key: key.clone(), are: are.map(change) }
            }
            Self::Common { list: all, field } => Self::Common { list: list(all), field: field.clone() },
            Self::FirstOf(refs) => Self::FirstOf(refs.iter().map(of).collect()),
            Self::Sum { list: all, field } => Self::Sum { list: list(all), field: field.clone() },
            Self::Arithmetic { op, left, right } => Self::Arithmetic { op: *op, left: of(left), right: of(right) },
            Self::Branch { on, cases } => Self::Branch {
                on: of(on),
                cases: cases.iter().map(|(is, term)| (is.clone(), term.map(change))).collect(),
            },
            Self::Options { over, results, list } => {
                Self::Options { over: of(over), results: of(results), list: list.clone() }
            }
            Self::Build(term) => Self::Build(term.map(change)),
            Self::Rows { list: all, fields } => {
                let fields = fields.iter().map(|(name, term)| (name.clone(), term.map(change)));
                Self::Rows { list: list(all), fields: fields.collect() }
            }
            Self::Values(_) | Self::Open(_) => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-12, L-70: a difference with more than cents has no value, so that the run deviates; the last digits of a double are
    /// rounded away.
    #[test]
    fn a_number_with_more_than_cents_is_not_rounded() {
        for lost in [1.125, 0.0045 - 0.001, -0.005, 1e8 + 0.125, 99.999] {
            assert_eq!(number(lost, false), None, "{lost}");
        }
        for (kept, is) in [(0.1 + 0.2, 0.3), (19.99 * 3.0, 59.97), (1e9 + 0.1 - 1e8, 900_000_000.1), (-1.1 - 2.2, -3.3)]
        {
            assert_eq!(number(kept, false), Some(is.into()));
        }
        assert_eq!(number(120.0, false), Some(120.0.into()));
        assert_eq!(number(120.0, true), Some(120.into()));
    }
}

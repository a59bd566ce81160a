//! Conditions of `when` and `require` (L-46): comparisons of one value with a written one, and nothing more; in a
//! `require` also with another value of the run.

use serde_json::{Number, Value};

use crate::data::Json;
use crate::plan::Binding;
use crate::template::{Scope, Unresolved};

/// Decides whether a step runs, or may run.
#[derive(Debug, Clone)]
pub enum Condition {
    /// True unless the value is `false`, `null`, `0`, `""`, `[]` or `{}`.
    Truthy(Binding),
    /// A value compared with a written one.
    Compare {
        /// The value.
        value: Binding,
        /// How.
        op: Op,
        /// What with.
        literal: Value,
    },
    /// A value compared with another value of the run: `require` only.
    Relate {
        /// The value.
        value: Binding,
        /// How.
        op: Op,
        /// What with.
        right: Binding,
    },
    /// All must hold.
    All(Vec<Self>),
    /// At least one must hold.
    Any(Vec<Self>),
    /// Must not hold.
    Not(Box<Self>),
}

crate::words! {
    /// A comparison.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Op {
        /// The same JSON value.
        Equals = "equals",
        /// Another JSON value.
        NotEquals = "not_equals",
        /// An element of the written array.
        In = "in",
        /// No element of the written array.
        NotIn = "not_in",
        /// There is such a value (`true`) or there is none (`false`).
        Exists = "exists",
        /// A string that the written regular expression finds.
        Matches = "matches",
        /// Greater: numbers, or strings by code point.
        Gt = "gt",
        /// Greater or equal.
        Gte = "gte",
        /// Less.
        Lt = "lt",
        /// Less or equal.
        Lte = "lte",
    }
}

impl Binding {
    /// The value in this run.
    ///
    /// # Errors
    /// A reference has no value.
    pub fn resolve(&self, scope: &dyn Scope) -> Result<Json, Unresolved> {
        match self {
            Self::Reference(reference) => reference.resolve(scope),
            Self::Template(template) => Ok(Json::string(&template.render(scope)?)),
            Self::Literal(value) => Ok(value.clone()),
        }
    }
}

impl Condition {
    /// Whether the condition holds.
    ///
    /// # Errors
    /// A reference has no value (except under `exists`), or its stored value cannot be read.
    pub fn holds(&self, scope: &dyn Scope) -> Result<bool, Unresolved> {
        match self {
            Self::Truthy(value) => is_truthy(value, scope),
            Self::Compare { value, op: Op::Exists, literal } => {
                Ok(value.resolve(scope).is_ok() == literal.as_bool().unwrap_or(true))
            }
            Self::Compare { value, op, literal } => Ok(op.compare(&tree(value, scope)?, literal)),
            Self::Relate { value, op, right } => Ok(op.compare(&tree(value, scope)?, &tree(right, scope)?)),
            Self::All(all) => all.iter().try_fold(true, |held, one| Ok(held && one.holds(scope)?)),
            Self::Any(any) => any.iter().try_fold(false, |held, one| Ok(held || one.holds(scope)?)),
            Self::Not(one) => Ok(!one.holds(scope)?),
        }
    }

    /// Whether it holds and every reference in it has a value, except under `exists`: a missing value makes the whole
    /// condition false, also where `any` or `not` would not look at it (L-46).
    pub fn is_met(&self, scope: &dyn Scope) -> bool {
        self.has_values(scope) && self.holds(scope).unwrap_or(false)
    }

    fn has_values(&self, scope: &dyn Scope) -> bool {
        let exists = |binding: &Binding| binding.resolve(scope).is_ok();
        match self {
            Self::Compare { op: Op::Exists, .. } => true,
            Self::Truthy(value) | Self::Compare { value, .. } => exists(value),
            Self::Relate { value, right, .. } => exists(value) && exists(right),
            Self::All(list) | Self::Any(list) => list.iter().all(|one| one.has_values(scope)),
            Self::Not(one) => one.has_values(scope),
        }
    }

    /// The first condition of a list that is not met; the condition itself if it is no list.
    pub fn first_unmet(&self, scope: &dyn Scope) -> &Self {
        match self {
            Self::All(list) => list.iter().find(|one| !one.is_met(scope)).map_or(self, |one| one.first_unmet(scope)),
            _ => self,
        }
    }

    /// Every value in it, those of nested conditions included, in order.
    pub fn bindings(&self) -> Vec<&Binding> {
        match self {
            Self::Truthy(value) | Self::Compare { value, .. } => vec![value],
            Self::Relate { value, right, .. } => vec![value, right],
            Self::All(list) | Self::Any(list) => list.iter().flat_map(Self::bindings).collect(),
            Self::Not(one) => one.bindings(),
        }
    }
}

fn tree(binding: &Binding, scope: &dyn Scope) -> Result<Value, Unresolved> {
    let json = binding.resolve(scope)?;
    json.value().map_err(unreadable)
}

fn unreadable(why: impl std::fmt::Display) -> Unresolved {
    Unresolved { reference: "when".to_owned(), why: why.to_string() }
}

/// Of what may be large the beginning tells: whether there are any rows can be asked of a table of any size.
fn is_truthy(binding: &Binding, scope: &dyn Scope) -> Result<bool, Unresolved> {
    let text = binding.resolve(scope)?.text().map_err(unreadable)?;
    let mut tokens = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    Ok(match tokens.next() {
        Some(b'[' | b'{') => !matches!(tokens.next(), Some(b']' | b'}')),
        Some(b'"') => text.trim() != "\"\"",
        Some(b'f' | b'n') => false,
        _ => text.trim().parse::<f64>() != Ok(0.0),
    })
}

impl Op {
    /// Whether `value` compares so with the written `literal`. [`Op::Exists`] always does: there is a value.
    pub fn compare(self, value: &Value, literal: &Value) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match self {
            Self::Equals => same(value, literal),
            Self::NotEquals => !same(value, literal),
            Self::In => literal.as_array().is_some_and(|all| all.iter().any(|one| same(value, one))),
            Self::NotIn => !Self::In.compare(value, literal),
            Self::Exists => true,
            Self::Matches => match (value.as_str(), literal.as_str()) {
                (Some(text), Some(pattern)) => regex::Regex::new(pattern).is_ok_and(|r| r.is_match(text)),
                _ => false,
            },
            Self::Gt => order(value, literal) == Some(Greater),
            Self::Gte => matches!(order(value, literal), Some(Greater | Equal)),
            Self::Lt => order(value, literal) == Some(Less),
            Self::Lte => matches!(order(value, literal), Some(Less | Equal)),
        }
    }
}

/// JSON equality: numbers by value, so that `1` equals `1.0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => compare_numbers(x, y) == Some(std::cmp::Ordering::Equal),
        _ => a == b,
    }
}

fn order(a: &Value, b: &Value) -> Option<std::cmp::Ordering> {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => compare_numbers(x, y),
        (Value::String(x), Value::String(y)) => Some(x.cmp(y)),
        _ => None,
    }
}

/// The order of two numbers by value: of whole ones to the last digit, which floating point does not have of an id.
pub fn compare_numbers(a: &Number, b: &Number) -> Option<std::cmp::Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Reference;
    use serde_json::json;

    struct Outputs(Value);
    impl Scope for Outputs {
        fn root(&self, _: &Reference) -> Result<Json, String> {
            Ok(Json::of(&self.0))
        }
    }

    fn reference(text: &str) -> Binding {
        Binding::Reference(text.parse().unwrap())
    }

    /// true unless the value is `false`, `null`, `0`, `""`, `[]`, `{}`.
    #[test]
    fn six_values_are_false_and_all_others_true() {
        let holds = |value: Value| Condition::Truthy(reference("a.output")).holds(&Outputs(value)).unwrap();
        for value in [json!(false), json!(null), json!(0), json!(0.0), json!(""), json!([]), json!({})] {
            assert!(!holds(value.clone()), "{value}");
        }
        for value in [json!(true), json!(1), json!(-0.5), json!("false"), json!([0]), json!({"k": 0})] {
            assert!(holds(value.clone()), "{value}");
        }
    }

    #[test]
    fn comparisons_do_what_their_words_say() {
        let scope = Outputs(json!({"n": 3, "s": "main"}));
        let holds = |path: &str, word: &str, literal: Value| {
            let op = Op::from_word(word).unwrap();
            Condition::Compare { value: reference(path), op, literal }.holds(&scope).unwrap()
        };
        assert!(holds("a.output.n", "equals", json!(3.0)));
        assert!(!holds("a.output.n", "not_equals", json!(3)));
        assert!(holds("a.output.s", "in", json!(["dev", "main"])));
        assert!(holds("a.output.s", "not_in", json!(["dev"])));
        assert!(holds("a.output.s", "matches", json!("^ma")));
        assert!(!holds("a.output.n", "matches", json!("3")));
        assert!(holds("a.output.n", "gt", json!(2)) && holds("a.output.n", "gte", json!(3)));
        assert!(holds("a.output.n", "lt", json!(4)) && holds("a.output.n", "lte", json!(3)));
        assert!(!holds("a.output.s", "gt", json!(1)));
        assert!(holds("a.output.x", "exists", json!(false)) && holds("a.output.n", "exists", json!(true)));
    }

    /// ids have more digits than floating point.
    #[test]
    fn whole_numbers_are_compared_to_the_last_digit() {
        let holds = |value: i64, op: Op, literal: i64| op.compare(&json!(value), &json!(literal));
        let (one, other) = (9_007_199_254_740_993, 9_007_199_254_740_992);
        assert!(holds(one, Op::Equals, one) && !holds(one, Op::Equals, other));
        assert!(holds(one, Op::Gt, other) && !holds(one, Op::Lte, other));
        assert!(!Op::In.compare(&json!(one), &json!([other, 1])));
        assert!(Op::Equals.compare(&json!(u64::MAX), &json!(u64::MAX)) && Op::Lt.compare(&json!(-1), &json!(u64::MAX)));
    }

    #[test]
    fn lists_and_negations_combine() {
        let scope = Outputs(json!(true));
        let yes = || Condition::Truthy(reference("a.output"));
        let no = || Condition::Not(Box::new(yes()));
        assert!(!Condition::All(vec![yes(), no()]).holds(&scope).unwrap());
        assert!(Condition::Any(vec![no(), yes()]).holds(&scope).unwrap());
        assert!(Condition::All(vec![]).holds(&scope).unwrap());
    }

    fn exists(path: &str, wanted: bool) -> Condition {
        Condition::Compare { value: reference(path), op: Op::Exists, literal: json!(wanted) }
    }

    /// L-46: a missing value makes a whole `require` false, wherever it stands; `exists` asks for it.
    #[test]
    fn a_requirement_with_a_missing_value_is_not_met() {
        let scope = Outputs(json!({"ok": true}));
        let yes = || Condition::Truthy(reference("a.output.ok"));
        let missing = || Condition::Truthy(reference("a.output.x"));
        let wrong = [
            missing(),
            Condition::Not(Box::new(missing())),
            Condition::Any(vec![missing(), yes()]),
            Condition::Any(vec![yes(), missing()]),
            Condition::All(vec![yes(), missing()]),
            Condition::Relate { value: reference("a.output.ok"), op: Op::NotEquals, right: reference("a.output.x") },
        ];
        assert!(wrong.iter().all(|condition| !condition.is_met(&scope)));
        assert!(yes().is_met(&scope) && exists("a.output.x", false).is_met(&scope));
        assert!(!exists("a.output.x", true).is_met(&scope));
    }

    /// L-46: two values of the run compare as a value with a written one.
    #[test]
    fn two_values_of_the_run_are_compared() {
        let scope = Outputs(json!({"a": 1, "b": 1.0, "c": 2, "list": [3, 1]}));
        let holds = |left: &str, op: Op, right: &str| {
            Condition::Relate { value: reference(left), op, right: reference(right) }.is_met(&scope)
        };
        assert!(holds("a.output.a", Op::Equals, "a.output.b") && holds("a.output.a", Op::NotEquals, "a.output.c"));
        assert!(holds("a.output.a", Op::In, "a.output.list") && holds("a.output.c", Op::NotIn, "a.output.list"));
        assert!(!holds("a.output.c", Op::In, "a.output.list") && !holds("a.output.a", Op::In, "a.output.b"));
    }

    #[test]
    fn a_missing_value_is_an_error_not_false() {
        let condition = Condition::Truthy(reference("a.output.x"));
        assert!(condition.holds(&Outputs(json!({"k": 1}))).is_err());
    }
}

//! Conditions of `when` and `require` (L-46): comparisons of one value with a literal, and nothing more. In a
//! `require` also with another value of the run.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use crate::data::{Json, ReadError};
use crate::exact::{Comparand, Exact, Literal, same};
use crate::plan::Binding;
use crate::template::{Scope, Unresolved};

/// The first version of the interpreter that compares numbers beyond 64 bits to the last digit, and numbers within lists
/// and objects by value.
const COMPARES_DIGITS: u32 = 8;

/// The first version of the interpreter that names the value that cannot be looked into; earlier versions had no such
/// value.
pub(crate) const NAMES_UNREADABLE: u32 = 8;

/// The first version of the interpreter for which only zero counts as `0`: a number that a double rounds to zero is true.
const READS_DIGITS: u32 = 13;

/// Decides whether a step runs, or may run.
#[derive(Debug, Clone)]
pub enum Condition {
    /// True unless the value is `false`, `null`, `0` in any notation, `""`, `[]` or `{}`.
    Truthy(Binding),
    /// A value compared with a literal.
    Compare {
        /// The left side: a value of the run, read when the step is about to start.
        value: Binding,
        /// The comparison; order and text comparisons need values of their type.
        op: Op,
        /// The right side, as it is written in the definition.
        literal: Literal,
    },
    /// A value compared with another value of the run: `require` only.
    Relate {
        /// The left side: a value of the run, read when the step is about to start.
        value: Binding,
        /// The comparison, as in [`Self::Compare`].
        op: Op,
        /// The right side: another value of the run.
        right: Binding,
    },
    /// All must hold.
    All(Vec<Self>),
    /// At least one must hold.
    Any(Vec<Self>),
    /// Must not hold.
    Not(Box<Self>),
}

/// Reason why a condition cannot be evaluated.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConditionError {
    /// A reference has no value.
    #[error(transparent)]
    Unresolved(#[from] Unresolved),
    /// The value exists, but cannot be read or looked into.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// A value of a run that cannot be read or looked into.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}: {why}", .binding.as_reference().unwrap_or_default())]
pub struct Unreadable {
    /// Reference or template of the value.
    pub binding: Binding,
    /// The store's reason, or the reason why the value cannot be looked into.
    pub why: ReadError,
}

crate::words! {
    /// A comparison of two values, by its word in definitions.
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
        /// The value exists (`true`) or does not (`false`).
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
    /// The reference as it is written in the definition; `None` for templates and literals.
    pub fn as_reference(&self) -> Option<String> {
        match self {
            Self::Reference(reference) => Some(format!("`{{{{{reference}}}}}`")),
            Self::Template(_) | Self::Literal(_) => None,
        }
    }

    /// The binding's value in this run.
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
    /// Evaluates the condition.
    ///
    /// # Errors
    /// A reference has no value (except under `exists`), or its value cannot be read or looked into.
    pub fn holds(&self, scope: &dyn Scope) -> Result<bool, ConditionError> {
        match self {
            Self::Truthy(value) => is_truthy(value, scope),
            Self::Compare { value, op: Op::Exists, literal } => {
                Ok(value.resolve(scope).is_ok() == literal.tree().as_bool().unwrap_or(true))
            }
            Self::Compare { value, op, literal } => {
                Ok(op.compare_with(&comparand(value, scope)?, literal, scope.abi()))
            }
            Self::Relate { value, op, right } => {
                Ok(op.relate(&comparand(value, scope)?, &comparand(right, scope)?, scope.abi()))
            }
            Self::All(all) => all.iter().try_fold(true, |held, one| Ok(held && one.holds(scope)?)),
            Self::Any(any) => any.iter().try_fold(false, |held, one| Ok(held || one.holds(scope)?)),
            Self::Not(one) => Ok(!one.holds(scope)?),
        }
    }

    /// True if the condition holds and every reference in it has a value, except under `exists`. A missing value makes
    /// the whole condition false, also where `any` or `not` would not look at it (L-46).
    ///
    /// # Errors
    /// A value cannot be read or looked into. In runs of earlier versions this made the condition false as well.
    pub fn is_met(&self, scope: &dyn Scope) -> Result<bool, ConditionError> {
        match self.has_values(scope).then(|| self.holds(scope)) {
            Some(Err(ConditionError::Unreadable(why))) if scope.abi() >= NAMES_UNREADABLE => {
                Err(ConditionError::Unreadable(why))
            }
            Some(held) => Ok(held.unwrap_or(false)),
            None => Ok(false),
        }
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

    /// The first condition of a list that is not met; the condition itself if it is not a list.
    pub fn first_unmet(&self, scope: &dyn Scope) -> &Self {
        let is_unmet = |one: &&Self| !one.is_met(scope).unwrap_or(false);
        match self {
            Self::All(list) => list.iter().find(is_unmet).map_or(self, |one| one.first_unmet(scope)),
            _ => self,
        }
    }

    /// Every value in the condition, those of nested conditions included, in order.
    pub fn bindings(&self) -> Vec<&Binding> {
        match self {
            Self::Truthy(value) | Self::Compare { value, .. } => vec![value],
            Self::Relate { value, right, .. } => vec![value, right],
            Self::All(list) | Self::Any(list) => list.iter().flat_map(Self::bindings).collect(),
            Self::Not(one) => one.bindings(),
        }
    }
}

fn comparand(binding: &Binding, scope: &dyn Scope) -> Result<Comparand, ConditionError> {
    let json = binding.resolve(scope)?;
    let value = match scope.abi() < COMPARES_DIGITS {
        true => json.value().map(Comparand::Plain),
        false => json.comparand(),
    };
    value.map_err(|why| Unreadable { binding: binding.clone(), why }.into())
}

/// Reads only the beginning of a value that may be large, so a table of any size can be tested for rows.
fn is_truthy(binding: &Binding, scope: &dyn Scope) -> Result<bool, ConditionError> {
    let unreadable = |why| Unreadable { binding: binding.clone(), why };
    let text = binding.resolve(scope)?.text().map_err(unreadable)?;
    let mut tokens = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    Ok(match tokens.next() {
        Some(b'[' | b'{') => !matches!(tokens.next(), Some(b']' | b'}')),
        Some(b'"') => text.trim() != "\"\"",
        Some(b'f' | b'n') => false,
        Some(b'-' | b'0'..=b'9') if scope.abi() >= READS_DIGITS => !is_zero(&text),
        _ => text.trim().parse::<f64>() != Ok(0.0),
    })
}

/// True if a JSON number has no digit but zeros before its exponent: zero, whatever its sign and its notation.
pub(crate) fn is_zero(number: &str) -> bool {
    !number.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).any(|byte| matches!(byte, b'1'..=b'9'))
}

/// A value in the form that comparisons need.
trait Operand: Sized {
    fn is_same(&self, other: &Self) -> bool;
    fn order(&self, other: &Self) -> Option<Ordering>;
    fn elements(&self) -> Option<&[Self]>;
    fn as_text(&self) -> Option<&str>;
}

impl Operand for Value {
    fn is_same(&self, other: &Self) -> bool {
        same(self, other)
    }

    fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(x), Self::Number(y)) => compare_numbers(x, y),
            (Self::String(x), Self::String(y)) => Some(x.cmp(y)),
            _ => None,
        }
    }

    fn elements(&self) -> Option<&[Self]> {
        self.as_array().map(Vec::as_slice)
    }

    fn as_text(&self) -> Option<&str> {
        self.as_str()
    }
}

impl Operand for Exact {
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(x), Self::Number(y)) => Some(x.cmp(y)),
            (Self::Text(x), Self::Text(y)) => Some(x.cmp(y)),
            _ => None,
        }
    }

    fn elements(&self) -> Option<&[Self]> {
        match self {
            Self::List(elements) => Some(elements),
            _ => None,
        }
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Op {
    /// Compares `value` with the literal, in a run that version `abi` of the interpreter began. [`Op::Exists`] is
    /// always true: there is a value.
    pub fn compare(self, value: &Value, literal: &Value, abi: u32) -> bool {
        match self {
            _ if abi >= COMPARES_DIGITS => self.holds(value, literal),
            Self::Equals => is_same_outside(value, literal),
            Self::NotEquals => !is_same_outside(value, literal),
            Self::In => literal.as_array().is_some_and(|all| all.iter().any(|one| is_same_outside(value, one))),
            Self::NotIn => !Self::In.compare(value, literal, abi),
            _ => self.holds(value, literal),
        }
    }

    /// Like [`Self::compare`], for a value that may have long numbers.
    fn compare_with(self, value: &Comparand, literal: &Literal, abi: u32) -> bool {
        match (value, literal.exact()) {
            (Comparand::Plain(value), exact) if exact.is_none() || abi < COMPARES_DIGITS => {
                self.compare(value, literal.tree(), abi)
            }
            (value, Some(literal)) => value.exact().is_some_and(|value| self.holds(&value, literal)),
            (value, None) => {
                let exact = (value.exact(), Comparand::Plain(literal.tree().clone()).exact());
                matches!(exact, (Some(value), Some(literal)) if self.holds(&value, &literal))
            }
        }
    }

    /// Like [`Self::compare`], for two values of the run.
    fn relate(self, value: &Comparand, right: &Comparand, abi: u32) -> bool {
        if let (Comparand::Plain(value), Comparand::Plain(right)) = (value, right) {
            return self.compare(value, right, abi);
        }
        matches!((value.exact(), right.exact()), (Some(value), Some(right)) if self.holds(&value, &right))
    }

    fn holds<T: Operand>(self, value: &T, literal: &T) -> bool {
        use Ordering::{Equal, Greater, Less};
        match self {
            Self::Equals => value.is_same(literal),
            Self::NotEquals => !value.is_same(literal),
            Self::In => literal.elements().is_some_and(|all| all.iter().any(|one| value.is_same(one))),
            Self::NotIn => !Self::In.holds(value, literal),
            Self::Exists => true,
            Self::Matches => match (value.as_text(), literal.as_text()) {
                (Some(text), Some(pattern)) => regex::Regex::new(pattern).is_ok_and(|r| r.is_match(text)),
                _ => false,
            },
            Self::Gt => value.order(literal) == Some(Greater),
            Self::Gte => matches!(value.order(literal), Some(Greater | Equal)),
            Self::Lt => value.order(literal) == Some(Less),
            Self::Lte => matches!(value.order(literal), Some(Less | Equal)),
        }
    }
}

/// Comparison of versions before [`COMPARES_DIGITS`]: numbers by value, but numbers within lists and objects by their form.
fn is_same_outside(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => compare_numbers(x, y) == Some(Ordering::Equal),
        _ => a == b,
    }
}

/// The order of two numbers of trees by value. Whole numbers are compared to the last digit, which a double does not
/// keep of a long id.
pub fn compare_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

#[cfg(test)]
mod tests;

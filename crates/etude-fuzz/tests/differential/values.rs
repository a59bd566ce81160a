//! The values that a step sees: references, templates and conditions.

use serde_json::{Map, Value, json};

use crate::definition::{Binding, Condition, Op, Piece, Reference, Template};

/// The error of a reference without a value.
#[derive(Debug)]
pub(crate) struct Missing;

/// The values of a pipeline so far.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) input: Map<String, Value>,
    /// Outputs of the steps that are over, in order.
    pub(crate) steps: Map<String, Value>,
    /// The element of the innermost `for_each`, with its index.
    pub(crate) item: Option<(Value, usize)>,
    /// Values that only constructor and destructor receive.
    pub(crate) about_run: Map<String, Value>,
}

impl Scope {
    /// The scope of a called pipeline: its own input, and of its caller only the values for everything below constructor and
    /// destructor.
    pub(crate) fn below(&self, input: Map<String, Value>) -> Self {
        Self { input, steps: Map::new(), item: None, about_run: self.about_run.clone() }
    }

    /// The stdin of a script; inside `for_each` also with `item` and `index`.
    pub(crate) fn stdin(&self) -> Map<String, Value> {
        let steps: Map<String, Value> =
            self.steps.iter().map(|(name, output)| (name.clone(), json!({ "output": output }))).collect();
        let mut stdin = Map::new();
        stdin.insert("input".to_owned(), Value::Object(self.input.clone()));
        stdin.insert("steps".to_owned(), Value::Object(steps));
        if let Some((item, index)) = &self.item {
            stdin.insert("item".to_owned(), item.clone());
            stdin.insert("index".to_owned(), (*index).into());
        }
        stdin.extend(self.about_run.clone());
        stdin
    }

    pub(crate) fn value(&self, reference: &Reference) -> Result<Value, Missing> {
        let (root, path) = match reference {
            Reference::Input { name, path } => (self.input.get(name).cloned(), path.as_slice()),
            Reference::Output { step, path } => (self.steps.get(step).cloned(), path.as_slice()),
            Reference::Item { path } => (self.item.as_ref().map(|(item, _)| item.clone()), path.as_slice()),
            Reference::Index => (self.item.as_ref().map(|(_, index)| (*index).into()), &[][..]),
        };
        let below = |value: Value, part: &String| match (value, part.parse::<usize>()) {
            (Value::Array(items), Ok(index)) => items.get(index).cloned(),
            (Value::Object(members), _) => members.get(part).cloned(),
            _ => None,
        };
        path.iter().try_fold(root.ok_or(Missing)?, |value, part| below(value, part).ok_or(Missing))
    }

    /// Renders a template: a string is inserted unchanged, every other value as compact JSON. Inserted text is not parsed
    /// again.
    pub(crate) fn text(&self, template: &Template) -> Result<String, Missing> {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => Ok(text.clone()),
            Piece::Reference(reference) => Ok(match self.value(reference)? {
                Value::String(text) => text,
                other => other.to_string(),
            }),
        };
        template.iter().map(piece).collect()
    }

    pub(crate) fn bound(&self, binding: &Binding) -> Result<Value, Missing> {
        match binding {
            Binding::Literal(value) => Ok(value.clone()),
            Binding::Reference(reference) => self.value(reference),
            Binding::Text(template) => Ok(self.text(template)?.into()),
        }
    }

    /// Evaluates the condition of a `when`. A missing value is an error if the condition depends on it: lists are read from
    /// left to right until they are decided. (The extensions leave open how many members of a list are read.)
    pub(crate) fn holds(&self, condition: &Condition) -> Result<bool, Missing> {
        Ok(match condition {
            Condition::Truthy(value) => is_truthy(&self.value(value)?),
            Condition::Exists(value, wanted) => self.value(value).is_ok() == *wanted,
            Condition::Compare { value, op, with } => compares(&self.value(value)?, *op, with),
            Condition::Same(value, other) => is_same(&self.value(value)?, &self.value(other)?),
            Condition::All(all) => {
                for one in all {
                    if !self.holds(one)? {
                        return Ok(false);
                    }
                }
                true
            }
            Condition::Any(any) => {
                for one in any {
                    if self.holds(one)? {
                        return Ok(true);
                    }
                }
                false
            }
            Condition::Not(one) => !self.holds(one)?,
        })
    }

    /// Evaluates the condition of a `require`: a missing value makes the whole condition false, also inside `not` and `any`.
    pub(crate) fn meets(&self, condition: &Condition) -> bool {
        self.has_all(condition) && self.holds(condition).unwrap_or(false)
    }

    fn has_all(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Exists(..) => true,
            Condition::Truthy(value) | Condition::Compare { value, .. } => self.value(value).is_ok(),
            Condition::Same(value, other) => self.value(value).is_ok() && self.value(other).is_ok(),
            Condition::All(list) | Condition::Any(list) => list.iter().all(|one| self.has_all(one)),
            Condition::Not(one) => self.has_all(one),
        }
    }
}

/// True unless the value is `false`, `null`, `0`, `""`, `[]` or `{}`.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// True if two values are equal; numbers are compared by value.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |(name, value): (&String, &Value)| other.get(name).is_some_and(|other| is_same(value, other));
            one.len() == other.len() && one.iter().all(has)
        }
        _ => one == other,
    }
}

/// Compares two values. Only numbers have an order. (The extensions leave other types open.)
fn compares(value: &Value, op: Op, with: &Value) -> bool {
    let is_in = || with.as_array().is_some_and(|all| all.iter().any(|one| is_same(value, one)));
    let order = || value.as_f64()?.partial_cmp(&with.as_f64()?);
    match op {
        Op::Equals => is_same(value, with),
        Op::NotEquals => !is_same(value, with),
        Op::In => is_in(),
        Op::NotIn => !is_in(),
        Op::Gt => order().is_some_and(std::cmp::Ordering::is_gt),
        Op::Lte => order().is_some_and(std::cmp::Ordering::is_le),
    }
}

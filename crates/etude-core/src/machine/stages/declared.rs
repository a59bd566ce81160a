//! Declarative hooks: values from paths, and the tests of `when` (`b-stages` §20.3).

use serde_json::{Map, Value};

use crate::condition::Op;
use crate::placeholder::follow;
use crate::plan::stages::{Path, Root, Rule, Source, Test};

/// Source of the values for the roots of paths.
pub(super) trait Roots {
    /// The version of the interpreter that began the run.
    fn abi(&self) -> u32;

    /// The value of a root; `None` if there is none.
    fn root(&self, root: Root) -> Option<Value>;
}

/// The value at a path; `None` if there is none.
pub(super) fn at(roots: &dyn Roots, path: &Path) -> Option<Value> {
    follow(&roots.root(path.root)?, &path.segments).cloned()
}

/// Names with their values; `null` for a missing value.
pub(super) fn members(roots: &dyn Roots, list: &[(String, Source)]) -> Map<String, Value> {
    list.iter().map(|(name, source)| (name.clone(), value(roots, source))).collect()
}

pub(super) fn value(roots: &dyn Roots, source: &Source) -> Value {
    match source {
        Source::Literal(value) => value.clone(),
        Source::From(path) => at(roots, path).unwrap_or_default(),
    }
}

/// True if all tests hold.
pub(super) fn hold(roots: &dyn Roots, tests: &[Test]) -> bool {
    tests.iter().all(|test| {
        let found = at(roots, &test.path);
        match (test.op, found) {
            (Op::Exists, found) => found.is_some() == test.literal.as_bool().unwrap_or(true),
            (Op::NotEquals, None) => true,
            (_, None) => false,
            (op, Some(value)) => op.compare(&value, &test.literal, roots.abi()),
        }
    })
}

/// The first rule that holds.
pub(super) fn decide<'r, T>(roots: &dyn Roots, rules: &'r [Rule<T>]) -> Option<&'r Rule<T>> {
    rules.iter().find(|rule| hold(roots, &rule.when))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Segment;
    use serde_json::json;

    struct Given(Value);

    impl Roots for Given {
        fn abi(&self) -> u32 {
            crate::machine::ABI
        }

        fn root(&self, root: Root) -> Option<Value> {
            self.0.get(root.word()).cloned()
        }
    }

    fn path(root: Root, names: &[&str]) -> Path {
        Path { root, segments: names.iter().map(|name| Segment::Field((*name).to_owned())).collect() }
    }

    /// B-20.3: a test of a missing value holds only for `notEquals` and `exists: false`.
    #[test]
    fn tests_about_missing_values_are_decided() {
        let given = Given(json!({"slot": {"n": 2, "s": "fix it"}}));
        let holds = |name: &str, op, literal| hold(&given, &[Test { path: path(Root::Slot, &[name]), op, literal }]);
        assert!(holds("n", Op::Gt, json!(1)) && !holds("n", Op::Lt, json!(1)) && holds("n", Op::In, json!([2, 3])));
        assert!(holds("s", Op::Matches, json!("^fix")) && !holds("x", Op::Matches, json!("")));
        assert!(holds("x", Op::Exists, json!(false)) && holds("x", Op::NotEquals, json!(1)));
        assert!(!holds("x", Op::Equals, json!(null)) && !holds("n", Op::Exists, json!(false)));
    }

    /// B-20.3: literals are taken as written, and missing values become `null`.
    #[test]
    fn values_are_taken_from_their_sources() {
        let given = Given(json!({"input": {"task": "T1"}}));
        let list = [
            ("a".to_owned(), Source::From(path(Root::Input, &["task"]))),
            ("b".to_owned(), Source::From(path(Root::Parsed, &["x"]))),
            ("c".to_owned(), Source::Literal(json!({"lit": [1]}))),
        ];
        assert_eq!(Value::Object(members(&given, &list)), json!({"a": "T1", "b": null, "c": {"lit": [1]}}));
    }
}

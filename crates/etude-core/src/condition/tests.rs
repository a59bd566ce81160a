use super::*;
use crate::template::Reference;
use serde_json::json;

/// The version of the comparisons in these tests.
const ABI: u32 = COMPARES_DIGITS;

struct Outputs(Value);
impl Scope for Outputs {
    fn root(&self, _: &Reference) -> Result<Json, String> {
        Ok(Json::of(&self.0))
    }
}

fn reference(text: &str) -> Binding {
    Binding::Reference(text.parse().unwrap())
}

/// X-1: true unless the value is `false`, `null`, `0`, `""`, `[]`, `{}`.
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

/// X-1: only zero is false, in every notation: not a number that a double rounds to zero. It was false in runs of
/// earlier versions.
#[test]
fn only_zero_is_a_false_number() {
    let holds = |text, abi| Condition::Truthy(reference("a.output")).holds(&Texts(text, abi)).unwrap();
    for zero in ["0", "-0", "0.0", "-0.0", "0e5", "-0.00E+999999999999999999999", "0e-400", " 0 "] {
        assert!(!holds(zero, READS_DIGITS) && !holds(zero, READS_DIGITS - 1), "{zero}");
    }
    for other in ["1", "-0.5", "1e400", "-1e400", "1e99999999999999999999", "10", "0.10", "123456789012345678901"] {
        assert!(holds(other, READS_DIGITS) && holds(other, READS_DIGITS - 1), "{other}");
    }
    for small in ["1e-400", "-1E-400", "0.001e-399", "1e-99999999999999999999"] {
        assert!(holds(small, READS_DIGITS) && !holds(small, READS_DIGITS - 1), "{small}");
    }
}

#[test]
fn comparisons_do_what_their_words_say() {
    let scope = Outputs(json!({"n": 3, "s": "main"}));
    let holds = |path: &str, word: &str, literal: Value| {
        let op = Op::from_word(word).unwrap();
        Condition::Compare { value: reference(path), op, literal: literal.into() }.holds(&scope).unwrap()
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

/// A-3.3: ids have more digits than floating point.
#[test]
fn whole_numbers_are_compared_to_the_last_digit() {
    let holds = |value: i64, op: Op, literal: i64| op.compare(&json!(value), &json!(literal), ABI);
    let (one, other) = (9_007_199_254_740_993, 9_007_199_254_740_992);
    assert!(holds(one, Op::Equals, one) && !holds(one, Op::Equals, other));
    assert!(holds(one, Op::Gt, other) && !holds(one, Op::Lte, other));
    assert!(!Op::In.compare(&json!(one), &json!([other, 1]), ABI));
    let most = json!(u64::MAX);
    assert!(Op::Equals.compare(&most, &most, ABI) && Op::Lt.compare(&json!(-1), &most, ABI));
}

struct Texts(&'static str, u32);
impl Scope for Texts {
    fn root(&self, _: &Reference) -> Result<Json, String> {
        Ok(Json::trusted(self.0))
    }

    fn abi(&self) -> u32 {
        self.1
    }
}

/// A-3.3: numbers beyond 64 bits are compared to the last digit; runs of earlier versions compare as they did.
#[test]
fn numbers_of_any_size_are_compared_to_the_last_digit() {
    let text = r#"{"a": 123456789012345678901, "b": 123456789012345678902, "l": [123456789012345678901]}"#;
    let relates = |left: &str, op: Op, right: &str, abi: u32| {
        Condition::Relate { value: reference(left), op, right: reference(right) }.is_met(&Texts(text, abi)).unwrap()
    };
    assert!(!relates("a.output.a", Op::Equals, "a.output.b", ABI));
    assert!(relates("a.output.a", Op::Equals, "a.output.b", 7));
    assert!(relates("a.output.a", Op::In, "a.output.l", ABI) && relates("a.output.b", Op::NotIn, "a.output.l", ABI));
    let compares = |path: &str, op: Op, literal: &str, abi: u32| {
        let literal = Literal::from_json(&Json::trusted(literal)).unwrap();
        Condition::Compare { value: reference(path), op, literal }.is_met(&Texts(text, abi)).unwrap()
    };
    assert!(compares("a.output.a", Op::Gt, "123456789012345678900", ABI));
    assert!(!compares("a.output.a", Op::Gt, "123456789012345678900", 7));
    assert!(compares("a.output.a", Op::Lte, "123456789012345678901", ABI));
    assert!(compares("a.output.a", Op::In, "[1, 123456789012345678901]", ABI));
    assert!(compares("a.output.a", Op::NotEquals, "1", ABI) && compares("a.output.a", Op::Gt, "7", ABI));
}

/// JSON equality is by value at every depth; earlier versions compared the form of a number within a list.
#[test]
fn numbers_in_lists_and_objects_are_compared_by_value() {
    let holds = |value: Value, op: Op, literal: Value, abi: u32| op.compare(&value, &literal, abi);
    for (value, literal) in [(json!([1]), json!([1.0])), (json!({"k": [1.0]}), json!({"k": [1]}))] {
        assert!(holds(value.clone(), Op::Equals, literal.clone(), ABI));
        assert!(!holds(value.clone(), Op::NotEquals, literal.clone(), ABI));
        assert!(holds(value.clone(), Op::In, json!([0, literal]), ABI));
        assert!(!holds(value.clone(), Op::Equals, literal.clone(), 7) && holds(value, Op::NotIn, json!([literal]), 7));
    }
    assert!(!holds(json!({"k": 1}), Op::Equals, json!({"j": 1}), ABI));
    assert!(!holds(json!([1]), Op::Equals, json!([1, 1]), ABI));
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
    Condition::Compare { value: reference(path), op: Op::Exists, literal: json!(wanted).into() }
}

/// L-46: a missing value makes a whole `require` false, at any place in it; `exists` tests for it.
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
    assert!(wrong.iter().all(|condition| !condition.is_met(&scope).unwrap()));
    assert!(yes().is_met(&scope).unwrap() && exists("a.output.x", false).is_met(&scope).unwrap());
    assert!(!exists("a.output.x", true).is_met(&scope).unwrap());
}

/// L-46: two values of the run compare like a value and a literal.
#[test]
fn two_values_of_the_run_are_compared() {
    let scope = Outputs(json!({"a": 1, "b": 1.0, "c": 2, "list": [3, 1]}));
    let holds = |left: &str, op: Op, right: &str| {
        Condition::Relate { value: reference(left), op, right: reference(right) }.is_met(&scope).unwrap()
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

/// A-3.4: an output that cannot be looked into is reported as such, not as a missing value.
#[test]
fn a_value_that_cannot_be_looked_into_is_said_to_be_one() {
    let compare = Condition::Compare { value: reference("a.output"), op: Op::Equals, literal: json!(1).into() };
    for text in [r#""\ud800""#, r#"["\ud800", 12345678901234567890123]"#] {
        let scope = Texts(text, ABI);
        assert!(matches!(compare.holds(&scope), Err(ConditionError::Unreadable(_))));
        assert!(compare.is_met(&scope).is_err() && !compare.is_met(&Texts(text, 7)).unwrap());
    }
    assert!(!compare.is_met(&Texts("1e400", ABI)).unwrap() && compare.holds(&Texts("1e400", 7)).is_err());
}

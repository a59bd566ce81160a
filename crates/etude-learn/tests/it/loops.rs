//! Loops of 2.4: calls that have several arguments of each element of a list, and nested ones.

use etude_learn::Candidate;
use serde_json::{Value, json};

use crate::shop::{Run, User, binding, one};

/// Parts of an order, as its document has them.
fn parts(n: usize, count: usize, amount: impl Fn(usize) -> usize) -> Vec<Value> {
    (0..count).map(|k| json!({"id": format!("P-{}{k}3", n + 10), "amount": amount(k), "kind": "new"})).collect()
}

/// Run that pays the parts `paid` of an order that has the parts `all`.
fn paying(n: usize, words: &str, (all, paid): (&[Value], &[Value]), call: impl Fn(&Value) -> Value) -> Run {
    let order = User(n).order(0);
    let run = Run::new(n, &format!("{words} {order}")).call(
        "get_order",
        json!({"order_id": order}),
        json!({"order_id": order, "parts": all}),
    );
    paid.iter().fold(run, |run, part| run.call("pay_order", call(part), json!("ok")))
}

fn write(candidate: &Candidate) -> Value {
    let steps = candidate.definition["steps"].as_array().expect("steps");
    steps.iter().find(|step| step["tool"] == "pay_order").expect("the write").clone()
}

fn both(part: &Value) -> Value {
    json!({"id": part["id"], "amount": part["amount"]})
}

/// L-16: a call for each element with several of its fields is one `for_each`, also where the number of elements differs.
#[test]
fn calls_with_several_fields_of_each_element_are_one_step() {
    let run = |n: usize| {
        let all = parts(n, 2 + n % 2, |k| 125 * (n + 1) + 10 * k);
        paying(n, "Pay all parts of", (&all, &all), both)
    };
    let candidate = one(&[run(0), run(1), run(2), run(3)]);
    assert_eq!((candidate.covers.len(), candidate.not_covered.len()), (4, 0), "{:?}", candidate.not_covered);
    let step = write(&candidate);
    assert_eq!(step["for_each"], json!("{{pay_order_calls.output}}"));
    assert_eq!(step["args"], json!({"id": "{{item.id}}", "amount": "{{item.amount}}"}));
    assert_eq!(binding(&candidate, "/amount"), ("element".into(), "{{item.amount}}".into(), "only_alternative".into()));
    let python = &candidate.files["steps/bindings.py"];
    assert!(python.contains(r#"{"id": at(one, "id"), "amount": at(one, "amount")}"#), "{python}");
    let yaml = &candidate.files["pipeline.yaml"];
    assert!(!yaml.contains("- id: {{item"), "the question before the write is outside of the loop: {yaml}");
    assert!(candidate.holes.is_empty() && candidate.leave_one_out.agreed == 4, "{:?}", candidate.leave_one_out);
}

/// L-23: if only some elements of a list are meant, they are asked for by the field that names them.
#[test]
fn some_elements_are_asked_for() {
    let run = |n: usize| {
        let all = parts(n, 3, |k| 125 * (n + 1) + 10 * k);
        paying(n, "Pay what is due of", (&all, &all[n % 2..][..2]), both)
    };
    let candidate = one(&[run(0), run(1), run(2), run(3)]);
    assert_eq!((candidate.covers.len(), candidate.questions.len()), (4, 1), "{:?}", candidate.not_covered);
    let steps = candidate.definition["steps"].as_array().expect("steps");
    let question = steps.iter().find(|step| step["choose"].is_object()).expect("a question");
    assert_eq!(question["choose"], json!({"from": "{{get_order.output.parts}}", "by": "id", "many": true}));
    assert_eq!(write(&candidate)["args"]["amount"], json!("{{item.amount}}"));
    assert!(candidate.holes.iter().all(|hole| !hole.set.is_null()), "{:?}", candidate.holes);
}

/// L-16: a value that all calls of a run have in common comes from the element, if each element has it under that name.
#[test]
fn a_value_that_calls_of_a_run_have_in_common_is_that_of_the_element() {
    let run = |n: usize| {
        let all = parts(n, 2, |_| 125 * (n + 1));
        paying(n, "Pay all parts of", (&all, &all), both)
    };
    let candidate = one(&[run(0), run(1), run(2), run(3)]);
    assert_eq!((candidate.covers.len(), candidate.questions.len()), (4, 0), "{:?}", candidate.not_covered);
    assert_eq!(write(&candidate)["args"]["amount"], json!("{{item.amount}}"));
}

/// 2.8: values of different elements do not form a row, so that no loop makes another write than a run.
#[test]
fn values_of_different_elements_are_no_row() {
    let run = |n: usize| {
        let all = parts(n, 2, |k| 125 * (n + 1) + 10 * k);
        let mixed = [
            json!({"id": all[0]["id"], "amount": all[1]["amount"]}),
            json!({"id": all[1]["id"], "amount": all[0]["amount"]}),
        ];
        paying(n, "Pay all parts of", (&all, &mixed), both)
    };
    let candidate = one(&[run(0), run(1), run(2), run(3)]);
    assert_eq!((candidate.covers.len(), candidate.not_covered.len()), (0, 4));
    assert_eq!(write(&candidate)["for_each"], Value::Null);
}

/// 1.4: an argument with a part from the element of a loop is made by code for each call.
#[test]
fn nested_arguments_of_elements_are_built_for_each_call() {
    let run = |n: usize| {
        let all = parts(n, 2 + n % 2, |k| 125 * (n + 1) + 10 * k);
        paying(n, "Pay all parts of", (&all, &all), |part| json!({"of": {"part": part["id"], "kind": "{{x}}"}}))
    };
    let candidate = one(&[run(0), run(1), run(2), run(3)]);
    assert_eq!((candidate.covers.len(), candidate.not_covered.len()), (4, 0), "{:?}", candidate.not_covered);
    let step = write(&candidate);
    assert_eq!(
        (&step["for_each"], &step["args"]),
        (&json!("{{pay_order_calls.output}}"), &json!({"of": "{{item.of}}"}))
    );
    let python = &candidate.files["steps/bindings.py"];
    assert!(python.contains(r#"{"of": {"part": at(one), "kind": "{{x}}"}} if whole([at(one)])"#), "{python}");
}

/// L-22: an argument with a part that nothing determines is open as a whole, and the run deviates before the write.
#[test]
fn a_nested_argument_with_an_open_part_is_open() {
    let codes = ["k71x", "9qqz", "m33a", "t0pp"];
    let run = |n: usize| {
        let order = User(n).order(0);
        let to = json!({"order": order, "code": codes[n]});
        Run::new(n, &format!("Pay {order}")).call("pay_order", json!({"to": to}), json!("ok"))
    };
    let candidate = one(&[run(0), run(1), run(2), run(3)]);
    assert_eq!(write(&candidate)["args"], json!({"to": "{{open_hole.output.to}}"}));
    assert!(
        candidate.holes.iter().any(|hole| hole.set.is_null() && hole.argument == "/to/code"),
        "{:?}",
        candidate.holes
    );
}

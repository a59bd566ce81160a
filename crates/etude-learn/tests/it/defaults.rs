//! Values that are not filled in without the user's words: in other notations, dates, and values that requests differ in. A
//! part of a run's writes does not count as agreed.

use serde_json::{Value, json};

use crate::shop::{Run, Shop, User, binding, learned, one};

/// A run that pays an order; `words` and the result have the amount in their own ways.
fn paying(n: usize, words: &str, arguments: &Value, result: &Value) -> Run {
    let user = User(n);
    let mut order = user.order_document(0, "delivered");
    let mut call = json!({"order_id": user.order(0)});
    for (whole, part) in [(&mut order, result), (&mut call, arguments)] {
        for (name, value) in part.as_object().into_iter().flatten() {
            whole[name.as_str()] = value.clone();
        }
    }
    Run::new(n, &format!("Pay {words} for {}", user.order(0)))
        .call("get_order", json!({"order_id": user.order(0)}), order)
        .call("pay_order", call, json!("ok"))
}

/// L-14: a number that the user said in another notation comes from the user, also if a result has the same number.
#[test]
fn a_number_in_another_notation_is_said() {
    type Notation = fn(usize) -> String;
    let notations: [Notation; 5] = [
        |n| format!("1{n}11.50"),
        |n| format!("$1,{n}11.50"),
        |n| format!("1{n}11,50 EUR"),
        |n| format!("1 {n}11.5"),
        |n| format!("1.{n}11,5"),
    ];
    for notation in notations {
        let run = |n: usize| {
            let amount = json!(1011.5 + 100.0 * n as f64);
            paying(n, &notation(n), &json!({"amount": amount}), &json!({"open": amount}))
        };
        let candidate = one(&[run(1), run(2), run(3), run(4)]);
        let row = binding(&candidate, "/amount");
        assert_eq!((row.0.as_str(), row.2.as_str()), ("input", "words_first"), "{} {row:?}", notation(1));
    }
}

/// L-24: a day or number that one user said in any notation is never taken from a result for others.
#[test]
fn a_day_in_another_notation_is_not_derived() {
    let days: [fn(usize) -> String; 4] = [
        |n| format!("on May {n}, 2026"),
        |n| format!("on {n}.05.2026"),
        |n| format!("on 05/{n}/2026"),
        |n| format!("on {n} May"),
    ];
    for day in days {
        let run = |n: usize, words: &str| {
            let date = json!(format!("2026-05-{}", n + 20));
            paying(n, words, &json!({"date": date}), &json!({"proposed": date}))
        };
        let source = |runs: &[Run]| binding(&one(runs), "/date").0;
        let unsaid = [run(1, "it"), run(2, "it"), run(3, "it"), run(4, "it")];
        assert_eq!(source(&unsaid), "result");
        assert_eq!(source(&[run(1, &day(21)), run(2, "it"), run(3, "it"), run(4, "it")]), "question", "{}", day(21));
    }
}

/// Trap 13: a point in time that all runs had in common is past when the pipeline runs, in any form: it is an open hole.
#[test]
fn a_point_in_time_is_not_a_constant() {
    let run = |n: usize, value: &Value, words: &str| paying(n, words, &json!({"at": value}), &json!({}));
    let runs = |value: &Value, words: &str| -> Vec<Run> { (0..4).map(|n| run(n, value, words)).collect() };
    let values = [
        json!("2026-11-28"),
        json!("2026-11-28T10:30:00Z"),
        json!(1_764_000_000),
        json!(1_764_000_000_123_u64),
        json!("10:30"),
    ];
    for value in &values {
        assert_eq!(one(&runs(value, "it")).holes[0].set, Value::Null, "{value}");
    }
    let words = json!("closed on 2026-11-28");
    assert_eq!(one(&runs(&words, "it")).holes[0].set, Value::Null);
    let composed: Vec<Run> =
        (0..4).map(|n| run(n, &json!(format!("{} of 2026-11-28", User(n).order(0))), "it")).collect();
    assert_eq!(one(&composed).holes[0].set, Value::Null);
    // Seen three times each, and still past.
    let several: Vec<Run> = (0..8).map(|n| run(n, &json!(format!("2026-11-2{}", n % 2)), "it")).collect();
    assert_eq!(one(&several).holes[0].set, Value::Null);
    assert_eq!(binding(&one(&runs(&json!("gold"), "it")), "/at").0, "constant");
    assert_eq!(binding(&one(&runs(&values[0], "it on 2026-11-28")), "/at").0, "input");
}

/// Trap 13: a value that the schema of the tool names is not taken for a point in time.
#[test]
fn a_point_in_time_of_the_schema_is_a_constant() {
    let runs: Vec<Run> = (0..4).map(|n| paying(n, "it", &json!({"at": "2030-01-01"}), &json!({}))).collect();
    for schema in [json!({"enum": ["2030-01-01", "2031-01-01"]}), json!({"const": "2030-01-01"})] {
        let shop = Shop { schema: json!({"properties": {"at": schema}}), ..Shop::default() };
        let found = learned(&runs, &shop);
        assert_eq!(binding(&found.candidates[0], "/at").0, "constant");
    }
}

/// L-26: values that requests themselves name are asked for, even if another field differs in the same way.
#[test]
fn requests_that_differ_make_no_branch() {
    let run = |n: usize, words: &str, to: &str| {
        paying(n, words, &json!({"to": to}), &json!({"newsletter": to == "card", "kind": format!("kind_{to}_x")}))
    };
    let apart: Vec<Run> = (0..8)
        .map(|n| if n % 2 == 0 { run(n, "my money back", "card") } else { run(n, "a credit note", "voucher") })
        .collect();
    let candidate = one(&apart);
    assert_eq!(
        (binding(&candidate, "/to").0.as_str(), &candidate.holes[0].set),
        ("question", &json!(["card", "voucher"]))
    );
    let few = one(&apart[..4]);
    assert_eq!(few.holes[0].set, Value::Null);
    let alike: Vec<Run> = (0..8).map(|n| run(n, "it", ["card", "voucher"][n % 2])).collect();
    assert_eq!(binding(&one(&alike), "/to").0, "computed");
}

/// Trap 13: a truth value is not bound as the opposite of another one because runs had it so.
#[test]
fn a_truth_value_is_not_a_branch() {
    let run = |n: usize| {
        let is_on = n.is_multiple_of(2);
        paying(n, if is_on { "lamp on" } else { "lamp off" }, &json!({"on": is_on}), &json!({"was_on": !is_on}))
    };
    let candidate = one(&(0..8).map(run).collect::<Vec<_>>());
    assert_eq!(candidate.holes[0].set, json!([false, true]));
    let few = one(&(0..4).map(run).collect::<Vec<_>>());
    assert_eq!(few.holes[0].set, Value::Null);
}

/// Trap 8, 2.10: a pipeline that makes one of two writes of a run does not do what was asked. It is learned from the run, and falls back.
#[test]
fn a_part_of_a_run_is_not_agreed() {
    let both = |n: usize| {
        let user = User(n);
        paying(n, "and tag it", &json!({}), &json!({})).call(
            "tag_order",
            json!({"order_id": user.order(0)}),
            json!("ok"),
        )
    };
    let found = learned(&(0..4).map(both).collect::<Vec<_>>(), &Shop::default());
    assert_eq!(found.candidates.len(), 2);
    for candidate in &found.candidates {
        let counts = candidate.leave_one_out;
        assert_eq!((counts.agreed, counts.fell_back, candidate.not_covered.len()), (0, 4, 4), "{}", candidate.name);
    }
    let alone = |n: usize| paying(n, "it", &json!({}), &json!({}));
    let runs = [alone(0), alone(1), alone(2), both(3), both(4)];
    let found = learned(&runs, &Shop::default());
    let candidate = &found.candidates[0];
    assert_eq!((candidate.family.as_str(), candidate.covers.len(), candidate.requests), ("pay_order", 3, 5));
    assert_eq!((candidate.leave_one_out.agreed, candidate.leave_one_out.fell_back), (3, 2));
    let difference = &candidate.not_covered[0]["difference"];
    assert_eq!((&difference["got"], difference["expected"].as_array().map(Vec::len)), (&json!("not_allowed"), Some(2)));
    let case = candidate.not_covered[0]["digest"]
        .as_str()
        .and_then(|digest| candidate.files.get(&format!("tests/{digest}.yaml")));
    assert!(
        case.is_some_and(|case| case.contains("reason: not_allowed") && case.contains("allowed: \"no\"")),
        "{case:?}"
    );
}

/// 1.3, 2.1: numbers are compared by value: an agent that writes 120 where the result has 120.0 has taken it from there.
#[test]
fn a_whole_number_is_the_same_in_both_notations() {
    let open = |n: usize| 100.0 + 7.5 * n as f64;
    let written = |n: usize| if n.is_multiple_of(2) { json!(open(n) as i64) } else { json!(open(n)) };
    let run = |n: usize| paying(n, "the rest", &json!({"amount": written(n)}), &json!({"open": open(n)}));
    let candidate = one(&[run(2), run(4), run(1), run(3)]);
    assert_eq!(binding(&candidate, "/amount").0, "result");
    assert_eq!((candidate.covers.len(), candidate.not_covered.len()), (4, 0));
}

//! What is not filled in without the user's words: values in other notations, dates, and values that requests differ in.

use serde_json::{Value, json};

use crate::shop::{Run, User, binding, one};

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
    Run::new(n, &format!("I am {}. Pay {words} for {}", user.email(), user.order(0)))
        .call("get_order", json!({"order_id": user.order(0)}), order)
        .call("pay_order", call, json!("ok"))
}

/// L-14: a number that the user said in another notation is the user's, also if a result has the same.
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

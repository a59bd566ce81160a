//! Learning from a thousand traces.

use serde_json::{Value, json};

use crate::shop::{Run, Shop, learned};

/// Run of twenty calls: seventeen orders are looked at, then one is returned and tagged, or cancelled and paid.
fn run(n: usize) -> Run {
    let order = |k: usize| format!("ORD-{n:04}-{k:02}");
    let items = |k: usize| [format!("it-{n:04}-{k:02}-a"), format!("it-{n:04}-{k:02}-b")];
    let email = format!("user{n:04}@mail.example");
    let orders: Vec<String> = (0..17).map(order).collect();
    let is_return = n.is_multiple_of(2);
    let what = if is_return { "Return everything of" } else { "Cancel" };
    let mut run = Run::new(n, &format!("I am {email}. {what} {} please", order(0))).call(
        "get_user",
        json!({"email": email}),
        json!({"email": email, "orders": orders}),
    );
    for (k, id) in orders.iter().enumerate() {
        let items: Vec<Value> = items(k).iter().map(|id| json!({"item_id": id})).collect();
        run = run.call("get_order", json!({"order_id": id}), json!({"order_id": id, "status": "open", "items": items}));
    }
    let arguments = json!({"order_id": order(0)});
    match is_return {
        true => run.call("return_items", json!({"order_id": order(0), "item_ids": items(0)}), json!("ok")).call(
            "tag_order",
            arguments,
            json!("ok"),
        ),
        false => run.call("cancel_order", arguments.clone(), json!("ok")).call("pay_order", arguments, json!("ok")),
    }
}

/// L-35: 1,000 traces of 20 calls are learned, each request once; `bench/learn/generate.py` measures time and memory.
#[test]
fn a_thousand_traces_are_learned() {
    let runs: Vec<Run> = (0..1_000).map(run).collect();
    assert!(runs.iter().all(|run| run.trace().calls().count() == 20));
    let found = learned(&runs, &Shop::default());
    assert_eq!(found.usable, 1_000);
    let candidates: Vec<(&str, usize, usize)> =
        found.candidates.iter().map(|one| (one.name.as_str(), one.requests, one.not_covered.len())).collect();
    // Each request asks for two writes, and a pipeline makes one.
    assert_eq!(
        candidates,
        [("cancel-order", 500, 500), ("pay-order", 500, 500), ("return-items", 500, 500), ("tag-order", 500, 500)]
    );
    assert!(found.candidates.iter().all(|one| one.leave_one_out.agreed == 0 && one.holes.is_empty()));
}

//! Guards on all elements that one write names (2.6, ADR 0148).

use etude_learn::Candidate;
use serde_json::{Value, json};

use crate::shop::{Run, User, one};

fn item(n: usize, k: usize) -> String {
    format!("it_{}{k}5", n + 10)
}

/// Run that reads the items of a customer, in these states.
fn looking(n: usize, states: &[&str], words: &str) -> Run {
    let items = states.iter().enumerate().map(|(k, state)| {
        let kind = ["Desk lamp", "Rug", "Chair", "Tray"][k];
        json!({"item_id": item(n, k), "kind": format!("{kind} {n}{k}"), "state": state, "gift": false})
    });
    let items: Vec<Value> = items.collect();
    let email = User(n).email();
    Run::new(n, &format!("I am {email}. Return {words}")).call(
        "look",
        json!({"email": email}),
        json!({"email": email, "items": items}),
    )
}

/// Run that returns the items at these places in one call.
fn returning(n: usize, states: &[&str], returned: &[usize]) -> Run {
    let ids: Vec<String> = returned.iter().map(|k| item(n, *k)).collect();
    looking(n, states, "what arrived broken").call("return_items", json!({"item_ids": ids}), json!("ok"))
}

const PENDING_LAST: [&str; 3] = ["delivered", "delivered", "pending"];
const PENDING_FIRST: [&str; 3] = ["pending", "delivered", "delivered"];

/// Runs that return two items of three.
fn wrote() -> Vec<Run> {
    let first = |n: usize| returning(n, &PENDING_LAST, &[0, 1]);
    let last = |n: usize| returning(n, &PENDING_FIRST, &[2, 1]);
    vec![first(1), last(2), first(3), last(4)]
}

/// Run that declined to return two items, one of which is pending.
fn declined(n: usize) -> Run {
    let words = format!("{} and {}", item(n, 1), item(n, 2));
    looking(n, &PENDING_LAST, &words).with("answer", json!("One of them has not arrived."))
}

fn guards(candidate: &Candidate) -> Vec<(Value, usize)> {
    candidate.guards.iter().map(|guard| (guard.condition.clone(), guard.violated)).collect()
}

fn with(mut runs: Vec<Run>, other: Run) -> Vec<Run> {
    runs.push(other);
    runs
}

/// 2.6, 2.8 (d): a run that declined for one of several elements guards all elements that a write names. The order of the
/// runs makes no difference.
#[test]
fn a_run_that_declined_guards_all_elements_of_a_write() {
    let candidate = one(&with(wrote(), declined(5)));
    let condition = json!({"value": "{{item_ids_state.output}}", "equals": "delivered"});
    assert_eq!(guards(&candidate), [(condition.clone(), 1)]);
    assert_eq!((candidate.questions.len(), candidate.covers.len()), (1, 4), "{:?}", candidate.not_covered);
    let steps = candidate.definition["steps"].as_array().expect("steps");
    let write = steps.last().and_then(|step| step["require"].as_array()).expect("conditions");
    assert!(write.contains(&condition), "{write:?}");
    assert!(candidate.files["steps/bindings.py"].contains(r#"all(same(one, values[0]) for one in values)"#));
    let mut reversed = with(wrote(), declined(5));
    reversed.reverse();
    assert_eq!(one(&reversed).files, candidate.files);
    assert_eq!(guards(&one(&wrote())), [], "no other run violates a condition");
}

/// 2.6: a run that declined is about the elements that it names, and a condition that one write violates is not a guard.
#[test]
fn elements_of_a_write_have_no_guard_without_a_violation() {
    let words = format!("{} and {}", item(5, 0), item(5, 1));
    let others = looking(5, &PENDING_LAST, &words).with("answer", json!("You have returned them already."));
    assert_eq!(guards(&one(&with(wrote(), others))), []);
    let mixed = with(with(wrote(), returning(6, &PENDING_FIRST, &[0, 1])), declined(5));
    assert_eq!(guards(&one(&mixed)), []);
}

/// 2.6: if a write is for all elements of a list, the condition is on the list itself.
#[test]
fn all_elements_of_a_list_are_guarded() {
    let whole =
        |n: usize| returning(n, &["delivered"; 3][..2 + n % 2], if n.is_multiple_of(2) { &[0, 1] } else { &[0, 1, 2] });
    let runs: Vec<Run> = (1..5).map(whole).collect();
    let candidate = one(&with(runs, looking(5, &PENDING_LAST, "everything").with("answer", json!("Not yet."))));
    assert_eq!(guards(&candidate), [(json!({"value": "{{item_ids_state.output}}", "equals": "delivered"}), 1)]);
    assert!(
        candidate.questions.is_empty() && !candidate.files["steps/bindings.py"].contains("names"),
        "no question, and no search by name"
    );
    assert_eq!(candidate.covers.len(), 4);
}

/// 2.6: writes in a loop that asks for the elements are guarded as well.
#[test]
fn elements_of_a_loop_of_writes_are_guarded() {
    let paid = |n: usize, states: &[&str], paid: &[usize]| {
        let run = looking(n, states, "what arrived broken");
        let call = |k: usize| json!({"id": item(n, k), "kind": format!("{} {n}{k}", ["Desk lamp", "Rug", "Chair"][k])});
        paid.iter().fold(run, |run, k| run.call("pay_order", call(*k), json!("ok")))
    };
    let runs = [paid(1, &PENDING_LAST, &[0, 1]), paid(2, &PENDING_FIRST, &[1, 2]), paid(3, &PENDING_LAST, &[0, 1])];
    let candidate = one(&with(runs.into(), declined(5)));
    assert_eq!(guards(&candidate), [(json!({"value": "{{id_state.output}}", "equals": "delivered"}), 1)]);
    assert_eq!((candidate.questions.len(), candidate.covers.len()), (1, 3), "{:?}", candidate.not_covered);
}

/// 2.6: what was read for each element that a write names is a used result too.
#[test]
fn results_read_for_each_element_are_guarded() {
    let user = |n: usize| User(n).document(1);
    let read = |n: usize, states: [&str; 2]| {
        let run = Run::new(n, &format!("I am {}. Cancel everything", User(n).email()));
        let run = run.call("get_user", json!({"email": User(n).email()}), user(n));
        (0..2).fold(run, |run, k| {
            run.call("get_order", json!({"order_id": User(n).order(k)}), User(n).order_document(k, states[k]))
        })
    };
    let cancelled = |n: usize| {
        let ids = json!({"order_ids": [User(n).order(0), User(n).order(1)]});
        read(n, ["pending", "pending"]).call("cancel_order", ids, json!("ok"))
    };
    let runs: Vec<Run> = (1..5).map(cancelled).collect();
    let candidate = one(&with(runs, read(5, ["pending", "sent"])));
    assert_eq!(guards(&candidate), [(json!({"value": "{{order_ids_status.output}}", "equals": "pending"}), 1)]);
    assert_eq!(candidate.covers.len(), 4, "{:?}", candidate.not_covered);
}

/// L-49: questions whose lists are known at the same time are next to each other, also if code reads the first answer.
#[test]
fn questions_follow_each_other_before_code_that_reads_them() {
    let run = |n: usize| {
        let ids = [item(n, 0), item(n, 1)];
        let call = json!({"item_ids": ids, "card_id": User(n).card(n % 2)});
        let run = looking(n, &PENDING_LAST, "what arrived broken").user(&User(n), 2);
        run.call("return_items", call, json!("ok"))
    };
    let candidate = one(&with((1..5).map(run).collect(), declined(5)));
    let steps = candidate.definition["steps"].as_array().expect("steps");
    let names: Vec<&str> = steps.iter().filter_map(|step| step["name"].as_str()).collect();
    let asked: Vec<usize> =
        candidate.questions.iter().filter_map(|one| names.iter().position(|name| name == one)).collect();
    assert_eq!((asked.len(), asked[1]), (2, asked[0] + 1), "{names:?}");
    assert_eq!(names.iter().filter(|name| name.starts_with("item_ids_")).count(), 2, "{names:?}");
    assert_eq!(candidate.covers.len(), 4, "{:?}", candidate.not_covered);
}

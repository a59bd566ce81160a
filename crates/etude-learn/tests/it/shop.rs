//! A small shop: traces of agents in it, and the learner's view of it.

use etude_core::shell::LineWord;
use etude_learn::{Candidate, Class, Learned, Tool, Trace, World, learn};
use serde_json::{Value, json};

/// The tools that read; all others write.
const READS: [&str; 4] = ["get_user", "find_user", "get_order", "look"];
const WRITES: [&str; 9] =
    ["return_items", "cancel_order", "pay_order", "set_address", "tag_order", "set_it", "set-it", "贈る", "送る"];

/// The shop as the learner sees it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shop {
    pub(crate) exclude: Vec<&'static str>,
    pub(crate) redact: Vec<&'static str>,
    /// Learned pipelines by name, with their families.
    pub(crate) families: Vec<(&'static str, &'static str)>,
    /// The schema of the tools.
    pub(crate) schema: Value,
}

impl World for Shop {
    fn tool(&self, name: &str) -> Option<Tool> {
        let class = if READS.contains(&name) { Class::Reads } else { Class::Writes };
        let is_there = READS.contains(&name) || WRITES.contains(&name) || name == "Bash";
        is_there.then(|| Tool { name: name.to_owned(), class, schema: self.schema.clone() })
    }

    fn is_excluded(&self, tool: &str) -> bool {
        self.exclude.contains(&tool)
    }

    fn is_redacted(&self, field: &str) -> bool {
        self.redact.contains(&field)
    }

    fn has_skill(&self) -> bool {
        true
    }

    fn rules(&self, _: &[&str]) -> String {
        "Only once.\n".to_owned()
    }

    /// Splits a line at blanks; only the app knows the grammar of the shell.
    fn words(&self, line: &str) -> Option<Vec<LineWord>> {
        let mut at = 0;
        let word = |text: &str| {
            let (start, end) = (at, at + text.len());
            at = end + 1;
            let takes_value = start > 0 && !text.starts_with('-') && !line.starts_with("sh ");
            LineWord { start, end, text: text.to_owned(), takes_value }
        };
        (!line.contains(['>', '|', ';'])).then(|| line.split(' ').map(word).collect())
    }

    fn min_requests(&self) -> usize {
        3
    }

    fn is_own(&self, name: &str, family: &str) -> bool {
        self.families.contains(&(name, family))
    }

    fn is_taken(&self, name: &str, family: &str) -> bool {
        self.families.iter().any(|(known, of)| *known == name && *of != family)
    }
}

/// A customer.
pub(crate) struct User(pub(crate) usize);

impl User {
    pub(crate) fn email(&self) -> String {
        format!("user{0}@mail{0}.example", self.0 + 10)
    }

    pub(crate) fn name(&self) -> String {
        format!("Ana Berg{}", self.0 + 10)
    }

    pub(crate) fn order(&self, n: usize) -> String {
        format!("ORD-{}{n}7", self.0 + 10)
    }

    pub(crate) fn card(&self, n: usize) -> String {
        format!("card_{}{n}9", self.0 + 10)
    }

    pub(crate) fn address(&self, kind: &str) -> Value {
        let n = self.0 + 10;
        json!({"street": format!("{n} {kind} Lane"), "city": format!("{kind}ville {n}"), "code": format!("9{n}77")})
    }

    /// Result of `get_user`, with N cards.
    pub(crate) fn document(&self, cards: usize) -> Value {
        let cards: Vec<Value> =
            (0..cards).map(|n| json!({"card_id": self.card(n), "kind": format!("kind{n}")})).collect();
        json!({
            "user_id": format!("u_{}", self.0 + 10), "name": self.name(), "email": self.email(), "orders": [self.order(0), self.order(1)],
            "cards": cards, "address": self.address("home"), "work": self.address("work"),
        })
    }

    pub(crate) fn items(&self, n: usize) -> Vec<String> {
        (0..2).map(|k| format!("it_{}{n}{k}5", self.0 + 10)).collect()
    }

    /// Result of `get_order`.
    pub(crate) fn order_document(&self, n: usize, status: &str) -> Value {
        let items: Vec<Value> = self.items(n).iter().map(|id| json!({"item_id": id})).collect();
        json!({"order_id": self.order(n), "user_id": format!("u_{}", self.0 + 10), "status": status, "items": items, "card": self.card(0)})
    }
}

/// A trace under construction.
pub(crate) struct Run(Value);

impl Run {
    pub(crate) fn new(n: usize, request: &str) -> Self {
        Self(json!({"trace": 1, "run": format!("run{n}"), "request": request, "events": []}))
    }

    pub(crate) fn call(mut self, tool: &str, arguments: Value, result: Value) -> Self {
        if let Some(events) = self.0["events"].as_array_mut() {
            events.push(json!({"tool": tool, "arguments": arguments, "result": result}));
        }
        self
    }

    pub(crate) fn user(self, user: &User, cards: usize) -> Self {
        self.call("get_user", json!({"email": user.email()}), user.document(cards))
    }

    pub(crate) fn order(self, user: &User, n: usize) -> Self {
        self.call("get_order", json!({"order_id": user.order(n)}), user.order_document(n, "delivered"))
    }

    pub(crate) fn with(mut self, member: &str, value: Value) -> Self {
        self.0[member] = value;
        self
    }

    pub(crate) fn trace(&self) -> Trace {
        Trace::from_json(&self.0).expect("a trace of these tests is well-formed")
    }
}

/// A run that returns everything of an order.
pub(crate) fn returning(n: usize) -> Run {
    let user = User(n);
    Run::new(n, &format!("I am {}. Return everything of {}", user.email(), user.order(0)))
        .user(&user, 2)
        .order(&user, 0)
        .call("return_items", json!({"order_id": user.order(0), "item_ids": user.items(0)}), json!("ok"))
}

pub(crate) fn learned(runs: &[Run], shop: &Shop) -> Learned {
    let traces: Vec<Trace> = runs.iter().map(Run::trace).collect();
    learn(&traces, shop, None)
}

/// The only candidate.
pub(crate) fn one(runs: &[Run]) -> Candidate {
    let mut found = learned(runs, &Shop::default());
    assert_eq!(found.candidates.len(), 1, "{:?}", found.families);
    found.candidates.remove(0)
}

/// The source, the expression and the reason of an argument of the write.
pub(crate) fn binding(candidate: &Candidate, argument: &str) -> (String, String, String) {
    let step = candidate.bindings.last().map(|row| row.step.clone()).unwrap_or_default();
    let row = candidate.bindings.iter().find(|row| row.step == step && row.argument == argument);
    row.map(|row| (row.source.to_owned(), row.expression.clone(), row.why.to_owned())).unwrap_or_default()
}

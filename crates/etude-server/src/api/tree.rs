//! The tree of a run, by pages.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::blocking::blocking;
use crate::problem::Problem;
use crate::query::invalid;
use crate::request::{Call, Respond};
use crate::response::tagged;

/// The possible values of a node's status.
const STATUS: [&str; 8] =
    ["not_started", "running", "waiting", "succeeded", "failed", "cancelled", "rejected", "skipped"];

/// The requested part of a list of nodes.
#[derive(Debug, Default)]
struct Wanted {
    after: Option<String>,
    around: Option<String>,
    status: Option<String>,
    limit: usize,
}

/// `GET /v1/runs/{id}/tree`.
pub(crate) async fn show(call: Call) -> Respond {
    let limit = usize::try_from(call.query.number("limit", 1, 200, 100)?).unwrap_or(100);
    let given = |name: &str| call.query.get(name).map(str::to_owned);
    let wanted = Wanted { after: given("after"), around: given("around"), status: given("status"), limit };
    if wanted.after.is_some() && wanted.around.is_some() {
        return Err(invalid("around", "`after` and `around` exclude each other"));
    }
    if wanted.status.as_deref().is_some_and(|word| !STATUS.contains(&word)) {
        return Err(invalid("status", format!("`status` must be one of: {}", STATUS.join(", "))));
    }
    let parent = given("parent");
    let (server, caller, id) = (Arc::clone(&call.server), call.caller()?.clone(), call.param("id").to_owned());
    let readings = call.readings.clone();
    let document = blocking(move || {
        server.context().visible(&caller, &id)?;
        let reading = readings.of(server.context(), &id)?;
        let story = reading.tree(server.context(), server.stories());
        let nodes = match &parent {
            None => story.outline(),
            Some(parent) => story.below(parent)?,
        };
        page(nodes, &wanted)
    });
    Ok(tagged(&call.headers, document.await?.to_string()))
}

/// One page. A page with `around` is one of the pages that `after` leads through, so it is the same for all nodes on it.
fn page(mut nodes: Vec<Value>, wanted: &Wanted) -> Result<Value, Problem> {
    if let Some(status) = &wanted.status {
        nodes.retain(|node| node["status"] == *status);
    }
    let place = |id: &str| nodes.iter().position(|node| node["id"] == *id);
    let from = match (&wanted.after, &wanted.around) {
        (None, None) => 0,
        (Some(after), _) => place(after).ok_or_else(|| invalid("after", "`after` must be the `next` of a page"))? + 1,
        (None, Some(id)) => {
            let at = place(id).ok_or_else(|| invalid("around", "`around` must be the id of a node in the list"))?;
            at / wanted.limit * wanted.limit
        }
    };
    let shown: Vec<&Value> = nodes[from..].iter().take(wanted.limit).collect();
    let next = if from + shown.len() < nodes.len() { shown.last().map(|node| node["id"].clone()) } else { None };
    let before = from.checked_sub(1).map(|at| nodes[at]["id"].clone());
    Ok(json!({"nodes": shown, "before": before, "next": next}))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page around a node is one of those that follow each other.
    #[test]
    fn a_page_around_a_node_is_one_of_the_pages() {
        let nodes = || {
            (0..7)
                .map(|n| json!({"id": n.to_string(), "status": if n == 5 { "failed" } else { "succeeded" }}))
                .collect()
        };
        let ids = |wanted: Wanted| {
            let page = page(nodes(), &wanted).expect("a page");
            let ids: Vec<String> = page["nodes"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|node| node["id"].as_str().unwrap_or_default().to_owned())
                .collect();
            (ids.concat(), page["before"].clone(), page["next"].clone())
        };
        let of = |after: Option<&str>, around: Option<&str>, limit| Wanted {
            after: after.map(str::to_owned),
            around: around.map(str::to_owned),
            limit,
            status: None,
        };
        assert_eq!(ids(of(None, None, 3)), ("012".to_owned(), Value::Null, json!("2")));
        assert_eq!(ids(of(Some("2"), None, 3)), ids(of(None, Some("4"), 3)));
        assert_eq!(ids(of(None, Some("4"), 3)), ("345".to_owned(), json!("2"), json!("5")));
        assert_eq!(ids(of(None, Some("4"), 1)).0, "4");
        assert_eq!(ids(Wanted { status: Some("failed".to_owned()), limit: 3, ..Wanted::default() }).0, "5");
        assert!(page(nodes(), &of(None, Some("9"), 3)).is_err());
    }
}

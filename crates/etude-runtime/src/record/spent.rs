//! The record of a model call that is not an effect of the run: a call of its middleware, or a confirmation.

use etude_core::digest::Digest;
use etude_core::machine::Aside;
use etude_core::report::usage_json;
use etude_core::tree;

use super::{SPENT, VERSION, to_usage};
use crate::engine::Record;

/// The record of such a call, made or refused `at_ms` milliseconds after the run began.
pub fn of_aside(aside: &Aside, at_ms: u64) -> Record {
    let mut body = serde_json::json!({"v": VERSION, "at": at_ms, "usage": usage_json(&aside.usage)});
    if aside.is_refused {
        body["refused"] = true.into();
    }
    Record { key: SPENT.to_owned(), request: Digest::of(b"spent"), body: body.to_string(), blobs: Vec::new() }
}

/// The call in a record; `None` if it is another record.
pub fn to_aside(record: &Record) -> Option<Aside> {
    if record.key != SPENT {
        return None;
    }
    let body = tree::parse(&record.body).ok()?;
    Some(Aside { usage: to_usage(body.get("usage")?), is_refused: body["refused"].as_bool().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use etude_core::model::Usage;

    use super::*;

    #[test]
    fn a_call_beside_the_effects_comes_back_as_it_was_written() {
        let usage = Usage { calls: 1, input_tokens: 3, output_tokens: 2, cost_usd: Some(0.5), ..Usage::default() };
        for is_refused in [false, true] {
            let aside = Aside { usage, is_refused };
            assert_eq!(to_aside(&of_aside(&aside, 7)), Some(aside));
        }
    }
}

//! Human-readable differences between two runs.

use std::fmt::Write;

use etude_core::data::bare;
use etude_core::report::duration;
use serde_json::Value;

use super::{BOLD, DIM, GREEN, RED, short, text as member, usage};
use crate::render::layout::clip;

/// Maximum number of differences shown of one value.
const MAX_SHOWN: usize = 10;

/// Renders the document of `runs diff`.
pub(crate) fn text(diff: &Value, width: usize) -> String {
    let mut out = String::new();
    for (name, style, sign) in [("a", RED, "-"), ("b", GREEN, "+")] {
        let side = &diff[name];
        let id = short(side["run_id"].as_str().unwrap_or_default()).to_owned();
        let mut facts = vec![duration(side["duration_ms"].as_u64().unwrap_or(0))];
        facts.extend(usage(&side["usage"]));
        let (pipeline, status) = (member(side, "pipeline"), member(side, "status"));
        let _ = writeln!(out, "{style}{sign} {id}{style:#}  {pipeline} {status} {DIM}({}){DIM:#}", facts.join(", "));
    }
    let files = array(&diff["definition"]);
    section(
        &mut out,
        "definition",
        files.iter().map(|file| format!("{} {}", member(file, "change"), member(file, "file"))),
        width,
    );
    values(&mut out, "input", &diff["input"], width);
    for step in array(&diff["steps"]) {
        let _ = writeln!(out, "\n{BOLD}step {}{BOLD:#}", member(step, "name"));
        for (name, pair) in step["members"].as_object().into_iter().flatten() {
            let _ = writeln!(out, "  {name}: {}", clip(&format!("{} -> {}", bare(&pair[0]), bare(&pair[1])), width));
        }
        for output in array(&step["outputs"]).iter().take(MAX_SHOWN) {
            let _ = writeln!(out, "  output of {} {}", member(output, "effect"), member(output, "change"));
            changes(&mut out, &output["values"], width);
        }
        more(&mut out, array(&step["outputs"]).len());
    }
    values(&mut out, "output", &diff["output"], width);
    out
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn section(out: &mut String, name: &str, lines: impl ExactSizeIterator<Item = String>, width: usize) {
    if lines.len() == 0 {
        return;
    }
    let _ = writeln!(out, "\n{BOLD}{name}{BOLD:#}");
    let count = lines.len();
    for line in lines.take(MAX_SHOWN) {
        let _ = writeln!(out, "  {}", clip(&line, width.saturating_sub(2)));
    }
    more(out, count);
}

fn values(out: &mut String, name: &str, changed: &Value, width: usize) {
    if array(changed).is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{BOLD}{name}{BOLD:#}");
    changes(out, changed, width);
}

/// Renders the differing paths of a value, with both values.
fn changes(out: &mut String, changed: &Value, width: usize) {
    for change in array(changed).iter().take(MAX_SHOWN) {
        let path = Some(member(change, "path")).filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned());
        for (side, style, sign) in [("a", RED, "-"), ("b", GREEN, "+")] {
            if let Some(value) = change.get(side) {
                let line = clip(&format!("{path}: {value}"), width.saturating_sub(4));
                let _ = writeln!(out, "  {style}{sign}{style:#} {line}");
            }
        }
    }
    more(out, array(changed).len());
}

fn more(out: &mut String, count: usize) {
    if count > MAX_SHOWN {
        let _ = writeln!(out, "  {DIM}… {} more; all of them: --format json{DIM:#}", count - MAX_SHOWN);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_stand_under_what_they_are_differences_of() {
        let side = |id: &str, status: &str| {
            json!({"run_id": id, "pipeline": "p", "status": status, "duration_ms": 1500,
                   "usage": {"calls": 1, "input_tokens": 10, "output_tokens": 1}})
        };
        let changed = json!([{"path": "/n", "change": "changed", "a": 1, "b": 2}]);
        let diff = json!({
            "a": side("aaaaaaaaaaaaaaaa", "succeeded"), "b": side("bbbbbbbbbbbbbbbb", "failed"),
            "definition": [{"file": "p.yaml", "change": "changed"}],
            "input": [{"path": "/k", "change": "added", "b": "x"}],
            "steps": [{"phase": "business", "name": "ask", "members": {"status": ["succeeded", "failed"]},
                       "outputs": [{"effect": "p/ask", "change": "changed", "values": changed}]}],
            "output": changed,
        });
        assert_eq!(
            anstream::adapter::strip_str(&text(&diff, 80)).to_string(),
            "- aaaaaa  p succeeded (1.5 s, 1 model call, 11 tokens)
+ bbbbbb  p failed (1.5 s, 1 model call, 11 tokens)

definition
  changed p.yaml

input
  + /k: \"x\"

step ask
  status: succeeded -> failed
  output of p/ask changed
  - /n: 1
  + /n: 2

output
  - /n: 1
  + /n: 2
"
        );
    }
}

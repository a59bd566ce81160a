//! View of one step of a run: its elements and attempts, with input and output of each.

use std::fmt::Write;

use serde_json::Value;

use super::{BOLD, DIM, RED, facts, mark, short, text as member};
use crate::render::commands::complete;
use crate::render::layout::{Excerpt, clip};

/// Maximum number of elements or attempts listed.
const MAX_LISTED: usize = 15;

/// An effect that is shown with its streams.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Place of the effect: `element 7, attempt 2`.
    pub(crate) title: String,
    /// Outcome in one line.
    pub(crate) summary: String,
    /// Reasons why its value was rejected.
    pub(crate) rejected: Vec<String>,
    /// Streams: name, command that prints the whole stream, and its beginning or the reason why it cannot be read.
    pub(crate) streams: Vec<(&'static str, String, Result<Excerpt, String>)>,
}

/// Renders the step that `document` describes: the row of the step with `effects`, each with its place.
pub(crate) fn text(document: &Value, shown: &[Shown], width: usize) -> String {
    let mut out = String::new();
    let row = &document["row"];
    let name = member(document, "step");
    let head = match row["type"].as_str() {
        Some(kind) => format!("{} step, {}", clip(kind, 32), facts(row)),
        None => String::new(),
    };
    let mark = if row.is_null() { String::new() } else { format!("{} ", mark(row)) };
    let _ = writeln!(out, "{mark}{BOLD}{name}{BOLD:#} {DIM}{head}{DIM:#}");
    listing(&mut out, document, shown.len(), width);
    for effect in shown {
        let _ = writeln!(out, "\n{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", effect.title, clip(&effect.summary, width));
        for reason in &effect.rejected {
            let _ = writeln!(out, "{RED}rejected:{RED:#} {}", clip(reason, width.saturating_sub(10)));
        }
        for (stream, command, content) in &effect.streams {
            match content {
                Ok(content) if content.lines.is_empty() => {
                    let _ = writeln!(out, "{stream} {DIM}(empty){DIM:#}");
                }
                Ok(content) => {
                    let _ = writeln!(out, "{stream}:");
                    super::overview::excerpt(&mut out, content, command);
                }
                Err(why) => {
                    let _ = writeln!(out, "{stream} {DIM}({}){DIM:#}", clip(why, width));
                }
            }
        }
    }
    out
}

/// Lists the effects that are not shown in full, one line each. For a fan-out, only failed or repeated elements.
fn listing(out: &mut String, document: &Value, shown: usize, width: usize) {
    let effects: Vec<&Value> = document["effects"].as_array().into_iter().flatten().collect();
    if effects.len() <= shown {
        return;
    }
    let is_fan_out = effects.iter().any(|effect| !effect["element"].is_null());
    let is_worth_it = |effect: &&&Value| !is_fan_out || is_loud(effect);
    let worth_it: Vec<&&Value> = effects.iter().filter(is_worth_it).collect();
    let id = document["run_id"].as_str().unwrap_or_default();
    let command = complete(&format!("etude runs show {} {}", short(id), member(document, "step")));
    if is_fan_out && worth_it.is_empty() && shown == 0 {
        let _ = writeln!(out, "\nnext      {command} 0  {DIM}one element, by its index{DIM:#}");
        return;
    }
    if !worth_it.is_empty() {
        out.push('\n');
    }
    let hidden = worth_it.len().saturating_sub(MAX_LISTED);
    for effect in worth_it.iter().skip(hidden) {
        let title = member(effect, "place");
        let reasons = effect["rejected"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let reasons: Vec<&str> = reasons.collect();
        let what = match (reasons.is_empty(), effect["done_again"] == true) {
            (false, _) => format!("rejected: {}", reasons.join("; ")),
            (true, true) => format!("replaced: {}", member(effect, "summary")),
            (true, false) => member(effect, "summary"),
        };
        let _ = writeln!(out, "  {title}  {DIM}{}{DIM:#}", clip(&what, width.saturating_sub(title.len() + 4).max(20)));
    }
    if hidden > 0 {
        let _ = writeln!(out, "  {DIM}… {hidden} earlier{DIM:#}");
    }
    if shown == 0 && is_fan_out {
        let number = worth_it.iter().find_map(|effect| effect["element"].as_u64()).unwrap_or(0);
        let _ = writeln!(out, "\nnext      {command} {number}  {DIM}one element, by its index{DIM:#}");
    }
}

/// True if the effect failed or was rejected.
fn is_loud(effect: &Value) -> bool {
    effect["failed"] == true || effect["rejected"].is_array()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(document: &Value, shown: &[Shown]) -> String {
        anstream::adapter::strip_str(&text(document, shown, 80)).to_string()
    }

    #[test]
    fn of_a_fan_out_the_elements_that_failed_are_listed() {
        let mut effects: Vec<Value> = (0..51)
            .map(|n| json!({"place": format!("element {n}, attempt 1"), "element": n, "summary": "exit status 0 after 3 ms"}))
            .collect();
        effects[7]["failed"] = true.into();
        effects[7]["summary"] = "exit status 2 after 4 ms".into();
        let document = json!({
            "run_id": "9x0db7nsqx7cyhbh", "step": "extract", "effects": effects,
            "row": {"name": "extract", "type": "code", "status": "succeeded", "attempts": 51, "duration_ms": 1200,
                    "items": {"total": 51, "succeeded": 50, "failed": [7]}},
        });
        assert_eq!(
            plain(&document, &[]),
            "✓ extract code step, 1.2 s, 51 elements: 50 succeeded, 1 failed: [7]

  element 7, attempt 1  exit status 2 after 4 ms

next      etude runs show 9x0db7 extract 7  one element, by its index
"
        );
    }

    /// An approval has neither streams to show nor elements to choose from.
    #[test]
    fn an_effect_that_is_no_element_has_no_index() {
        let document = json!({
            "run_id": "9x0db7nsqx7cyhbh", "step": "gate", "effects": [{"place": "attempt 1", "summary": "approved by ada"}],
            "row": {"name": "gate", "type": "approval", "status": "succeeded", "attempts": 1, "duration_ms": 900},
        });
        let shown = plain(&document, &[]);
        assert!(shown.contains("attempt 1  approved by ada") && !shown.contains("next"), "{shown}");
    }

    #[test]
    fn attempts_are_listed_and_the_last_one_is_shown_with_what_it_was_given_and_gave() {
        let document = json!({
            "run_id": "9x0db7nsqx7cyhbh", "step": "ask",
            "row": {"name": "ask", "type": "llm", "status": "succeeded", "attempts": 2, "duration_ms": 900,
                    "model": "mock/m", "usage": {"calls": 2, "input_tokens": 200, "output_tokens": 20}},
            "effects": [
                {"place": "attempt 1", "summary": "mock/m answered after 400 ms, 110 tokens", "rejected": ["/n is missing"]},
                {"place": "attempt 2", "summary": "mock/m answered after 500 ms, 110 tokens"},
            ],
        });
        let excerpt = |text: &str, hidden| Ok(Excerpt { lines: vec![text.to_owned()], hidden });
        let shown = [Shown {
            title: "attempt 2".to_owned(),
            summary: "mock/m answered after 500 ms, 110 tokens".to_owned(),
            rejected: Vec::new(),
            streams: vec![
                ("prompt", "etude runs show 9x0db7 --stream p/ask#2/prompt".to_owned(), excerpt("How many?", 2048)),
                ("answer", "etude runs show 9x0db7 --stream p/ask#2/answer".to_owned(), excerpt("{\"n\": 1}", 0)),
                ("stderr", String::new(), Ok(Excerpt::default())),
            ],
        }];
        assert_eq!(
            plain(&document, &shown),
            "✓ ask llm step, 900 ms, 2 attempts, 220 tokens, mock/m

  attempt 1  rejected: /n is missing
  attempt 2  mock/m answered after 500 ms, 110 tokens

attempt 2 mock/m answered after 500 ms, 110 tokens
prompt:
  How many?
  … 2.0 KiB more: etude runs show 9x0db7 --stream p/ask#2/prompt
answer:
  {\"n\": 1}
stderr (empty)
"
        );
    }
}

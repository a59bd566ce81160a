//! The view of a conversation that fits the model's context window.
//!
//! Older results of tools are left out first, the oldest before the others, then long texts in the arguments of older
//! calls. Instructions, the task, activated skills and the last turns always stay.
//!
//! The transcript itself is never cut.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Message, Part, Role};
use crate::tree;

/// Fill level, in percent of the window, at which results and arguments are left out.
const FULL: u64 = 85;
/// Fill level, in percent, at which leaving out stops: a prompt that changes at every turn would never be found in a cache.
const ROOMY: u64 = 55;
/// Number of last messages that are always sent unchanged.
const RECENT: usize = 4;
/// Minimum size of a text to be left out, in bytes.
const SHORT: usize = 200;
/// Maximum number of tokens that are kept free for the response.
const RESPONSE_TOKENS: u64 = 8_192;

/// Position of a result or a call in a transcript: message, part.
type Place = (usize, usize);

/// The choice of the parts of a transcript that are sent.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Context window of the model, in tokens; `None`: unknown, and nothing is left out.
    limit: Option<u64>,
    left_out: BTreeSet<Place>,
    /// Shortened arguments, which are sent instead of those of the call.
    shortened: BTreeMap<Place, String>,
    kept: BTreeSet<Place>,
    /// Tokens per 1,024 bytes, estimated from the last response.
    density: Option<u64>,
}

impl Window {
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Marks a result that is never left out.
    pub(super) fn keep(&mut self, message: usize, part: usize) {
        self.kept.insert((message, part));
    }

    /// True if the result is never left out.
    pub(super) fn keeps(&self, message: usize, part: usize) -> bool {
        self.kept.contains(&(message, part))
    }

    /// Number of results and arguments that are left out.
    pub(super) fn left_out(&self) -> usize {
        self.left_out.len() + self.shortened.len()
    }

    /// Updates the density from a response: a request of `bytes` had `input_tokens`.
    pub(super) fn learn(&mut self, bytes: u64, input_tokens: u64) {
        if bytes > 0 && input_tokens > 0 {
            self.density = Some((input_tokens * 1024 / bytes).clamp(128, 1024));
        }
    }

    fn tokens(&self, bytes: u64) -> u64 {
        bytes * self.density.unwrap_or(1024 / 3) / 1024
    }

    /// The messages to send, with the size in bytes of these and the `fixed` bytes of instructions and tools. Arguments
    /// are left out only if `with_arguments`. Parts that were left out once stay out, so that the beginning of a prompt
    /// does not change.
    pub(super) fn view(&mut self, transcript: &[Message], fixed: u64, with_arguments: bool) -> (Vec<Message>, u64) {
        let bytes = fixed + transcript.iter().enumerate().map(|(at, message)| self.bytes(at, message)).sum::<u64>();
        let Some(limit) = self.limit else {
            return (transcript.to_vec(), bytes);
        };
        let room = limit.saturating_sub(RESPONSE_TOKENS.min(limit / 4)).max(1);
        let mut bytes = bytes;
        if self.tokens(bytes) * 100 > room * FULL {
            let older = &transcript[..transcript.len().saturating_sub(RECENT)];
            let parts = || {
                let of = |(at, message): (usize, &'_ Message)| (0..message.parts.len()).map(move |n| (at, n));
                older.iter().enumerate().flat_map(of)
            };
            for place in parts().filter(|(at, n)| matches!(older[*at].parts[*n], Part::ToolResult { .. })) {
                if self.tokens(bytes) * 100 <= room * ROOMY {
                    break;
                }
                bytes = bytes.saturating_sub(self.leave_out(place, &older[place.0].parts[place.1]));
            }
            for place in parts().filter(|_| with_arguments) {
                if self.tokens(bytes) * 100 <= room * ROOMY {
                    break;
                }
                bytes = bytes.saturating_sub(self.leave_out(place, &older[place.0].parts[place.1]));
            }
        }
        (self.apply(transcript), bytes)
    }

    /// Leaves out a part if possible, and returns the saved bytes.
    fn leave_out(&mut self, place: Place, part: &Part) -> u64 {
        match part {
            Part::ToolResult { content, .. } if content.len() > SHORT && !self.kept.contains(&place) => {
                let is_new = self.left_out.insert(place);
                if is_new { (content.len() - stub(content).len()) as u64 } else { 0 }
            }
            Part::ToolCall { arguments, .. } if arguments.len() > SHORT && !self.shortened.contains_key(&place) => {
                let Some(shorter) = shortened(arguments) else { return 0 };
                let saved = arguments.len().saturating_sub(shorter.len()) as u64;
                self.shortened.insert(place, shorter);
                saved
            }
            _ => 0,
        }
    }

    fn bytes(&self, at: usize, message: &Message) -> u64 {
        let part = |(n, part): (usize, &Part)| match part {
            Part::Text(text) => text.len(),
            Part::Image { .. } => 4_096,
            Part::ToolCall { name, arguments, .. } => {
                name.len() + self.shortened.get(&(at, n)).unwrap_or(arguments).len() + 16
            }
            Part::ToolResult { content, .. } if self.left_out.contains(&(at, n)) => stub(content).len(),
            Part::ToolResult { content, .. } => content.len() + 16,
            Part::Reasoning(reasoning) => reasoning.json.len(),
        };
        message.parts.iter().enumerate().map(part).sum::<usize>() as u64
    }

    fn apply(&self, transcript: &[Message]) -> Vec<Message> {
        let mut messages = transcript.to_vec();
        for (at, n) in &self.left_out {
            if let Some(Part::ToolResult { content, .. }) =
                messages.get_mut(*at).filter(|m| m.role == Role::Tool).and_then(|m| m.parts.get_mut(*n))
            {
                *content = stub(content);
            }
        }
        for ((at, n), shorter) in &self.shortened {
            if let Some(Part::ToolCall { arguments, .. }) = messages.get_mut(*at).and_then(|m| m.parts.get_mut(*n)) {
                arguments.clone_from(shorter);
            }
        }
        messages
    }
}

/// Replacement for a result.
fn stub(content: &str) -> String {
    format!("[{} bytes left out to save room; call the tool again if you need them]", content.len())
}

/// Arguments with a mark in place of each long text, at any depth; `None` if there is none. Everything else stays as
/// the model wrote it, including the digits of numbers.
fn shortened(arguments: &str) -> Option<String> {
    if !arguments.trim_start().starts_with('{') || !tree::is_json(arguments) {
        return None;
    }
    let (mut out, mut rest) = (String::new(), arguments);
    while let Some(start) = rest.find('"') {
        let mut is_escaped = false;
        let ends = |c: char| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        };
        let end = start + 1 + rest[start + 1..].find(ends)?;
        let (text, after) = (&rest[start + 1..end], &rest[end + 1..]);
        out.push_str(&rest[..=start]);
        match text.len() > SHORT && !after.trim_start().starts_with(':') {
            true => {
                out.push_str(&format!("[{} bytes left out of this copy to save room; the call had them]", text.len()))
            }
            false => out.push_str(text),
        }
        out.push('"');
        rest = after;
    }
    out.push_str(rest);
    (out.len() < arguments.len()).then_some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn transcript(results: &[&str]) -> Vec<Message> {
        let mut messages = vec![Message::user("do it")];
        for (n, content) in results.iter().enumerate() {
            let (id, content) = (format!("c{n}"), (*content).to_owned());
            let call = Part::ToolCall { id: id.clone(), name: "Read".to_owned(), arguments: "{}".to_owned() };
            messages.push(Message { role: Role::Assistant, parts: vec![call] });
            messages.push(Message { role: Role::Tool, parts: vec![Part::ToolResult { id, content }] });
        }
        messages
    }

    fn is_stub(message: &Message) -> bool {
        matches!(&message.parts[..], [Part::ToolResult { content, .. }] if content.contains("left out"))
    }

    /// the context is kept within the window: old results are left out first, the last turns stay.
    #[test]
    fn the_oldest_results_are_left_out_first_and_the_last_ones_never() {
        let long = "x".repeat(3_000);
        let transcript = transcript(&[long.as_str(); 6]);
        let mut window = Window::new(Some(6_000));
        let (view, bytes) = window.view(&transcript, 100, true);
        assert!(is_stub(&view[2]) && !is_stub(&view[10]) && !is_stub(&view[12]), "{view:?}");
        assert!(window.tokens(bytes) * 100 <= 4_500 * ROOMY, "{bytes}");
        assert_eq!(transcript[2], self::transcript(&[long.as_str(); 6])[2], "the transcript itself stays whole");
    }

    /// activated skills stay, however old they are.
    #[test]
    fn what_is_kept_is_never_left_out() {
        let long = "x".repeat(3_000);
        let mut window = Window::new(Some(6_000));
        window.keep(2, 0);
        let (view, _) = window.view(&transcript(&[long.as_str(); 6]), 100, true);
        assert!(!is_stub(&view[2]) && is_stub(&view[4]));
    }

    #[test]
    fn what_is_left_out_stays_left_out_so_that_prompts_keep_their_beginning() {
        let long = "x".repeat(3_000);
        let mut window = Window::new(Some(6_000));
        let (before, _) = window.view(&transcript(&[long.as_str(); 6]), 100, true);
        let (after, _) = window.view(&transcript(&[long.as_str(); 7]), 100, true);
        assert_eq!(before[..8], after[..8]);
    }

    /// long arguments of calls are left out as well, if leaving out results is not enough.
    #[test]
    fn long_arguments_of_older_calls_are_left_out() {
        let written = |calls: usize| {
            let mut messages = transcript(&["ok"; 8]);
            messages.truncate(1 + 2 * calls);
            for message in &mut messages {
                if let Part::ToolCall { arguments, .. } = &mut message.parts[0] {
                    let lines = "x".repeat(3_000);
                    *arguments = serde_json::json!({"path": "a.txt", "edits": [{"n": 7, "text": lines}]}).to_string();
                }
            }
            messages
        };
        let arguments = |message: &Message| match &message.parts[..] {
            [Part::ToolCall { arguments, .. }] => serde_json::from_str::<Value>(arguments).expect("JSON"),
            _ => panic!("no call: {message:?}"),
        };
        let mut window = Window::new(Some(6_000));
        let (view, bytes) = window.view(&written(6), 100, true);
        let first = arguments(&view[1]);
        assert_eq!((&first["path"], &first["edits"][0]["n"]), (&"a.txt".into(), &7.into()));
        assert!(first["edits"][0]["text"].as_str().is_some_and(|text| text.starts_with("[3000 bytes left out")));
        assert!(window.tokens(bytes) * 100 <= 4_500 * ROOMY, "{bytes}");
        assert_eq!(window.left_out(), 4);
        assert_eq!(view[9..], written(6)[9..], "the last turns stay");
        let (after, _) = window.view(&written(7), 100, true);
        assert_eq!(view[..9], after[..9], "a prompt keeps its beginning");
        let (before, _) = Window::new(Some(6_000)).view(&written(6), 100, false);
        assert_eq!(before, written(6), "a run of an earlier interpreter is sent what it was");
    }

    #[test]
    fn arguments_keep_everything_but_long_texts() {
        let long = "y\\\"".repeat(100);
        let given =
            format!("{{\"n\": 12345678901234567890.10, \"{long}\": [\"{long}\", \"short\\\\\"], \"last\": {{}}}}");
        let mark = "[300 bytes left out of this copy to save room; the call had them]";
        let kept =
            format!("{{\"n\": 12345678901234567890.10, \"{long}\": [\"{mark}\", \"short\\\\\"], \"last\": {{}}}}");
        assert_eq!(shortened(&given), Some(kept));
        for whole in ["{}", "[1]", "not JSON", &long] {
            assert_eq!(shortened(whole), None);
        }
    }

    #[test]
    fn without_a_known_limit_everything_is_sent() {
        let long = "x".repeat(300_000);
        let transcript = transcript(&[long.as_str(); 4]);
        assert_eq!(Window::new(None).view(&transcript, 0, true).0, transcript);
    }

    #[test]
    fn the_density_of_tokens_is_learnt_from_responses() {
        let mut window = Window::new(Some(1_000));
        window.learn(10_240, 10_240);
        assert_eq!(window.tokens(2_048), 2_048);
    }
}

//! Keeping a conversation within what the model takes: older results of tools are left out of what is sent, the
//! oldest first; instructions, what was asked, activated skills and the last turns always stay.
//!
//! The transcript itself is never cut: this is about the view of it that is sent.

use std::collections::BTreeSet;

use crate::model::{Message, Part, Role};

/// When so much of the window is used, in percent, results are left out …
const FULL: u64 = 85;
/// … until no more than this is used: a prompt that changes at every turn would never be found in a cache.
const ROOMY: u64 = 55;
/// The last messages are sent as they are.
const RECENT: usize = 4;
/// A shorter result is not worth leaving out, in bytes.
const SHORT: usize = 200;
/// Most tokens that are kept free for the answer.
const ANSWER: u64 = 8_192;

/// Where a result stands in a transcript: message, part.
type Place = (usize, usize);

/// What is sent of a transcript.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// How many tokens the model takes in all; `None`: not known, and nothing is left out.
    limit: Option<u64>,
    left_out: BTreeSet<Place>,
    kept: BTreeSet<Place>,
    /// Tokens per 1,024 bytes, as the last answer has shown.
    density: Option<u64>,
}

impl Window {
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// That result stays whatever happens.
    pub(super) fn keep(&mut self, message: usize, part: usize) {
        self.kept.insert((message, part));
    }

    /// True if that result stays.
    pub(super) fn keeps(&self, message: usize, part: usize) -> bool {
        self.kept.contains(&(message, part))
    }

    /// How many results are left out.
    pub(super) fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// Learns from an answer how many tokens a request of that many bytes had.
    pub(super) fn learn(&mut self, bytes: u64, input_tokens: u64) {
        if bytes > 0 && input_tokens > 0 {
            self.density = Some((input_tokens * 1024 / bytes).clamp(128, 1024));
        }
    }

    fn tokens(&self, bytes: u64) -> u64 {
        bytes * self.density.unwrap_or(1024 / 3) / 1024
    }

    /// The messages to send, and how many bytes they and `fixed` bytes of instructions and tools have.
    pub(super) fn view(&mut self, transcript: &[Message], fixed: u64) -> (Vec<Message>, u64) {
        let bytes = fixed + transcript.iter().enumerate().map(|(at, message)| self.bytes(at, message)).sum::<u64>();
        let Some(limit) = self.limit else {
            return (transcript.to_vec(), bytes);
        };
        let room = limit.saturating_sub(ANSWER.min(limit / 4)).max(1);
        let mut bytes = bytes;
        if self.tokens(bytes) * 100 > room * FULL {
            let last = transcript.len().saturating_sub(RECENT);
            for (at, message) in transcript[..last].iter().enumerate() {
                for (n, part) in message.parts.iter().enumerate() {
                    if self.tokens(bytes) * 100 <= room * ROOMY {
                        break;
                    }
                    let Part::ToolResult { content, .. } = part else { continue };
                    if content.len() > SHORT && !self.kept.contains(&(at, n)) && self.left_out.insert((at, n)) {
                        bytes = bytes.saturating_sub((content.len() - stub(content).len()) as u64);
                    }
                }
            }
        }
        (self.apply(transcript), bytes)
    }

    fn bytes(&self, at: usize, message: &Message) -> u64 {
        let part = |(n, part): (usize, &Part)| match part {
            Part::Text(text) => text.len(),
            Part::Image { .. } => 4_096,
            Part::ToolCall { name, arguments, .. } => name.len() + arguments.len() + 16,
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
        messages
    }
}

/// What stands in for a result.
fn stub(content: &str) -> String {
    format!("[{} bytes left out to save room; call the tool again if you need them]", content.len())
}

#[cfg(test)]
mod tests {
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

    /// context is kept within the window: old results go first, the last turns stay.
    #[test]
    fn the_oldest_results_are_left_out_first_and_the_last_ones_never() {
        let long = "x".repeat(3_000);
        let transcript = transcript(&[long.as_str(); 6]);
        let mut window = Window::new(Some(6_000));
        let (view, bytes) = window.view(&transcript, 100);
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
        let (view, _) = window.view(&transcript(&[long.as_str(); 6]), 100);
        assert!(!is_stub(&view[2]) && is_stub(&view[4]));
    }

    #[test]
    fn what_is_left_out_stays_left_out_so_that_prompts_keep_their_beginning() {
        let long = "x".repeat(3_000);
        let mut window = Window::new(Some(6_000));
        let (before, _) = window.view(&transcript(&[long.as_str(); 6]), 100);
        let (after, _) = window.view(&transcript(&[long.as_str(); 7]), 100);
        assert_eq!(before[..8], after[..8]);
    }

    #[test]
    fn without_a_known_limit_everything_is_sent() {
        let long = "x".repeat(300_000);
        let transcript = transcript(&[long.as_str(); 4]);
        assert_eq!(Window::new(None).view(&transcript, 0).0, transcript);
    }

    #[test]
    fn the_density_of_tokens_is_learnt_from_answers() {
        let mut window = Window::new(Some(1_000));
        window.learn(10_240, 10_240);
        assert_eq!(window.tokens(2_048), 2_048);
    }
}

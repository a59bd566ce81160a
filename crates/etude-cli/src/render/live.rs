//! Live text of an agent while its response arrives.
//!
//! It is shown in a few scrolling lines, which then make room for the final form: a line of the log, or the output on stdout.
//! So no text is on a terminal twice, and stdout is the same for every observer.

use std::time::Duration;

use etude_core::effect::EffectId;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::text::harmless;

/// Maximum number of lines shown.
const LINES: usize = 10;

/// Maximum number of characters shown; long lines take several of a terminal's.
const CHARACTERS: usize = 1000;

/// Number of bytes kept of the text. Escape sequences are removed from the whole of it, so that a sequence split across two
/// pieces is still found.
const KEPT_BYTES: usize = 16 * 1024;

/// Live lines of one step.
#[derive(Debug)]
pub(super) struct Live {
    /// Row of the step.
    pub(super) row: usize,
    bar: ProgressBar,
    said: String,
}

impl Live {
    /// Creates lines above the spinner of the step.
    pub(super) fn new(row: usize, bars: &MultiProgress, spinner: &ProgressBar) -> Self {
        let bar = bars.insert_before(spinner, ProgressBar::new_spinner());
        // The template is a constant; a default bar would be shown if it were wrong.
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { row, bar, said: String::new() }
    }

    /// Clears the text for a new response.
    pub(super) fn clear(&mut self) {
        self.said.clear();
    }

    /// Appends text and shows it.
    pub(super) fn say(&mut self, text: &str) {
        self.said.push_str(text);
        if self.said.len() > 2 * KEPT_BYTES {
            let at = self.said.ceil_char_boundary(self.said.len() - KEPT_BYTES);
            self.said.drain(..at);
        }
        self.bar.set_message(last_lines(&self.said));
    }

    /// Removes the lines from the terminal.
    pub(super) fn close(self) {
        self.bar.finish_and_clear();
    }
}

/// End of the text that fits into the live lines.
fn last_lines(text: &str) -> String {
    let text = harmless(text.trim());
    let text = text.trim_end();
    let skipped = text.chars().count().saturating_sub(CHARACTERS);
    let start = text.char_indices().nth(skipped).map_or(text.len(), |(at, _)| at);
    let lines: Vec<&str> = text[start..].lines().collect();
    let shown = &lines[lines.len().saturating_sub(LINES)..];
    let mut out = String::new();
    for (n, line) in shown.iter().enumerate() {
        let mark = if n == 0 && start > 0 && shown.len() == lines.len() { "…" } else { "" };
        let end = if n + 1 < shown.len() { "\n" } else { "" };
        out.push_str(&format!("    {mark}{line}{end}"));
    }
    out
}

/// Step of the plan to which an effect belongs, if it is the step's only concurrent one: a step without turns, or a turn of
/// one.
pub(super) fn step_of(effect: &EffectId) -> Option<&str> {
    let mut segments = effect.as_str().split('/').skip(1);
    let step = segments.next()?;
    let turn = segments.next();
    let is_turn = turn.is_none_or(|turn| turn.starts_with("turn"));
    let name = step.split_once('#').map_or(step, |(name, _)| name);
    (is_turn && segments.next().is_none() && !step.contains(['[', '!'])).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shown_without_anything_that_steers_the_terminal() {
        assert_eq!(last_lines("  one\n\u{1b}[31mtwo\u{1b}[0m\n"), "    one\n    two");
        assert_eq!(last_lines("half \u{1b}[3"), "    half");
        let many: String = (0..30).map(|n| format!("{n}\n")).collect();
        let shown = last_lines(&many);
        assert_eq!(shown.lines().count(), LINES);
        assert!(shown.starts_with("    20\n") && shown.ends_with("\n    29"), "{shown}");
        let long = last_lines(&"ä".repeat(3 * CHARACTERS));
        assert_eq!(long, format!("    …{}", "ä".repeat(CHARACTERS)));
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn an_answer_belongs_to_the_step_that_asked_for_it() {
        for (effect, step) in [
            ("p/ask", Some("ask")),
            ("p/ask#3", Some("ask")),
            ("p/review/turn12", Some("review")),
            ("p/review[2]/turn1", None),
            ("p/ask[0]#2", None),
            ("p/group/ask", None),
            ("p/sub/review/turn1", None),
            ("p", None),
        ] {
            assert_eq!(step_of(&EffectId::new(effect)), step, "{effect}");
        }
    }
}

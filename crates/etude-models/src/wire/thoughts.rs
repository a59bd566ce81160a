//! Reasoning that a model writes into its text before the response, between the marks of its template.

/// Opening and closing marks of the templates.
const MARKS: [(&str, &str); 2] = [("<think>", "</think>"), ("[THINK]", "[/THINK]")];

/// The reasoning at the beginning of `text` with its marks, and the response after it. Some templates have the opening mark in
/// the prompt; the closing one then stands on a line of its own.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let start = text.trim_start();
    let end = match MARKS.iter().find(|(open, _)| start.starts_with(open)) {
        Some((_, close)) => text.find(close).map(|at| at + close.len()),
        None => end_without_begin(text),
    };
    let (thoughts, response) = text.split_at(end.unwrap_or(0));
    if thoughts.is_empty() { ("", text) } else { (thoughts, response.trim_start()) }
}

fn end_without_begin(text: &str) -> Option<usize> {
    let (_, close) = MARKS[0];
    let at = text.find(close)?;
    let (before, after) = (&text[..at], &text[at + close.len()..]);
    let is_line =
        (before.is_empty() || before.ends_with('\n')) && (after.is_empty() || after.starts_with(['\n', '\r']));
    is_line.then_some(at + close.len())
}

/// Holds marked reasoning back from a text that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    state: State,
    /// Text that may belong to either.
    held: String,
    /// Number of bytes of blanks at the beginning of the text, which are looked at once.
    blanks: usize,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Begin,
    /// In reasoning that ends with this mark.
    Thinking(&'static str),
    /// After the reasoning, before anything but blanks.
    Between,
    Answering,
}

impl Filter {
    /// The text that can be shown after `text` has come.
    pub(crate) fn pass(&mut self, text: &str) -> String {
        self.held.push_str(text);
        loop {
            match self.state {
                State::Begin => {
                    let start = self.held[self.blanks..].trim_start();
                    self.blanks = self.held.len() - start.len();
                    self.state = match MARKS.iter().find(|(open, _)| start.starts_with(open)) {
                        Some((_, close)) => State::Thinking(close),
                        None if MARKS.iter().any(|(open, _)| open.starts_with(start)) => return String::new(),
                        None => State::Answering,
                    };
                }
                State::Thinking(close) => match self.held.find(close) {
                    Some(at) => {
                        self.held.drain(..at + close.len());
                        self.state = State::Between;
                    }
                    None => {
                        // Its end may be the beginning of the mark.
                        let keep = self.held.len().saturating_sub(close.len());
                        self.held.drain(..self.held.floor_char_boundary(keep));
                        return String::new();
                    }
                },
                State::Between => {
                    let blanks = self.held.len() - self.held.trim_start().len();
                    self.held.drain(..blanks);
                    if self.held.is_empty() {
                        return String::new();
                    }
                    self.state = State::Answering;
                }
                State::Answering => return std::mem::take(&mut self.held),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_split_from_the_response() {
        for (text, response) in [
            ("<think>a {1} b</think>\n{\"a\": 2}", "{\"a\": 2}"),
            ("\n<think>\n</think>\n\nyes", "yes"),
            ("[THINK]no[/THINK]yes", "yes"),
            ("no, or\n</think>\n\nyes", "yes"),
            ("<think>all of it</think>", ""),
            ("<think>it never ends", "<think>it never ends"),
            ("the tag `</think>` ends\nthoughts", "the tag `</think>` ends\nthoughts"),
            ("I say <think>x</think>", "I say <think>x</think>"),
            ("", ""),
        ] {
            let (thoughts, found) = split(text);
            assert_eq!(found, response, "{text}");
            assert!(text.starts_with(thoughts) && text.ends_with(found), "{text}");
        }
    }

    #[test]
    fn thoughts_are_not_shown_however_they_come() {
        for (text, shown) in [
            ("<think>ä{1} </thin</think>\n\n yes </think>", "yes </think>"),
            (" <thin air", " <thin air"),
            ("[THINK]no[/THINK]yes", "yes"),
            ("<think>", ""),
        ] {
            for size in 1..text.len() {
                let mut filter = Filter::default();
                let chars: Vec<char> = text.chars().collect();
                let found: String =
                    chars.chunks(size).map(|piece| filter.pass(&piece.iter().collect::<String>())).collect();
                assert_eq!(found, shown, "{text} {size}");
            }
        }
    }
}

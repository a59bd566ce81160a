//! Decoding, token by token.

use std::time::{Duration, Instant};

use etude_core::model::Tool;
use llguidance::Matcher;
use llguidance::toktrie::{SimpleVob, TokenId};

use super::{GenerateError, Model, Timing};
use crate::grammar::{GrammarError, Grammars};
use crate::network::CHUNK;
use crate::sample::Sampler;
use crate::template::CALL_START;

/// Number of digits in a row after which a bound response should continue with something else: a grammar allows numbers of any
/// length, and one third has no last digit.
const DIGITS: usize = 24;

/// A response in progress.
pub(super) struct Decoding<'a> {
    model: &'a mut Model,
    is_cancelled: &'a dyn Fn() -> bool,
    sampler: Sampler,
    /// The tokens of prompt and response.
    tokens: Vec<TokenId>,
    /// The start of the response in `tokens`.
    start: usize,
    /// Maximum number of tokens of the response.
    room: usize,
    output: Vec<u8>,
    reused: usize,
    timing: Timing,
}

pub(super) struct Written {
    pub(super) text: String,
    pub(super) tokens: usize,
    /// Number of tokens of the prompt that had been read before.
    pub(super) reused: usize,
}

impl<'a> Decoding<'a> {
    pub(super) fn new(
        model: &'a mut Model,
        prompt: Vec<TokenId>,
        room: usize,
        sampler: Sampler,
        is_cancelled: &'a dyn Fn() -> bool,
    ) -> Self {
        let reused = shared(model.network.read(), &prompt);
        let timing = Timing { prompt_tokens: prompt.len() - reused, ..Timing::default() };
        let start = prompt.len();
        Self { model, is_cancelled, sampler, tokens: prompt, start, room, output: Vec::new(), reused, timing }
    }

    /// Generates free text; with `tools`, a call is bound from its mark on. False if the text was cut off. It ends before any
    /// text of `stop`. `on_delta` receives the text as it grows, without a tail that may become such a text.
    pub(super) fn free(
        &mut self,
        tools: &[Tool],
        stop: &[String],
        on_delta: Option<&dyn Fn(&str)>,
    ) -> Result<bool, GenerateError> {
        let mut emitted = 0;
        let held = stop.iter().map(|text| text.len().saturating_sub(1)).max().unwrap_or(0);
        while self.written() < self.room {
            let scores = self.read()?;
            let token = self.choose(&scores, None)?;
            if self.model.vocabulary.is_end(token) {
                return Ok(true);
            }
            let before = self.output.len();
            self.push(token);
            if let Some(at) = first_stop(&self.output, stop, before) {
                self.output.truncate(at);
                return Ok(true);
            }
            if let Some(on_delta) = on_delta {
                let certain = &self.output[..self.output.len().saturating_sub(held)];
                let text = whole_characters(certain).trim();
                if let Some(more) = text.get(emitted..).filter(|more| !more.is_empty()) {
                    on_delta(more);
                    emitted = text.len();
                }
            }
            if !tools.is_empty()
                && let Some(at) = call(&self.output)
            {
                self.cut_to_mark(at);
                return self.bound(|grammars| grammars.after_mark(tools));
            }
        }
        Ok(false)
    }

    /// Generates text that the grammar allows. False if it was cut off.
    pub(super) fn bound(
        &mut self,
        grammar: impl FnOnce(&Grammars) -> Result<Matcher, GrammarError>,
    ) -> Result<bool, GenerateError> {
        let mut matcher = grammar(&self.model.grammars)?;
        let gave_up = |matcher: &Matcher| GenerateError::Engine(matcher.get_error().unwrap_or_default());
        loop {
            let forced = matcher.consume_ff_tokens();
            self.timing.forced_tokens += forced.len();
            for token in forced {
                if self.written() == self.room {
                    return Ok(false);
                }
                self.push(token);
            }
            if matcher.is_error() {
                return Err(gave_up(&matcher));
            }
            if matcher.is_stopped() {
                return Ok(true);
            }
            if self.written() >= self.room {
                return Ok(false);
            }
            let scores = self.read()?;
            let mask = matcher.compute_mask_or_eos().map_err(|_| gave_up(&matcher))?;
            let token = self.choose(&scores, Some(mask))?;
            if self.model.vocabulary.is_end(token) {
                return Ok(true);
            }
            matcher.consume_token(token).map_err(|_| gave_up(&matcher))?;
            self.push(token);
        }
    }

    /// The time since the start, divided into its parts.
    pub(super) fn timing(&self, elapsed: Duration) -> Timing {
        Timing { response: elapsed.saturating_sub(self.timing.prompt), response_tokens: self.written(), ..self.timing }
    }

    pub(super) fn finish(self) -> Written {
        let tokens = self.written();
        Written { text: String::from_utf8_lossy(&self.output).into_owned(), tokens, reused: self.reused }
    }

    fn written(&self) -> usize {
        self.tokens.len() - self.start
    }

    fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
        self.output.extend_from_slice(self.model.vocabulary.bytes(token));
    }

    /// Replaces everything from `at` on by a mark, because it was not bound.
    fn cut_to_mark(&mut self, at: usize) {
        self.output.truncate(at);
        self.output.extend_from_slice(CALL_START.as_bytes());
        let text = String::from_utf8_lossy(&self.output).into_owned();
        self.tokens.truncate(self.start);
        self.tokens.extend(self.model.vocabulary.encode_marked(&text));
    }

    /// Reads the new tokens, and returns the scores of the next token.
    fn read(&mut self) -> Result<Vec<f32>, GenerateError> {
        let begun = Instant::now();
        let network = &mut self.model.network;
        // The scores are those after the last token, so that one is always read.
        let known = shared(network.read(), &self.tokens).min(self.tokens.len().saturating_sub(1));
        network.roll_back(known);
        let mut scores = Vec::new();
        for chunk in self.tokens[known..].chunks(CHUNK) {
            if (self.is_cancelled)() {
                return Err(GenerateError::Cancelled);
            }
            scores = network.advance(chunk).map_err(|error| GenerateError::Engine(error.to_string()))?;
        }
        if self.written() == 0 {
            self.timing.prompt = begun.elapsed();
        }
        Ok(scores)
    }

    fn choose(&mut self, scores: &[f32], mask: Option<SimpleVob>) -> Result<TokenId, GenerateError> {
        let mask = mask.map(|mask| {
            let digits = self.output.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            if digits < DIGITS { mask } else { without_digits(mask, |token| self.model.vocabulary.bytes(token)) }
        });
        let chosen = self.sampler.choose(scores, mask.as_ref());
        chosen.ok_or_else(|| GenerateError::Engine("the grammar allows no token here".into()))
    }
}

/// `mask` without the tokens that begin with a digit, unless it has no others.
fn without_digits<'v>(mask: SimpleVob, bytes: impl Fn(TokenId) -> &'v [u8]) -> SimpleVob {
    let mut others = mask.clone();
    mask.iter_set_entries(|token| {
        if let Ok(token) = TokenId::try_from(token)
            && bytes(token).first().is_some_and(u8::is_ascii_digit)
        {
            others.disallow_token(token);
        }
    });
    if others.is_zero() { mask } else { others }
}

/// The index of the first text of `stop` in `output`; the bytes before `known` have been searched already.
fn first_stop(output: &[u8], stop: &[String], known: usize) -> Option<usize> {
    let found = stop.iter().filter_map(|text| {
        let from = known.saturating_sub(text.len().saturating_sub(1));
        let at = output[from..].windows(text.len()).position(|window| window == text.as_bytes())?;
        Some(from + at)
    });
    found.min()
}

/// The start of `output` that is valid text: a token may end within a character.
fn whole_characters(output: &[u8]) -> &str {
    match std::str::from_utf8(output) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&output[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// The length of the common prefix.
fn shared(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The index of a call in `text`: that of its mark, or 0 if the response is the object of a call without a mark. Small models
/// forget the mark, and put the object into a block of code.
fn call(text: &[u8]) -> Option<usize> {
    if let Some(at) = text.windows(CALL_START.len()).position(|window| window == CALL_START.as_bytes()) {
        return Some(at);
    }
    let rest = text.trim_ascii_start();
    let rest = rest.strip_prefix(b"```").map_or(rest, |rest| rest.strip_prefix(b"json").unwrap_or(rest));
    let rest = rest.trim_ascii_start().strip_prefix(b"{")?.trim_ascii_start();
    rest.strip_prefix(b"\"name\"")?.trim_ascii_start().starts_with(b":").then_some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_found_across_tokens_and_the_first_one_counts() {
        let stop = ["\n\n".to_owned(), "END".to_owned()];
        assert_eq!(first_stop(b"one\n\nEND", &stop, 4), Some(3));
        assert_eq!(first_stop(b"one END\n\n", &stop, 0), Some(4));
        assert_eq!(first_stop(b"one\nEN", &stop, 0), None);
        assert_eq!(first_stop(b"one", &[], 0), None);
    }

    #[test]
    fn a_call_is_seen_with_its_mark_and_without() {
        for (text, at) in [
            ("Well: <tool_call>", Some(6)),
            ("{\"name\": ", Some(0)),
            ("```json\n{\n  \"name\":", Some(0)),
            ("```\n{\"name\" :", Some(0)),
            ("{\"name\"", None),
            ("{\"answer\": 1", None),
            ("Use {\"name\": \"x\"}", None),
        ] {
            assert_eq!(call(text.as_bytes()), at, "{text}");
        }
    }
}

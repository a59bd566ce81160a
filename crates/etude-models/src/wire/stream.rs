//! Streamed responses.
//!
//! Each API has an assembler, which combines the events of a stream into **the body that a whole response would have had**.
//! The same `decode` as for any other body then reads it, so that the response is the same either way.

mod anthropic;
mod gemini;
mod openai_chat;
mod openai_responses;
mod room;

use etude_core::tree::{self, TreeError};
use etude_http::sse::{Event, Events, TooLarge};
use reqwest::Url;
use serde_json::{Value, json};

use super::{DecodeError, MAX_BODY_BYTES};
use crate::kind::ProviderKind;
use room::Room;

/// Receiver of the text of a response.
pub(crate) type Emit<'a> = &'a mut (dyn FnMut(&str) + Send);

/// Combines the events of one response.
pub(crate) trait Assembler: Send {
    /// Handles an event, and emits its text. True if nothing of the response can follow.
    fn take(&mut self, name: &str, data: Value, emit: Emit<'_>) -> Result<bool, DecodeError>;

    /// True if the response has ended, although usage may still follow. A stream that ends here has delivered all of it.
    fn is_answered(&self) -> bool {
        false
    }

    /// The body that the whole response would have had. `None` if the stream ended before the response did. `is_done` is true
    /// if the stream itself reported its end.
    fn finish(self: Box<Self>, is_done: bool) -> Option<Value>;
}

/// The assembler for the API of `kind`.
pub(crate) fn assembler(kind: ProviderKind) -> Box<dyn Assembler> {
    match kind {
        ProviderKind::Anthropic => Box::<anthropic::Message>::default(),
        ProviderKind::OpenAi => Box::<openai_responses::Response>::default(),
        ProviderKind::Gemini => Box::<gemini::Candidate>::default(),
        ProviderKind::OpenAiChat => Box::<openai_chat::Completion>::default(),
        _ => Box::new(openai_chat::Completion::without_thoughts()),
    }
}

/// Turns the request for a whole response into one for a stream.
pub(crate) fn ask(kind: ProviderKind, mut url: Url, mut body: Value) -> (Url, Value) {
    match kind {
        ProviderKind::Gemini => {
            let path = url.path().strip_suffix(":generateContent").map(|path| format!("{path}:streamGenerateContent"));
            if let Some(path) = path {
                url.set_path(&path);
            }
            url.query_pairs_mut().append_pair("alt", "sse");
        }
        ProviderKind::Anthropic | ProviderKind::OpenAi => body["stream"] = Value::Bool(true),
        _ => {
            body["stream"] = Value::Bool(true);
            // Without this, a stream has no usage.
            body["stream_options"] = json!({ "include_usage": true });
        }
    }
    (url, body)
}

/// Body of a response, from either form.
#[derive(Debug, PartialEq)]
pub(crate) enum Body {
    /// The server did not stream: the unchanged body.
    Whole(Vec<u8>),
    /// The body that a whole response would have had.
    Assembled(Value),
}

/// Reason why the bytes are not a response.
#[derive(Debug, PartialEq)]
pub(crate) enum Broken {
    /// The bytes ended before the response did.
    Off,
    /// A single event, or a response without events, is larger than any response.
    TooLarge,
    /// An event reports a failure, or cannot be read. With the event's data.
    Event(DecodeError, String),
}

impl From<TooLarge> for Broken {
    fn from(_: TooLarge) -> Self {
        Self::TooLarge
    }
}

/// Reads the bytes of a response as they come. The first byte decides between events and a whole body, since content types are
/// not always true: JSON begins with a bracket, and an event never does.
pub(crate) struct Reader {
    assembler: Box<dyn Assembler>,
    form: Form,
    is_over: bool,
    is_done: bool,
    events: usize,
}

enum Form {
    Unknown,
    Whole(Vec<u8>),
    Events(Events),
}

impl Reader {
    pub(crate) fn new(assembler: Box<dyn Assembler>) -> Self {
        Self { assembler, form: Form::Unknown, is_over: false, is_done: false, events: 0 }
    }

    /// Number of events so far, once the response has ended and only its usage can follow.
    pub(crate) fn answered(&self) -> Option<usize> {
        self.assembler.is_answered().then_some(self.events)
    }

    /// Handles more bytes, and emits their text. True if nothing of the response can follow.
    pub(crate) fn push(&mut self, mut bytes: &[u8], emit: Emit<'_>) -> Result<bool, Broken> {
        if matches!(self.form, Form::Unknown) {
            // Leading blanks are dropped, in one piece or in many.
            bytes = bytes.trim_ascii_start();
            self.form = match bytes.first() {
                None => return Ok(false),
                Some(b'{' | b'[') => Form::Whole(Vec::new()),
                Some(_) => Form::Events(Events::default()),
            };
        }
        match &mut self.form {
            Form::Whole(body) if body.len() + bytes.len() > MAX_BODY_BYTES => return Err(Broken::TooLarge),
            Form::Whole(body) => body.extend_from_slice(bytes),
            Form::Events(events) => {
                let (assembler, is_over, is_done) = (&mut self.assembler, &mut self.is_over, &mut self.is_done);
                let count = &mut self.events;
                events.push(bytes, |event| {
                    *count += 1;
                    if !*is_over {
                        *is_done |= event.data.trim() == DONE;
                        *is_over = *is_done || take(&mut **assembler, event, &mut *emit)?;
                    }
                    Ok::<_, Broken>(())
                })?;
            }
            Form::Unknown => {}
        }
        Ok(self.is_over)
    }

    /// The body, at the end of the bytes.
    pub(crate) fn end(mut self, emit: Emit<'_>) -> Result<Body, Broken> {
        match self.form {
            Form::Whole(body) => return Ok(Body::Whole(body)),
            Form::Unknown => return Err(Broken::Off),
            Form::Events(events) => {
                if let Some(event) = events.end().filter(|_| !self.is_over) {
                    match event.data.trim() == DONE {
                        true => self.is_done = true,
                        // Half an event means that the stream broke off, not that the server writes nonsense.
                        false => match take(&mut *self.assembler, event, emit) {
                            Err(Broken::Event(DecodeError::Unreadable(_), _)) => match self.assembler.is_answered() {
                                true => {}
                                false => return Err(Broken::Off),
                            },
                            taken => drop(taken?),
                        },
                    }
                }
            }
        }
        self.assembler.finish(self.is_done).map(Body::Assembled).ok_or(Broken::Off)
    }
}

/// Event data with which the chat API ends a stream.
const DONE: &str = "[DONE]";

fn take(assembler: &mut dyn Assembler, event: Event, emit: Emit<'_>) -> Result<bool, Broken> {
    if event.data.trim().is_empty() {
        return Ok(false);
    }
    let unreadable = |why: String| Broken::Event(DecodeError::Unreadable(why), event.data.clone());
    let value = tree::parse_response(&event.data).map_err(|error| match error {
        TreeError::Json(error) => unreadable(format!("an event is not JSON: {error}")),
        error @ TreeError::TooMany(_) => Broken::Event(DecodeError::TooMuch(error.to_string()), String::new()),
    })?;
    if !value.is_object() {
        return Err(unreadable("an event is not an object".to_owned()));
    }
    assembler.take(&event.name, value, emit).map_err(|error| Broken::Event(error, event.data))
}

/// Copies the members of `from` that have a value over those of `onto`.
fn lay_over(onto: &mut Value, from: &Value, room: &mut Room) -> Result<(), DecodeError> {
    let Some(from) = from.as_object() else { return Ok(()) };
    if !onto.is_object() {
        *onto = json!({});
    }
    for (name, value) in from.iter().filter(|(_, value)| !value.is_null()) {
        room.value(value)?;
        match onto.get(name) {
            Some(before) => room.give_back(before),
            None => room.text(name)?,
        }
        onto[name] = value.clone();
    }
    Ok(())
}

#[cfg(test)]
mod tests;

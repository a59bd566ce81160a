//! What goes through the socket: a length of four bytes, little-endian, then JSON, in both directions.
//!
//! A connection carries one call. Whoever asked closes it to give the call up.

mod wire;

use std::io::{self, Read, Write};

use etude_core::model::{Answer, Request};
use serde::{Deserialize, Serialize};

use crate::generate::GenerateError;
use wire::{WireAnswer, WireRequest};

/// The version of what goes through the socket. It is part of the socket's name, so that two versions of the program
/// never meet.
pub(crate) const VERSION: u32 = 1;

/// Most bytes of a message: far above any context, and far below what would hurt.
const LARGEST: u32 = 64 << 20;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub(crate) enum Call {
    /// For an answer. `client` is who asks: clients take turns.
    Generate { client: String, request: WireRequest },
    /// For nothing; the answer says what is served.
    Status,
    /// To end as soon as nothing is under way.
    Stop,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(crate) enum Reply {
    /// To `Generate`.
    Answer { answer: WireAnswer },
    /// To `Generate`, if there is no answer.
    Failed { kind: FailureKind, message: String },
    /// To `Status`.
    Status(Status),
    /// To `Stop`.
    Stopping,
    /// To `Generate`, if the process is about to end: another one has to be started.
    Ending,
}

/// What a model process is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The model's name.
    pub model: String,
    /// The process.
    pub process: u32,
    /// True once the weights are in memory.
    pub is_loaded: bool,
    /// Calls that wait or are under way.
    pub calls: usize,
}

/// Who has to do something about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// Whoever set the machine up: the weights are missing or broken.
    Environment,
    /// Whoever wrote the request: it is too long, or has what the model cannot read.
    Request,
    /// Nobody: the model's machinery failed.
    Engine,
}

impl Call {
    pub(crate) fn generate(client: &str, request: &Request) -> Self {
        Self::Generate { client: client.to_owned(), request: WireRequest::from(request) }
    }
}

impl Reply {
    pub(crate) fn of(result: Result<Answer, GenerateError>) -> Self {
        match result {
            Ok(answer) => Self::Answer { answer: WireAnswer::from(answer) },
            Err(error) => {
                let kind = match error {
                    GenerateError::Template(_) | GenerateError::TooLong { .. } | GenerateError::Grammar(_) => {
                        FailureKind::Request
                    }
                    GenerateError::Cancelled | GenerateError::Engine(_) => FailureKind::Engine,
                };
                Self::Failed { kind, message: error.to_string() }
            }
        }
    }
}

/// Writes one message.
pub(crate) fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let len = u32::try_from(text.len()).ok().filter(|len| *len <= LARGEST);
    let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too large"))?;
    // In one piece: a reader never sees a length without anything behind it.
    let mut frame = len.to_le_bytes().to_vec();
    frame.extend_from_slice(&text);
    stream.write_all(&frame)?;
    stream.flush()
}

/// Reads one message; `None` if the other side has closed before its start.
pub(crate) fn receive<T: for<'de> Deserialize<'de>>(stream: &mut impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match stream.read(&mut len[..1])? {
        0 => return Ok(None),
        _ => stream.read_exact(&mut len[1..])?,
    }
    let len = u32::from_le_bytes(len);
    if len > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {len} bytes is announced")));
    }
    let mut text = Vec::new();
    if stream.take(u64::from(len)).read_to_end(&mut text)? < len as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&text)?))
}

#[cfg(test)]
mod tests;

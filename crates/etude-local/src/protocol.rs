//! What goes through the socket: a length of four bytes, little-endian, then JSON, in both directions.
//!
//! A connection carries one call. The caller closes it to cancel the call.

mod wire;

use std::io::{self, Read, Write};

use etude_core::model::{ModelResponse, Request};

use crate::generate::GenerateError;
pub use wire::Status;
pub(crate) use wire::{Call, FailureKind, Reply};
use wire::{Frame, WireAnswer, WireRequest};

/// The version of what goes through the socket. It is part of the socket's name, so that two versions of the program
/// never meet.
pub(crate) const VERSION: u32 = 1;

/// Most bytes of a message: far above any context, and far below what would hurt.
const MAX_SIZE: u32 = 64 << 20;

impl Call {
    pub(crate) fn generate(client: &str, request: &Request) -> Self {
        Self::Generate { client: client.to_owned(), request: Box::new(WireRequest::from(request)) }
    }
}

impl Reply {
    pub(crate) fn of(result: Result<ModelResponse, GenerateError>) -> Self {
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
pub(crate) fn send<T: Frame>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let text = message.to_json()?;
    let len = u32::try_from(text.len()).ok().filter(|len| *len <= MAX_SIZE);
    let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too large"))?;
    // In one piece: a reader never sees a length without anything behind it.
    let mut frame = len.to_le_bytes().to_vec();
    frame.extend_from_slice(&text);
    stream.write_all(&frame)?;
    stream.flush()
}

/// Reads one message; `None` if the other side has closed before its start.
pub(crate) fn receive<T: Frame>(stream: &mut impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match stream.read(&mut len[..1])? {
        0 => return Ok(None),
        _ => stream.read_exact(&mut len[1..])?,
    }
    let len = u32::from_le_bytes(len);
    if len > MAX_SIZE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {len} bytes is announced")));
    }
    let mut text = Vec::new();
    if stream.take(u64::from(len)).read_to_end(&mut text)? < len as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    T::from_json(&text).map(Some)
}

#[cfg(test)]
mod tests;

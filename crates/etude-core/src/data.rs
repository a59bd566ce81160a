//! JSON values as they pass through a run: text, never parsed and printed again.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::digest::Digest;
use crate::exact::Comparand;
use crate::tree;

/// `object` with the members of `more` laid over its own; unchanged if either is not an object.
pub(crate) fn overlaid(mut object: Value, more: Value) -> Value {
    if let (Some(members), Value::Object(more)) = (object.as_object_mut(), more) {
        members.extend(more);
    }
    object
}

/// The text of a JSON string, or any other value as compact JSON.
pub fn bare(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        value => Cow::Owned(value.to_string()),
    }
}

/// One JSON value, kept as the text it was written in, so that numbers of any size and precision pass unchanged.
///
/// Small values are held in memory. Large ones lie in a content-addressed store outside this crate and are read when
/// a template, a condition or a schema needs them; cloning either kind is cheap.
#[derive(Clone)]
pub struct Json(Repr);

#[derive(Clone)]
enum Repr {
    Inline(Arc<str>),
    Stored(Arc<Stored>),
}

/// A JSON value that lies in a [`Blob`].
#[derive(Debug)]
pub struct Stored {
    /// Hash of the whole blob: its address in the store.
    pub blob: Digest,
    /// Start of the value in the blob, in bytes.
    pub offset: u64,
    /// Length of the value, in bytes.
    pub len: u64,
    /// Hash of the value's own text.
    pub digest: Digest,
    /// The store's handle to read the blob.
    pub source: Arc<dyn Blob>,
}

/// Bytes that are kept outside this crate, which does no IO.
pub trait Blob: Send + Sync + fmt::Debug {
    /// Reads up to `into.len()` bytes from `offset` on; returns the number of bytes read (0 at the end).
    ///
    /// # Errors
    /// A sentence fragment that says why the bytes are not available.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, String>;
}

/// Reason why a JSON value could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The store could not provide the bytes.
    #[error("the stored value {blob} cannot be read: {why}")]
    Store {
        /// Address of the blob.
        blob: Digest,
        /// The error of the store, as a sentence fragment.
        why: String,
    },
    /// The bytes differ from the JSON text that was stored.
    #[error("the stored value {0} is damaged")]
    Damaged(Digest),
    /// The value can be passed on, but not looked into: it is nested too deeply, has too many values, or has text that
    /// is not Unicode.
    #[error("the value cannot be parsed: {0}")]
    Opaque(String),
}

impl Json {
    /// The value `null`.
    pub fn null() -> Self {
        Self(Repr::Inline(Arc::from("null")))
    }

    /// Checks that `text` is exactly one JSON value (blanks around it are dropped) and keeps it as written.
    ///
    /// # Errors
    /// The fault and its position, in the words of `serde_json`.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let raw: &RawValue = serde_json::from_str(text)?;
        Ok(Self::trusted(raw.get()))
    }

    /// Keeps `text`, which the caller knows to be one JSON value without blanks around it.
    pub fn trusted(text: impl Into<Arc<str>>) -> Self {
        Self(Repr::Inline(text.into()))
    }

    /// A value that is kept in a store.
    pub fn stored(stored: Stored) -> Self {
        Self(Repr::Stored(Arc::new(stored)))
    }

    /// A JSON string.
    pub fn string(text: &str) -> Self {
        Self::trusted(serde_json::Value::from(text).to_string())
    }

    /// The compact text of `value`.
    pub fn of(value: &serde_json::Value) -> Self {
        Self::trusted(value.to_string())
    }

    /// The text, if the value is held in memory.
    pub fn inline(&self) -> Option<&str> {
        match &self.0 {
            Repr::Inline(text) => Some(text),
            Repr::Stored(_) => None,
        }
    }

    /// Location of the value in its store; `None` if the value is held in memory.
    pub fn as_stored(&self) -> Option<&Stored> {
        match &self.0 {
            Repr::Inline(_) => None,
            Repr::Stored(stored) => Some(stored),
        }
    }

    /// Length of the text in bytes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Repr::Inline(text) => text.len() as u64,
            Repr::Stored(stored) => stored.len,
        }
    }

    /// Never true: the shortest JSON value has one character.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hash of the text.
    pub fn digest(&self) -> Digest {
        match &self.0 {
            Repr::Inline(text) => Digest::of(text.as_bytes()),
            Repr::Stored(stored) => stored.digest,
        }
    }

    /// The text, read from the store if necessary.
    ///
    /// # Errors
    /// The store cannot provide the text, or provides other bytes.
    pub fn text(&self) -> Result<Arc<str>, ReadError> {
        match &self.0 {
            Repr::Inline(text) => Ok(Arc::clone(text)),
            Repr::Stored(stored) => stored.read(),
        }
    }

    /// The value as a tree. Integers beyond 64 bits and floats lose precision: the tree is for decisions, not for
    /// passing on.
    ///
    /// # Errors
    /// As [`Json::text`]. Also if the value is nested deeper than 127 levels, has more than [`tree::MAX_VALUES`]
    /// values, or a lone surrogate.
    pub fn value(&self) -> Result<serde_json::Value, ReadError> {
        let text = self.text()?;
        tree::parse(&text).map_err(|error| ReadError::Opaque(error.to_string()))
    }
}

/// The text of a JSON string. A lone surrogate, which JSON can write but no Rust string can hold, becomes the
/// replacement character.
pub(crate) fn unicode(string: &str) -> String {
    let bytes = serde_json::Deserializer::from_str(string).deserialize_bytes(StringBytes).unwrap_or_default();
    let half = |chunk: &[u8]| if chunk.first() == Some(&0xED) { "\u{fffd}" } else { "" };
    bytes.utf8_chunks().flat_map(|chunk| [chunk.valid(), half(chunk.invalid())]).collect()
}

/// Takes a JSON string as the bytes that `serde_json` makes of it: a lone surrogate becomes three bytes that are not UTF-8.
struct StringBytes;

impl Visitor<'_> for StringBytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_owned())
    }
}

/// The members of the JSON object in `text`, in order; members with the same name are all kept.
///
/// # Errors
/// The text is not a JSON object.
pub fn every_member(text: &str) -> Result<Vec<(String, Box<RawValue>)>, serde_json::Error> {
    let mut from = serde_json::Deserializer::from_str(text);
    let members = from.deserialize_map(EveryMember)?;
    from.end()?;
    Ok(members)
}

struct EveryMember;

impl<'de> Visitor<'de> for EveryMember {
    type Value = Vec<(String, Box<RawValue>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Self::Value, M::Error> {
        let mut list = Vec::new();
        while let Some(member) = members.next_entry()? {
            list.push(member);
        }
        Ok(list)
    }
}

impl Json {
    /// The value in a form that compares numbers to the last digit.
    ///
    /// # Errors
    /// As [`Json::value`], except for numbers that are out of the range of a tree.
    pub fn comparand(&self) -> Result<Comparand, ReadError> {
        let text = self.text()?;
        Comparand::parse(&text).map_err(|error| ReadError::Opaque(error.to_string()))
    }
}

impl Stored {
    fn read(&self) -> Result<Arc<str>, ReadError> {
        let mut bytes = vec![0; usize::try_from(self.len).map_err(|_| ReadError::Damaged(self.blob))?];
        let mut done = 0;
        while done < bytes.len() {
            let got = self
                .source
                .read_at(self.offset + done as u64, &mut bytes[done..])
                .map_err(|why| ReadError::Store { blob: self.blob, why })?;
            if got == 0 {
                return Err(ReadError::Damaged(self.blob));
            }
            done += got;
        }
        String::from_utf8(bytes).map(Arc::from).map_err(|_| ReadError::Damaged(self.blob))
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.digest() == other.digest()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Inline(text) => f.write_str(text),
            Repr::Stored(stored) => write!(f, "<{} bytes in {}>", stored.len, stored.blob),
        }
    }
}

//! Reads stdout according to the protocol, without building a tree and without copying the value.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use etude_core::data::{Json, Stored};
use etude_core::digest::Digest;
use etude_core::effect::Protocol;
use etude_core::outcome::Stdout;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::capture::Captured;
use super::{diagnosis, text};
use crate::blob::{BlobStore, INLINE_LIMIT, Scratch};

/// The value or fault in the captured bytes. A long value stays in the scratch file, which the store then keeps.
pub(super) fn read(protocol: Protocol, captured: Captured, store: &dyn BlobStore) -> Stdout {
    match captured {
        Captured::Memory(bytes) if protocol == Protocol::Text => {
            text::read(&mut bytes.as_slice(), text::content(&bytes, 0), store)
        }
        Captured::File { scratch, len, .. } if protocol == Protocol::Text => text::read_file(scratch, len, store),
        Captured::Memory(bytes) => match value(protocol, &bytes) {
            Ok((range, text)) => Stdout::Value(Json::trusted(&text[range])),
            Err(unusable) => unusable,
        },
        Captured::File { scratch, digest, len } => {
            read_file(protocol, scratch, digest, len, store).unwrap_or_else(|error| unkept(&error.to_string()))
        }
        Captured::Lost(why) => unkept(&why),
    }
}

fn read_file(
    protocol: Protocol,
    mut scratch: Scratch,
    digest: Digest,
    len: u64,
    store: &dyn BlobStore,
) -> io::Result<Stdout> {
    // The only time that all of a long output is in memory: `bytes` is dropped once the value is known to be valid.
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    scratch.file().seek(SeekFrom::Start(0))?;
    scratch.file().read_to_end(&mut bytes)?;
    let (range, text) = match value(protocol, &bytes) {
        Ok(found) => found,
        Err(unusable) => return Ok(unusable),
    };
    if range.len() <= INLINE_LIMIT {
        return Ok(Stdout::Value(Json::trusted(&text[range])));
    }
    let value_digest = Digest::of(&bytes[range.clone()]);
    drop(bytes);
    let source = store.keep(scratch, digest, len)?;
    let (offset, len) = (range.start as u64, range.len() as u64);
    Ok(Stdout::Value(Json::stored(Stored { blob: digest, offset, len, digest: value_digest, source })))
}

pub(super) fn unkept(why: &str) -> Stdout {
    Stdout::Unusable { problem: format!("cannot store stdout: {why}"), found: String::new() }
}

/// The range of the value in `bytes`, and `bytes` as text.
fn value(protocol: Protocol, bytes: &[u8]) -> Result<(Range<usize>, &str), Stdout> {
    let text = std::str::from_utf8(bytes).map_err(|_| diagnosis::diagnose(protocol, bytes))?;
    let raw = match protocol {
        Protocol::Step => serde_json::from_str::<StepDocument<'_>>(text).ok().and_then(|document| document.output),
        // `text` reads text without parsing it.
        Protocol::Document | Protocol::Text => serde_json::from_str(text).ok(),
    };
    let raw: &str = raw.map(RawValue::get).ok_or_else(|| diagnosis::diagnose(protocol, bytes))?;
    // The value is a part of `text`, so the distance of the two starts is its offset.
    let start = raw.as_ptr().addr() - text.as_ptr().addr();
    Ok((start..start + raw.len(), text))
}

/// `{"output": …}`; other members are ignored.
struct StepDocument<'a> {
    output: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for StepDocument<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StepVisitor)
    }
}

struct StepVisitor;

impl<'de> Visitor<'de> for StepVisitor {
    type Value = StepDocument<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `output`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut output = None;
        while let Some(Key { is_output }) = map.next_key()? {
            if !is_output {
                map.next_value::<IgnoredAny>()?;
            } else if output.replace(map.next_value()?).is_some() {
                return Err(de::Error::duplicate_field("output"));
            }
        }
        Ok(StepDocument { output })
    }
}

struct Key {
    is_output: bool,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Key, E> {
                Ok(Key { is_output: name == "output" })
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

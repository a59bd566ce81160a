//! Completions of models and outputs of steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::effect::Protocol;
use etude_core::model::ResponseSchema;
use etude_core::outcome::Stdout;
use etude_core::schema::Schema;
use etude_core::{extract, tool};
use etude_models::ProviderKind;
use etude_models::offline;
use serde_json::Value;

use super::{parts, text};

/// The kinds of providers with their own wire format.
const KINDS: [ProviderKind; 4] =
    [ProviderKind::Anthropic, ProviderKind::OpenAi, ProviderKind::OpenAiCompatible, ProviderKind::Gemini];

pub(super) fn answer(data: &[u8]) {
    let text = text(data);
    if let Some(found) = extract::json(&text) {
        assert!(text.contains(found), "what is found was written");
        serde_json::from_str::<&serde_json::value::RawValue>(found).expect("what is found is JSON");
        assert_eq!(extract::json(found), Some(found), "what is found is found again");
    }
    tool::arguments(&text);
    for kind in KINDS {
        // The input decides the meaning of the response; the reader must only return or refuse it.
        let _ = offline::read_completion(kind, data);
    }
}

/// The first byte selects the position at which the bytes are cut.
pub(super) fn stream(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let cut = (usize::from(*cut) * data.len() / 255).min(data.len());
    for kind in KINDS {
        let (mut whole, mut cut_up, mut single) = (String::new(), String::new(), String::new());
        let first = offline::read_stream(kind, [data], &mut |text| whole.push_str(text));
        let second = offline::read_stream(kind, [&data[..cut], &data[cut..]], &mut |text| cut_up.push_str(text));
        assert_eq!(first, second, "{kind}: cut at {cut}, the answer is another one");
        assert_eq!(whole, cut_up, "{kind}: cut at {cut}, the deltas differ");
        if data.len() <= 512 {
            let third = offline::read_stream(kind, data.chunks(1), &mut |text| single.push_str(text));
            assert_eq!((first, whole), (third, single), "{kind}: byte by byte, the answer is another one");
        }
    }
}

pub(super) fn recording(data: &[u8]) {
    let _ = offline::check_recording(&text(data));
}

/// A schema, and values after it.
pub(super) fn schema(data: &[u8]) {
    let text = text(data);
    let parts = parts(&text);
    let Ok(document) = serde_json::from_str::<Value>(parts[0]) else { return };
    let bundled = Schema::lazy("s", document.clone(), BTreeMap::new()).bundled();
    assert_eq!(*bundled, document, "what refers to nothing is as it was");
    for kind in KINDS {
        let schema = ResponseSchema { name: "answer".to_owned(), schema: Arc::new(document.clone()) };
        let values: Vec<&str> = parts.iter().skip(1).copied().collect();
        offline::prepare_schema(kind, &schema, &values);
    }
    if let Ok(schema) = Schema::compile("s", document, BTreeMap::new()) {
        for value in parts.iter().skip(1).filter_map(|part| serde_json::from_str(part).ok()).take(4) {
            let faults = schema.violations(&value);
            assert!(faults.iter().all(|fault| !fault.message.is_empty()), "a fault says something");
        }
    }
}

pub(super) fn stdout(data: &[u8]) {
    for protocol in [Protocol::Step, Protocol::Document] {
        match etude_process::stdout_of(protocol, data.to_vec(), &super::records::NoBlobs) {
            Stdout::Value(json) => {
                let text = json.text().expect("short values are in memory");
                assert!(data.windows(text.len()).any(|part| part == text.as_bytes()), "a value is as it was written");
            }
            Stdout::Unusable { problem, .. } => assert!(!problem.is_empty(), "a fault says something"),
        }
    }
    let printed = std::str::from_utf8(data).ok();
    match etude_process::stdout_of(Protocol::Text, data.to_vec(), &super::records::NoBlobs) {
        Stdout::Value(json) => {
            let kept: String =
                serde_json::from_str(json.inline().expect("short values are in memory")).expect("a string");
            assert!(printed.is_some_and(|printed| printed.starts_with(&kept)), "a text is as it was written");
        }
        Stdout::Unusable { problem, .. } => {
            assert!(printed.is_none() || problem.contains("kept"), "what is UTF-8 is text");
        }
    }
}

//! Comparison of requests field by field, with the first difference by name.

use std::collections::BTreeMap;

use etude_core::model::{Part, Request, Role};

use super::format::{Recording, canonical};

/// A request as a list of fields with their paths, in reading order.
pub(crate) type Fields = Vec<(String, String)>;

/// Number of characters that are shown before and after the position where two texts differ.
const CONTEXT_CHARS: usize = 20;

/// Splits a request into fields. `digests` are those of its images, by path; images without one match any content.
pub(crate) fn fields(request: &Request, digests: &BTreeMap<String, String>) -> Fields {
    let mut out = vec![("tier".to_owned(), request.tier.word().to_owned())];
    let mut add = |path: String, text: String| out.push((path, text));
    if let Some(system) = &request.system {
        add("system".to_owned(), system.clone());
    }
    for (index, message) in request.messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        add(format!("{at}.role"), role_word(message.role).to_owned());
        // Reasoning is not recorded.
        let parts = || message.parts.iter().filter(|part| !matches!(part, Part::Reasoning(_)));
        let single = parts().count() == 1;
        for (number, part) in parts().enumerate() {
            let at = if single { at.clone() } else { format!("{at}.parts[{number}]") };
            match part {
                Part::Text(text) => add(format!("{at}.text"), text.clone()),
                Part::Image { path } => {
                    add(format!("{at}.image"), path.clone());
                    if let Some(digest) = digests.get(path) {
                        add(format!("{at}.blake3"), digest.clone());
                    }
                }
                Part::ToolCall { id, name, arguments } => {
                    add(format!("{at}.tool_call.id"), id.clone());
                    add(format!("{at}.tool_call.name"), name.clone());
                    add(format!("{at}.tool_call.arguments"), arguments.clone());
                }
                Part::Reasoning(_) => {}
                Part::ToolResult { id, content } => {
                    add(format!("{at}.tool_result.id"), id.clone());
                    add(format!("{at}.tool_result.content"), content.clone());
                }
            }
        }
    }
    if let Some(schema) = &request.schema {
        add("schema".to_owned(), canonical(&schema.schema));
    }
    for (index, tool) in request.tools.iter().enumerate() {
        add(format!("tools[{index}].name"), tool.name.clone());
        add(format!("tools[{index}].description"), tool.description.clone());
        add(format!("tools[{index}].parameters"), canonical(&tool.parameters));
    }
    if let Some(temperature) = request.temperature {
        add("temperature".to_owned(), temperature.to_string());
    }
    if let Some(name) = &request.must_call {
        add("must_call".to_owned(), name.clone());
    }
    if let Some(most) = request.max_tokens {
        add("max_tokens".to_owned(), most.to_string());
    }
    out
}

pub(super) const fn role_word(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// True if the recording is one of this request. An image without a recorded digest matches any content.
pub(super) fn matches(recorded: &Fields, asked: &Fields) -> bool {
    difference(recorded, asked).is_none()
}

struct Difference<'a> {
    path: &'a str,
    recorded: Option<&'a str>,
    asked: Option<&'a str>,
    /// Number of fields that differ, including this one.
    count: usize,
}

fn difference<'a>(recorded: &'a Fields, asked: &'a Fields) -> Option<Difference<'a>> {
    let find =
        |fields: &'a Fields, path: &str| fields.iter().find(|(other, _)| other == path).map(|(_, text)| text.as_str());
    let mut first = None;
    let mut count = 0;
    let extra = recorded.iter().filter(|(path, _)| find(asked, path).is_none());
    for (path, _) in asked.iter().chain(extra) {
        let (then, now) = (find(recorded, path), find(asked, path));
        if then == now || (then.is_none() && path.ends_with(".blake3")) {
            continue;
        }
        count += 1;
        first.get_or_insert((path.as_str(), then, now));
    }
    let (path, then, now) = first?;
    Some(Difference { path, recorded: then, asked: now, count })
}

/// Describes the difference between the request and the nearest recording.
pub(crate) fn miss(recordings: &[Recording], asked: &Fields, place: &str) -> String {
    let nearest = recordings
        .iter()
        .filter_map(|recording| Some((recording, difference(&recording.fields, asked)?)))
        .min_by_key(|(_, found)| {
            let equal = equal_prefix(found.recorded.unwrap_or_default(), found.asked.unwrap_or_default());
            (found.count, std::cmp::Reverse(equal))
        });
    let Some((recording, found)) = nearest else {
        return format!("no recording in `{place}` matches: it has no recordings");
    };
    format!("no recording in `{place}` matches; the closest is `{}`: {}", recording.source, describe(&found))
}

fn describe(found: &Difference<'_>) -> String {
    let path = found.path;
    match (found.recorded, found.asked) {
        (Some(recorded), Some(asked)) => {
            let at = equal_prefix(recorded, asked);
            let (recorded, asked) = (excerpt(recorded, at), excerpt(asked, at));
            format!("{path} differs at character {at}: recorded \"{recorded}\", requested \"{asked}\"")
        }
        (None, Some(asked)) => format!("{path} is missing in the recording: requested \"{}\"", excerpt(asked, 0)),
        (Some(recorded), None) => format!("{path} is missing in the request: recorded \"{}\"", excerpt(recorded, 0)),
        (None, None) => format!("{path} differs"),
    }
}

fn equal_prefix(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count()
}

/// The text around the character `at`, on one line.
fn excerpt(text: &str, at: usize) -> String {
    let start = at.saturating_sub(CONTEXT_CHARS);
    let window: String = text.chars().skip(start).take(at - start + CONTEXT_CHARS).collect();
    let shown: String = window.escape_debug().collect();
    let before = if start > 0 { "…" } else { "" };
    let after = if text.chars().count() > at + CONTEXT_CHARS { "…" } else { "" };
    format!("{before}{shown}{after}")
}

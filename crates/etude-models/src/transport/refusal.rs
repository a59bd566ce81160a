//! Parser for the body of a failed response, in the forms of all providers.

use std::time::Duration;

use etude_core::tree;
use serde_json::Value;

/// Codes of a limit that does not end by waiting: the account has no credit left.
const SPENT: [&str; 1] = ["insufficient_quota"];

/// Codes of a refused key with another status than 401.
const BAD_KEY: [&str; 1] = ["API_KEY_INVALID"];

/// Codes of a response that a content filter withheld.
const FILTERED: [&str; 2] = ["content_filter", "content_policy_violation"];

/// The error in a body.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    /// The provider's own message.
    pub(super) message: String,
    /// The wait that the body requests.
    pub(super) asked: Option<Duration>,
    /// Code, type and reasons of the error.
    codes: Vec<String>,
}

impl Refusal {
    pub(super) fn read(body: &[u8]) -> Self {
        let text = || String::from_utf8_lossy(body).into_owned();
        let Ok(mut value) = tree::parse_response(body) else {
            return Self { message: text(), ..Self::default() };
        };
        // Gemini's errors arrive as an array if they come from a stream.
        if let Some(first) = value.as_array_mut().filter(|all| !all.is_empty()) {
            value = first.swap_remove(0);
        }
        let at = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
        let message = ["/error/message", "/message", "/detail", "/error"].iter().find_map(|pointer| at(pointer));
        let message = message.map_or_else(text, ToOwned::to_owned);
        let details = value.pointer("/error/details").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let reasons = details.iter().filter_map(|detail| detail.get("reason")?.as_str());
        let codes = ["/error/code", "/error/type", "/code", "/type"].iter().filter_map(|pointer| at(pointer));
        let delay = details.iter().find_map(|detail| duration(detail.get("retryDelay")?.as_str()?));
        Self {
            codes: codes.chain(reasons).map(ToOwned::to_owned).collect(),
            asked: delay.or_else(|| named_wait(&message)),
            message,
        }
    }

    /// True if the account has no credit left, so that another attempt is pointless.
    pub(super) fn is_spent(&self) -> bool {
        self.is_any_of(&SPENT)
    }

    /// True if the key is refused, whatever the status.
    pub(super) fn is_of_key(&self) -> bool {
        self.is_any_of(&BAD_KEY)
    }

    /// True if a content filter withheld the response.
    pub(super) fn is_filtered(&self) -> bool {
        self.is_any_of(&FILTERED)
    }

    fn is_any_of(&self, known: &[&str]) -> bool {
        self.codes.iter().any(|code| known.contains(&code.as_str()))
    }
}

/// The wait in a sentence such as "Please retry in 34.07s."
fn named_wait(message: &str) -> Option<Duration> {
    let rest = ["retry in ", "try again in "].iter().find_map(|words| message.split_once(words))?.1;
    duration(rest.split_whitespace().next()?)
}

/// A duration such as `34.07s`, `20ms` or `6m0s`, without the punctuation after it. It may be too long for a wait.
fn duration(text: &str) -> Option<Duration> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (number, rest) = text.split_at(text.find(|c| !is_number(c))?);
    let unit = rest.find(|c: char| !c.is_ascii_alphabetic()).map_or(rest, |end| &rest[..end]);
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * factor).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A-4.5: a wait that only the body names, as Gemini does, is read.
    #[test]
    fn the_wait_in_a_body_is_read() {
        let of = |body: &str| Refusal::read(body.as_bytes()).asked.map(|wait| wait.as_millis());
        let info = r#"{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074824224s"}"#;
        let whole = format!(r#"{{"error": {{"code": 429, "message": "quota", "details": [{{}}, {info}]}}}}"#);
        for (body, expected) in [
            (whole.as_str(), Some(34_074)),
            (&format!("[{whole}]"), Some(34_074)),
            (r#"{"error": {"message": "Quota exceeded.\nPlease retry in 12.5s."}}"#, Some(12_500)),
            (r#"{"error": {"message": "Please try again in 20ms. Visit us."}}"#, Some(20)),
            (r#"{"error": {"message": "Please try again in 6m0s."}}"#, Some(360_000)),
            (r#"{"error": {"message": "Please try again in a while"}}"#, None),
            (r#"{"error": {"message": "slow down"}}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(of(body), expected, "{body}");
        }
    }

    #[test]
    fn codes_are_read_wherever_they_stand() {
        let key = r#"{"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}"#;
        assert!(Refusal::read(key.as_bytes()).is_of_key());
        for body in
            [r#"{"error": {"code": "insufficient_quota", "message": "m"}}"#, r#"{"type": "insufficient_quota"}"#]
        {
            assert!(Refusal::read(body.as_bytes()).is_spent(), "{body}");
        }
        assert!(!Refusal::read(b"insufficient_quota").is_spent());
    }
}

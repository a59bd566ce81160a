//! Causes of failed calls for which a fix is known. A journal stores only the message of a failed call, so its cause is read
//! from it, with the words with which providers' failures are written.

/// Before the status of a response that refuses a call.
pub(crate) const STATUS: &str = "status ";

/// After the address of a server that does not accept connections.
pub(crate) const UNREACHABLE: &str = " cannot be reached";

/// Before the address of a server that is silent for too long.
pub(crate) const SILENT: &str = "no response from ";

/// Before the fault of a response that has no known form.
pub(crate) const UNREADABLE: &str = "the response cannot be parsed";

/// Cause of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallCause {
    /// The provider refused the key.
    Key,
    /// The provider has no such model, or no API at this address.
    NotFound,
    /// No server accepts connections at the address.
    Unreachable,
    /// The provider exceeded its time limit.
    Silent,
    /// The response was not one of the provider's API.
    Unreadable,
}

impl CallCause {
    /// The provider and the cause in the message of a failed call, which begins with `` `PROVIDER/MODEL`: ``. `None` if no fix
    /// is known.
    pub fn parse(message: &str) -> Option<(&str, Self)> {
        let (model, why) = message.strip_prefix('`')?.split_once("`: ")?;
        let provider = model.split('/').next()?;
        let status = why.strip_prefix(STATUS).and_then(|rest| rest.get(..3));
        let cause = match status {
            Some("401" | "403") => Self::Key,
            Some("404") => Self::NotFound,
            _ if why.contains(&format!("{UNREACHABLE}: ")) => Self::Unreachable,
            _ if why.starts_with(SILENT) => Self::Silent,
            _ if why.starts_with(UNREADABLE) => Self::Unreadable,
            _ => return None,
        };
        Some((provider, cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_read_from_the_message_of_a_call() {
        for (why, expected) in [
            ("status 401: Incorrect API key", Some(CallCause::Key)),
            ("status 403 (attempt 2 of 2)", Some(CallCause::Key)),
            ("status 404: no model `m`", Some(CallCause::NotFound)),
            ("http://127.0.0.1:1/v1 cannot be reached: refused (attempt 5 of 5)", Some(CallCause::Unreachable)),
            ("no response from http://127.0.0.1:1/v1 within 2 min", Some(CallCause::Silent)),
            ("the response cannot be parsed: not JSON", Some(CallCause::Unreadable)),
            ("status 429: quota", None),
        ] {
            assert_eq!(CallCause::parse(&format!("`v/m`: {why}")), expected.map(|cause| ("v", cause)), "{why}");
        }
        assert_eq!(CallCause::parse("set THE_KEY"), None);
    }
}

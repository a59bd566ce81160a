//! Kinds of providers, with the fixed properties of each.

use std::fmt;

use etude_core::service_url::ServiceUrl;
use etude_core::tool::ToolCalling;

etude_core::words! {
    /// The API of a provider, or a substitute for one.
    ///
    /// If an observer is present, the kinds that use HTTP are asked to stream (`stream: true`, for chat with
    /// `stream_options.include_usage`; `:streamGenerateContent?alt=sse`). A server that still responds as a whole is
    /// understood, and one that refuses is asked again without streaming. While streaming, the time limit applies to each
    /// silence instead of the whole attempt. The response is the same either way.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ProviderKind {
        /// Anthropic Messages.
        Anthropic = "anthropic",
        /// OpenAI Responses.
        OpenAi = "openai",
        /// OpenAI Chat Completions.
        OpenAiChat = "openai-chat",
        /// Gemini `generateContent`.
        Gemini = "gemini",
        /// Chat Completions of any other server; structured output may be missing.
        OpenAiCompatible = "openai-compatible",
        /// A program that reads a prompt on stdin and prints the completion. It runs without a shell, in the app's directory,
        /// without the providers' keys in its environment. The whole conversation is one text: the system prompt, then the
        /// messages, each with a heading when there is more than one. The response is stdout without blanks around it. A
        /// result object such as that of `claude -p --output-format json` gives text, usage and cost. Tools are not possible.
        /// When the program ends or is cancelled, all processes that it started are killed.
        Command = "command",
        /// Chat Completions over the Unix socket of a server that etude starts ([`LocalServer`](crate::LocalServer)).
        /// Responses cost nothing.
        Local = "local",
        /// Recorded responses, found by the content of the request (tier, system prompt, messages, schema, tools, temperature,
        /// token limit; images by their hash if it was recorded). A recording is a JSON object:
        ///
        /// ```json
        /// {
        ///   "format": "etude-recording/1",
        ///   "request": { "tier": "standard", "system": "Be brief.", "messages": [{ "role": "user", "text": ["two", "lines"] }] },
        ///   "answer": { "text": "ok", "usage": { "input_tokens": 12, "output_tokens": 1 } }
        /// }
        /// ```
        ///
        /// Absent members have their defaults. Texts are texts or arrays of lines; `json` may replace the text of a response,
        /// and `refusal` or `"stop": "length"` gives its stop reason. `answers` holds several responses, given in order within
        /// one process, the last one repeatedly. A file with `recordings` holds many. A miss names the first differing field.
        Recorded = "recorded",
    }
}

impl ProviderKind {
    /// Support for tool calls in models of this kind, unless the configuration overrides it.
    pub const fn tool_calling(self) -> ToolCalling {
        match self {
            Self::Anthropic | Self::OpenAi | Self::OpenAiChat | Self::Gemini | Self::Local | Self::Recorded => {
                ToolCalling::Hard
            }
            Self::OpenAiCompatible => ToolCalling::Probed,
            Self::Command => ToolCalling::Absent,
        }
    }

    /// URL of the service, for the kinds that have a single one.
    pub const fn default_base_url(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("https://api.anthropic.com/v1"),
            Self::OpenAi | Self::OpenAiChat => Some("https://api.openai.com/v1"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Self::OpenAiCompatible | Self::Command | Self::Local | Self::Recorded => None,
        }
    }

    /// The environment variable that customarily holds the key.
    pub const fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::OpenAi | Self::OpenAiChat => Some("OPENAI_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::OpenAiCompatible | Self::Command | Self::Local | Self::Recorded => None,
        }
    }

    /// The variable that customarily holds the key, if its value may go to a provider at `url` with these `headers`. It may go
    /// to the kind's own host, and to this machine if no header is a key. Another host gets it only if the configuration names
    /// it there: one company must not receive the key of another.
    pub fn customary_key<'a>(
        self,
        url: Option<&ServiceUrl>,
        headers: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'static str> {
        let variable = self.key_variable()?;
        let Some(url) = url else { return Some(variable) };
        let origin = url.origin()?;
        let is_own = self.default_base_url().and_then(|own| ServiceUrl::new(own).origin()).as_ref() == Some(&origin);
        let has_key = headers.into_iter().any(is_key_header);
        (is_own || origin.is_loopback() && !has_key).then_some(variable)
    }

    /// True if calls use HTTP.
    pub(crate) const fn is_http(self) -> bool {
        !matches!(self, Self::Command | Self::Local | Self::Recorded)
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// True if the header `name` looks like one that holds a key, such as `api-key` or `Authorization`.
fn is_key_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token"].iter().any(|word| name.contains(word))
}

/// The words of all kinds, for messages and schemas.
pub fn provider_kind_words() -> [&'static str; ProviderKind::ALL.len()] {
    ProviderKind::ALL.map(ProviderKind::word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_word() {
        for kind in ProviderKind::ALL {
            assert_eq!(ProviderKind::from_word(kind.word()), Some(kind));
        }
        assert_eq!(ProviderKind::from_word("claude"), None);
    }

    /// SECURITY.md: the customary key of a kind goes to no other host by default.
    #[test]
    fn a_customary_key_stays_with_the_host_of_its_kind() {
        let taken = |url: Option<&str>, headers: &[&str]| {
            let url = url.map(ServiceUrl::from);
            ProviderKind::OpenAiChat.customary_key(url.as_ref(), headers.iter().copied()).is_some()
        };
        for (url, headers) in [
            (None, &[][..]),
            (Some("https://api.openai.com/v1"), &[]),
            (Some("https://api.openai.com:443/v1/chat"), &["X-Title"]),
            (Some("http://127.0.0.1:8000/v1"), &["X-Team"]),
        ] {
            assert!(taken(url, headers), "{url:?} {headers:?}");
        }
        for (url, headers) in [
            (Some("https://name.openai.azure.com/openai/v1"), &["api-key"][..]),
            (Some("https://name.openai.azure.com/openai/v1"), &[]),
            (Some("http://api.openai.com/v1"), &[]),
            (Some("http://127.0.0.1:8000/v1"), &["Authorization"]),
            (Some("no URL"), &[]),
        ] {
            assert!(!taken(url, headers), "{url:?} {headers:?}");
        }
        assert_eq!(ProviderKind::OpenAiCompatible.customary_key(None, []), None);
    }
}

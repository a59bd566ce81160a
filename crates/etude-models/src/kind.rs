//! Kinds of providers and what is fixed about each.

use std::fmt;

use etude_core::service_url::ServiceUrl;
use etude_core::tool::ToolCalling;

etude_core::words! {
    /// Which API a provider speaks, or what stands in for one.
    ///
    /// Where somebody watches, the kinds that speak HTTP are asked to stream (`stream: true`, for chat with
    /// `stream_options.include_usage`; `:streamGenerateContent?alt=sse`). A server that answers whole all the same is
    /// understood, and one that refuses is asked once more without. The time limit then holds for each silence instead of
    /// the whole try. The answer is the same either way.
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
        /// Chat Completions as any other server speaks it; it may lack structured output.
        OpenAiCompatible = "openai-compatible",
        /// A program that reads a prompt on stdin and prints the answer. It runs without a shell, in the app's directory,
        /// without the providers' keys in its environment. The whole conversation is one text: the system prompt, then
        /// the messages, each with a heading when there is more than one. The answer is stdout without blanks around it;
        /// a result object such as that of `claude -p --output-format json` gives text, usage and cost. Tools are not
        /// possible. When the program ends or is given up, whatever it started is killed with it.
        Command = "command",
        /// Chat Completions over the Unix socket of a server that etude starts ([`LocalServer`](crate::LocalServer)).
        /// Responses cost nothing.
        Local = "local",
        /// Recorded answers, found by the content of the request (tier, system prompt, messages, schema, tools,
        /// temperature, longest answer; images by their hash where it was recorded). A recording is a JSON object:
        ///
        /// ```json
        /// {
        ///   "format": "etude-recording/1",
        ///   "request": { "tier": "standard", "system": "Be brief.", "messages": [{ "role": "user", "text": ["two", "lines"] }] },
        ///   "answer": { "text": "ok", "usage": { "input_tokens": 12, "output_tokens": 1 } }
        /// }
        /// ```
        ///
        /// What is absent has its default. Texts are texts or arrays of lines; `json` may stand for the text of an
        /// answer, `refusal` or `"stop": "length"` for how it ended. `answers` holds several, given in order within one
        /// process, the last one for good. A file with `recordings` holds many. A miss names the first differing field.
        Recorded = "recorded",
    }
}

impl ProviderKind {
    /// How surely models of this kind call tools, unless the configuration says otherwise.
    pub const fn tool_calling(self) -> ToolCalling {
        match self {
            Self::Anthropic | Self::OpenAi | Self::OpenAiChat | Self::Gemini | Self::Local | Self::Recorded => {
                ToolCalling::Hard
            }
            Self::OpenAiCompatible => ToolCalling::Probed,
            Self::Command => ToolCalling::Absent,
        }
    }

    /// Where the service is, for the kinds that have one place.
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

    /// The variable that customarily holds the key, where its value may go to a provider at `url` with these `headers`: to
    /// the host of the kind, and to this machine if no header is a key. Another host gets it if the configuration names it
    /// there: the key of one company is no business of another.
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

    /// Whether calls go over HTTP.
    pub(crate) const fn is_http(self) -> bool {
        !matches!(self, Self::Command | Self::Local | Self::Recorded)
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Whether the header `name` looks like one that holds a key, such as `api-key` or `Authorization`.
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

    /// SECURITY.md: the customary key of a kind goes to no host of others unasked.
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

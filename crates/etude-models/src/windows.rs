//! Context windows of models, in tokens. A value that is too low is safe: old results are left out earlier.

use crate::kind::ProviderKind;
use crate::wire::anthropic::version;

/// Assumed window of servers that run models of the user's choice.
const OF_A_SERVER: u64 = 32_768;

/// Default window of the local model.
const OF_THE_LOCAL_MODEL: u64 = 8_192;

/// Prefixes of names, the longer ones first, as of 2026-11.
const OPENAI: &[(&str, u64)] = &[
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4", 8_192),
    ("gpt-5.6", 1_050_000),
    ("gpt-5", 400_000),
    ("gpt-6", 1_050_000),
    ("o", 200_000),
];

/// The first versions of Claude with a window of a million tokens; no Haiku before 5 has one.
const WIDE_CLAUDE: (u32, u32) = (4, 6);

/// The window of a model, in tokens; `None` if it is unknown.
pub(crate) fn lookup(kind: ProviderKind, model: &str) -> Option<u64> {
    match kind {
        ProviderKind::Anthropic => {
            let is_wide = version(model).is_some_and(|version| version >= WIDE_CLAUDE);
            Some(if is_wide { 1_000_000 } else { 200_000 })
        }
        ProviderKind::OpenAi | ProviderKind::OpenAiChat => {
            OPENAI.iter().find(|(start, _)| model.starts_with(start)).map(|(_, window)| *window)
        }
        ProviderKind::Gemini => Some(1_048_576),
        ProviderKind::OpenAiCompatible => Some(OF_A_SERVER),
        ProviderKind::Local => Some(OF_THE_LOCAL_MODEL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_known_by_kind_and_name() {
        assert_eq!(lookup(ProviderKind::OpenAi, "gpt-4.1-mini"), Some(1_047_576));
        assert_eq!(lookup(ProviderKind::OpenAi, "gpt-4o-mini"), Some(128_000));
        assert_eq!(lookup(ProviderKind::OpenAi, "gpt-5-mini"), Some(400_000));
        assert_eq!(lookup(ProviderKind::OpenAi, "gpt-6.1-terra"), Some(1_050_000));
        assert_eq!(lookup(ProviderKind::OpenAi, "unheard-of"), None);
        assert_eq!(lookup(ProviderKind::Anthropic, "claude-haiku-4-5"), Some(200_000));
        assert_eq!(lookup(ProviderKind::Anthropic, "claude-sonnet-4-6"), Some(1_000_000));
        assert_eq!(lookup(ProviderKind::Anthropic, "claude-fable-5-1"), Some(1_000_000));
        assert_eq!(lookup(ProviderKind::OpenAiCompatible, "qwen"), Some(OF_A_SERVER));
    }
}

//! What models cost, if known.

use std::collections::BTreeMap;

use crate::kind::ProviderKind;
use crate::settings::ModelId;
use crate::wire::TokenCount;

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Tokens read.
    pub input: f64,
    /// Tokens written.
    pub output: f64,
    /// Tokens read from a cache; `None`: as `input`.
    pub cached_input: Option<f64>,
    /// Tokens written to a cache; `None`: as `input`.
    pub cache_write: Option<f64>,
}

impl Price {
    /// US dollars for one answer.
    pub(crate) fn cost(&self, tokens: &TokenCount) -> f64 {
        let fresh = tokens.input.saturating_sub(tokens.cached).saturating_sub(tokens.cache_written);
        let million = |count: u64, price: f64| count as f64 * price / 1e6;
        million(fresh, self.input)
            + million(tokens.cached, self.cached_input.unwrap_or(self.input))
            + million(tokens.cache_written, self.cache_write.unwrap_or(self.input))
            + million(tokens.output, self.output)
    }
}

/// Prices by name: what the user states, over what is known here.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    stated: BTreeMap<String, Price>,
}

impl Prices {
    /// States the price of a model, named `provider/model` or by the provider's name for it alone.
    pub fn set(&mut self, name: impl Into<String>, price: Price) {
        self.stated.insert(name.into(), price);
    }

    /// The price of a model. Models of servers other than the vendor's own have no known price, whatever their name:
    /// the same weights cost something else there.
    pub fn get(&self, model: &ModelId, kind: ProviderKind) -> Option<Price> {
        let stated = self.stated.get(&model.to_string()).or_else(|| self.stated.get(&model.model));
        stated.copied().or_else(|| known(kind, &model.model))
    }
}

/// Prices as the vendors published them, as of 2026-02. Only standard rates of models whose price does not depend on
/// the length of the prompt within the usual window; anything else is left unknown on purpose.
const ANTHROPIC: &[(&str, f64, f64)] = &[
    ("claude-haiku-4-5", 1.0, 5.0),
    ("claude-sonnet-4", 3.0, 15.0),
    ("claude-sonnet-4-0", 3.0, 15.0),
    ("claude-sonnet-4-5", 3.0, 15.0),
    ("claude-sonnet-4-6", 3.0, 15.0),
    ("claude-opus-4", 15.0, 75.0),
    ("claude-opus-4-0", 15.0, 75.0),
    ("claude-opus-4-1", 15.0, 75.0),
    ("claude-opus-4-5", 5.0, 25.0),
    ("claude-opus-4-6", 5.0, 25.0),
    ("claude-3-5-haiku", 0.8, 4.0),
];

/// Name, input, output, cached input.
const OPENAI: &[(&str, f64, f64, f64)] = &[
    ("gpt-5", 1.25, 10.0, 0.125),
    ("gpt-5-mini", 0.25, 2.0, 0.025),
    ("gpt-5-nano", 0.05, 0.4, 0.005),
    ("gpt-4.1", 2.0, 8.0, 0.5),
    ("gpt-4.1-mini", 0.4, 1.6, 0.1),
    ("gpt-4.1-nano", 0.1, 0.4, 0.025),
    // The first version of `gpt-4o` kept its own price; it comes first because the row of `gpt-4o` would match it.
    ("gpt-4o-2024-05-13", 5.0, 15.0, 5.0),
    ("gpt-4o", 2.5, 10.0, 1.25),
    ("gpt-4o-mini", 0.15, 0.6, 0.075),
];

/// Name, input, output. Cached tokens are counted at the full price: an upper bound.
const GEMINI: &[(&str, f64, f64)] = &[("gemini-2.5-flash", 0.3, 2.5), ("gemini-2.5-flash-lite", 0.1, 0.4)];

fn known(kind: ProviderKind, model: &str) -> Option<Price> {
    match kind {
        ProviderKind::Anthropic => ANTHROPIC.iter().find(|row| names(row.0, model)).map(|&(_, input, output)| Price {
            input,
            output,
            cached_input: Some(input * 0.1),
            cache_write: Some(input * 1.25),
        }),
        ProviderKind::OpenAi | ProviderKind::OpenAiChat => OPENAI
            .iter()
            .find(|row| names(row.0, model))
            .map(|&(_, input, output, cached)| Price { input, output, cached_input: Some(cached), cache_write: None }),
        ProviderKind::Gemini => GEMINI.iter().find(|row| names(row.0, model)).map(|&(_, input, output)| Price {
            input,
            output,
            cached_input: None,
            cache_write: None,
        }),
        // The user's own processor asks for no money.
        ProviderKind::Local => Some(Price { input: 0.0, output: 0.0, cached_input: None, cache_write: None }),
        ProviderKind::OpenAiCompatible | ProviderKind::Command | ProviderKind::Recorded => None,
    }
}

/// Whether `model` is `name` itself or a dated version of it. Any other suffix is another model: `gpt-5-pro` costs
/// twelve times `gpt-5`.
fn names(name: &str, model: &str) -> bool {
    let Some(rest) = model.strip_prefix(name) else {
        return false;
    };
    let dated = rest.strip_prefix('-').is_some_and(|date| {
        date.len() >= 8 && date.starts_with("20") && date.bytes().all(|b| b.is_ascii_digit() || b == b'-')
    });
    rest.is_empty() || rest == "-latest" || dated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ModelId {
        ModelId::parse(text).expect("an id")
    }

    #[test]
    fn a_dated_version_has_the_price_of_its_model_and_another_suffix_has_none() {
        let prices = Prices::default();
        let price = |model: &str| prices.get(&id(model), ProviderKind::OpenAi).map(|price| price.input);
        assert_eq!(price("openai/gpt-4o-2024-08-06"), Some(2.5));
        assert_eq!(price("openai/gpt-4o"), Some(2.5));
        assert_eq!(price("openai/gpt-4o-2024-05-13"), Some(5.0));
        assert_eq!(price("openai/gpt-4o-audio-preview"), None);
        assert_eq!(price("openai/gpt-5-pro"), None);
        assert_eq!(prices.get(&id("x/gpt-4o"), ProviderKind::OpenAiCompatible), None);
    }

    #[test]
    fn a_stated_price_wins_and_the_full_id_wins_over_the_bare_name() {
        let flat = |input| Price { input, output: 0.0, cached_input: None, cache_write: None };
        let mut prices = Prices::default();
        prices.set("gpt-4o", flat(7.0));
        prices.set("mine/gpt-4o", flat(8.0));
        assert_eq!(prices.get(&id("openai/gpt-4o"), ProviderKind::OpenAi), Some(flat(7.0)));
        assert_eq!(prices.get(&id("mine/gpt-4o"), ProviderKind::OpenAi), Some(flat(8.0)));
    }

    /// every token is counted once, at the price of its class.
    #[test]
    fn cached_and_cache_writing_tokens_have_their_own_price() {
        let price = Price { input: 10.0, output: 100.0, cached_input: Some(1.0), cache_write: Some(12.0) };
        let tokens = TokenCount { input: 1_000_000, output: 0, cached: 300_000, cache_written: 200_000, reasoning: 0 };
        assert_eq!(price.cost(&tokens), 5.0 + 0.3 + 2.4);
    }
}

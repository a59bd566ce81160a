//! Prices of models.

use std::collections::BTreeMap;

use crate::kind::ProviderKind;
use crate::settings::ModelId;
use crate::wire::TokenCount;

/// Price of a model, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Price of input tokens.
    pub input: f64,
    /// Price of output tokens.
    pub output: f64,
    /// Price of input tokens from a cache; `None`: the same as `input`.
    pub cached_input: Option<f64>,
    /// Price of tokens written to a cache; `None`: the same as `input`.
    pub cache_write: Option<f64>,
}

impl Price {
    /// Cost of one response in US dollars.
    pub(crate) fn cost(&self, tokens: &TokenCount) -> f64 {
        let fresh = tokens.input.saturating_sub(tokens.cached).saturating_sub(tokens.cache_written);
        let million = |count: u64, price: f64| count as f64 * price / 1e6;
        million(fresh, self.input)
            + million(tokens.cached, self.cached_input.unwrap_or(self.input))
            + million(tokens.cache_written, self.cache_write.unwrap_or(self.input))
            + million(tokens.output, self.output)
    }
}

/// Prices by name: those that the user states, then the known ones.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    stated: BTreeMap<String, Price>,
}

impl Prices {
    /// Sets the price of a model, named `provider/model` or by the provider's name for it alone.
    pub fn set(&mut self, name: impl Into<String>, price: Price) {
        self.stated.insert(name.into(), price);
    }

    /// The price of a model. Models of servers other than the vendor's own have no known price, whatever their name: the same
    /// weights have another price there.
    pub fn get(&self, model: &ModelId, kind: ProviderKind) -> Option<Price> {
        self.of(model, kind, 0)
    }

    /// Cost of one response in US dollars: from a known price, or else as its provider states it.
    pub(crate) fn cost(&self, model: &ModelId, kind: ProviderKind, tokens: &TokenCount) -> Option<f64> {
        let price = self.of(model, kind, tokens.input).filter(|_| tokens.is_counted());
        price.map(|price| price.cost(tokens)).or(tokens.cost_usd)
    }

    /// The price for a prompt of `input` tokens.
    fn of(&self, model: &ModelId, kind: ProviderKind, input: u64) -> Option<Price> {
        let stated = self.stated.get(&model.to_string()).or_else(|| self.stated.get(&model.model));
        stated.copied().or_else(|| lookup(kind, &model.model, input))
    }
}

/// Prices of one model.
struct Row {
    name: &'static str,
    input: f64,
    output: f64,
    /// Price of input from a cache; `None`: the same as other input, an upper bound.
    cached: Option<f64>,
    /// Factors for requests with long prompts.
    long: Option<Long>,
}

/// Factors on the prices of requests whose prompt has more than `above` tokens: for all input, and for output.
#[derive(Clone, Copy)]
struct Long {
    above: u64,
    input: f64,
    output: f64,
}

const fn row(name: &'static str, input: f64, output: f64, cached: f64) -> Row {
    Row { name, input, output, cached: Some(cached), long: None }
}

/// Prices of an OpenAI model with a window of a million tokens.
const fn wide(name: &'static str, input: f64, output: f64, cached: f64) -> Row {
    let long = Some(Long { above: 272_000, input: 2.0, output: 1.5 });
    Row { name, input, output, cached: Some(cached), long }
}

const fn uncached(name: &'static str, input: f64, output: f64) -> Row {
    Row { name, input, output, cached: None, long: None }
}

/// Prices that the vendors published, as of 2026-11, standard rates only. Uncertain ones are left out. A temporarily lower
/// price is listed as the later one: an upper bound.
const ANTHROPIC: &[Row] = &[
    Row { long: Some(Long { above: 100_000, input: 5.0, output: 5.0 }), ..row("claude-haiku-5-5", 0.1, 0.5, 0.01) },
    row("claude-sonnet-5-5", 2.0, 10.0, 0.1),
    row("claude-sonnet-5", 2.0, 10.0, 0.2),
    row("claude-opus-5-5", 4.0, 20.0, 0.2),
    row("claude-opus-5", 5.0, 25.0, 0.5),
    row("claude-fable-5-1", 10.0, 50.0, 0.25),
    row("claude-fable-5", 10.0, 50.0, 1.0),
    row("claude-haiku-4-5", 1.0, 5.0, 0.1),
    row("claude-sonnet-4", 3.0, 15.0, 0.3),
    row("claude-sonnet-4-0", 3.0, 15.0, 0.3),
    row("claude-sonnet-4-5", 3.0, 15.0, 0.3),
    row("claude-sonnet-4-6", 3.0, 15.0, 0.3),
    row("claude-opus-4", 15.0, 75.0, 1.5),
    row("claude-opus-4-0", 15.0, 75.0, 1.5),
    row("claude-opus-4-1", 15.0, 75.0, 1.5),
    row("claude-opus-4-5", 5.0, 25.0, 0.5),
    row("claude-opus-4-6", 5.0, 25.0, 0.5),
    row("claude-opus-4-7", 5.0, 25.0, 0.5),
    row("claude-opus-4-8", 5.0, 25.0, 0.5),
    row("claude-3-5-haiku", 0.8, 4.0, 0.08),
];

const OPENAI: &[Row] = &[
    wide("gpt-6.2-sol", 2.0, 10.0, 0.1),
    wide("gpt-6.1-sol", 2.0, 10.0, 0.1),
    wide("gpt-6.1-terra", 1.0, 5.0, 0.05),
    wide("gpt-6-sol", 2.0, 10.0, 0.2),
    wide("gpt-6-luna", 0.1, 0.5, 0.01),
    wide("gpt-6-astra", 10.0, 50.0, 1.0),
    wide("gpt-5.6-terra", 2.0, 12.0, 0.2),
    wide("gpt-5.6-luna", 0.2, 1.2, 0.02),
    row("gpt-5", 1.25, 10.0, 0.125),
    row("gpt-5-mini", 0.25, 2.0, 0.025),
    row("gpt-5-nano", 0.05, 0.4, 0.005),
    row("gpt-4.1", 2.0, 8.0, 0.5),
    row("gpt-4.1-mini", 0.4, 1.6, 0.1),
    row("gpt-4.1-nano", 0.1, 0.4, 0.025),
    // The first version of `gpt-4o` kept its own price. It comes first because the row of `gpt-4o` would match it.
    row("gpt-4o-2024-05-13", 5.0, 15.0, 5.0),
    row("gpt-4o", 2.5, 10.0, 1.25),
    row("gpt-4o-mini", 0.15, 0.6, 0.075),
];

const GEMINI: &[Row] = &[
    uncached("gemini-4-argon", 4.0, 20.0),
    uncached("gemini-3.8-flash", 1.5, 7.5),
    uncached("gemini-3.6-flash", 1.5, 7.5),
    uncached("gemini-3.5-flash-lite", 0.3, 2.5),
    uncached("gemini-2.5-flash", 0.3, 2.5),
    uncached("gemini-2.5-flash-lite", 0.1, 0.4),
];

impl Row {
    /// The price for a prompt of `input` tokens and its response.
    fn price(&self, kind: ProviderKind, input: u64) -> Price {
        let (of_input, of_output) = match self.long {
            Some(long) if input > long.above => (long.input, long.output),
            _ => (1.0, 1.0),
        };
        Price {
            input: self.input * of_input,
            output: self.output * of_output,
            cached_input: self.cached.map(|cached| cached * of_input),
            cache_write: (kind == ProviderKind::Anthropic).then_some(self.input * of_input * 1.25),
        }
    }
}

fn lookup(kind: ProviderKind, model: &str, input: u64) -> Option<Price> {
    let rows = match kind {
        ProviderKind::Anthropic => ANTHROPIC,
        ProviderKind::OpenAi | ProviderKind::OpenAiChat => OPENAI,
        ProviderKind::Gemini => GEMINI,
        // The user's own processor costs nothing.
        ProviderKind::Local => {
            return Some(Price { input: 0.0, output: 0.0, cached_input: None, cache_write: None });
        }
        ProviderKind::OpenAiCompatible | ProviderKind::Command | ProviderKind::Recorded => return None,
    };
    rows.iter().find(|row| names(row.name, model)).map(|row| row.price(kind, input))
}

/// True if `model` is `name` itself or a dated version of it. Any other suffix is another model: `gpt-5-pro` costs twelve
/// times `gpt-5`.
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

    /// long prompts cost more with some models.
    #[test]
    fn a_long_prompt_has_its_own_price() {
        let cost = |model: &str, kind, input| {
            let tokens = TokenCount { input, output: 1_000_000, cached: 100_000, ..TokenCount::default() };
            let cost = Prices::default().cost(&id(model), kind, &tokens);
            // In thousandths of a dollar: sums of floats differ in their last digits.
            cost.map(|cost| (cost * 1e3).round() as u64)
        };
        assert_eq!(cost("openai/gpt-6.1-terra", ProviderKind::OpenAi, 200_000), Some(5_000 + 100 + 5));
        assert_eq!(cost("openai/gpt-6.1-terra", ProviderKind::OpenAi, 1_100_000), Some(7_500 + 2_000 + 10));
        assert_eq!(cost("anthropic/claude-haiku-5-5", ProviderKind::Anthropic, 1_100_000), Some(2_500 + 500 + 5));
        assert_eq!(cost("anthropic/claude-sonnet-4-6", ProviderKind::Anthropic, 1_100_000), Some(15_000 + 3_000 + 30));
    }

    /// the cost that a gateway states for a response is its cost, unless a price is set.
    #[test]
    fn a_provider_may_say_what_a_response_cost() {
        let tokens = TokenCount { input: 1_000_000, cost_usd: Some(0.25), ..TokenCount::default() };
        let mut prices = Prices::default();
        let cost = |prices: &Prices| prices.cost(&id("router/m"), ProviderKind::OpenAiCompatible, &tokens);
        assert_eq!(cost(&prices), Some(0.25));
        prices.set("router/m", Price { input: 2.0, output: 0.0, cached_input: None, cache_write: None });
        assert_eq!(cost(&prices), Some(2.0));
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
        let tokens = TokenCount {
            input: 1_000_000,
            output: 0,
            cached: 300_000,
            cache_written: 200_000,
            ..TokenCount::default()
        };
        assert_eq!(price.cost(&tokens), 5.0 + 0.3 + 2.4);
    }
}

//! Budgets of whole runs, as they apply to another attempt (A-4.9, A-5.6).

use std::collections::BTreeSet;

use etude_core::failure::{Failure, FailureKind};
use etude_core::machine::Limits;
use etude_core::model::{Tier, Usage};
use etude_core::report::duration;
use etude_runtime::host::ModelPort;

/// A cost limit that cannot be enforced, because the prices of these models are unknown (A-4.9).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cost of the run cannot be limited: the price of {} is unknown; set it under `prices` in etude.yaml",
    named(.models)
)]
pub struct Unpriced {
    /// Models without a price, as `provider/model`.
    pub models: Vec<String>,
}

impl Unpriced {
    /// The failure of a run that does not start for this reason.
    pub(crate) fn failure(&self) -> Failure {
        Failure::new(FailureKind::Environment, self.to_string())
    }
}

fn named(models: &[String]) -> String {
    models.iter().map(|model| format!("`{model}`")).collect::<Vec<_>>().join(", ")
}

/// Refuses a cost limit on a run that may call the models of `tiers`, if one of them has no known price.
///
/// # Errors
/// The models without a price.
pub(crate) async fn priced(models: &dyn ModelPort, tiers: BTreeSet<Tier>, limits: &Limits) -> Result<(), Unpriced> {
    if limits.max_cost_usd.is_none() {
        return Ok(());
    }
    let mut unpriced = BTreeSet::new();
    for tier in tiers {
        unpriced.extend(models.unpriced(tier).await);
    }
    match unpriced.is_empty() {
        true => Ok(()),
        false => Err(Unpriced { models: unpriced.into_iter().collect() }),
    }
}

/// A budget that is used up: another attempt would fail at once.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("run `{run_id}` would fail immediately: it has used {used} of its budget of {limit}")]
pub struct Exhausted {
    /// Id of the run that cannot get another attempt within this budget.
    pub run_id: String,
    /// The used part with its unit: tokens, US dollars or a duration.
    pub used: String,
    /// The limit in the unit of `used`.
    pub limit: String,
    /// The option that raises the limit, with a value that is enough to continue.
    pub option: String,
    /// Usage of all attempts together.
    pub spent: Usage,
}

/// Refuses an attempt whose budget is used up. `is_over`: the run ended because of a budget; then reaching the limit exactly is
/// refused as well.
///
/// # Errors
/// The budget that is used up.
pub(crate) fn exhausted(
    run_id: &str,
    limits: &Limits,
    spent: &Usage,
    used_ms: u64,
    is_over: bool,
) -> Result<(), Exhausted> {
    let refused = |used: String, limit: String, option: String| {
        Err(Exhausted { run_id: run_id.to_owned(), used, limit, option, spent: *spent })
    };
    let is_used_up = |used: f64, limit: f64| used > limit || is_over && used >= limit;
    let tokens = spent.input_tokens + spent.output_tokens;
    if let Some(limit) = limits.max_tokens.filter(|limit| is_used_up(tokens as f64, *limit as f64)) {
        return refused(format!("{tokens} tokens"), limit.to_string(), format!("--max-tokens {}", more_tokens(tokens)));
    }
    if let (Some(limit), Some(cost)) = (limits.max_cost_usd, spent.cost_usd)
        && is_used_up(cost, limit)
    {
        let option = format!("--max-cost {}", more_money(cost));
        return refused(format!("{cost:.4} USD"), format!("{limit} USD"), option);
    }
    if let Some(limit) = limits.timeout_ms.filter(|limit| used_ms >= *limit) {
        let option = format!("--timeout {}", more_time(used_ms));
        return refused(duration(used_ms), duration(limit), option);
    }
    Ok(())
}

/// The option with which a run that used up a budget can continue. `None` if no budget was used up.
pub fn raised(limits: &Limits, spent: &Usage, message: &str) -> Option<String> {
    let tokens = spent.input_tokens + spent.output_tokens;
    if limits.max_tokens.is_some_and(|limit| tokens >= limit) {
        return Some(format!("--max-tokens {}", more_tokens(tokens)));
    }
    if let (Some(limit), Some(cost)) = (limits.max_cost_usd, spent.cost_usd)
        && cost >= limit
    {
        return Some(format!("--max-cost {}", more_money(cost)));
    }
    let limit = limits.timeout_ms.filter(|_| message.contains("time budget"))?;
    Some(format!("--timeout {}", more_time(limit)))
}

/// Twice the used tokens, rounded up to two digits.
fn more_tokens(used: u64) -> u64 {
    let twice = used.saturating_mul(2).max(10);
    let unit = 10_u64.pow(twice.ilog10().saturating_sub(1));
    twice.div_ceil(unit).saturating_mul(unit)
}

/// Twice the used amount, rounded up: whole dollars, or cents below one dollar.
fn more_money(used: f64) -> String {
    let twice = used * 2.0;
    if twice >= 1.0 {
        format!("{}", twice.ceil())
    } else {
        format!("{:.2}", ((twice * 100.0).ceil() / 100.0).max(0.01))
    }
}

/// Twice the used time, rounded up to whole seconds or minutes.
fn more_time(used_ms: u64) -> String {
    let seconds = used_ms.saturating_mul(2).div_ceil(1000).max(1);
    if seconds > 120 { format!("{}m", seconds.div_ceil(60)) } else { format!("{seconds}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(tokens: u64, cost: Option<f64>) -> Usage {
        Usage { input_tokens: tokens, cost_usd: cost, ..Usage::default() }
    }

    /// A-5.6: an attempt that would exceed its budget at once is refused, with an option that lets it continue.
    #[test]
    fn a_budget_that_is_used_up_refuses_the_attempt_and_says_how_to_raise_it() {
        let tokens = Limits { max_tokens: Some(100), ..Limits::default() };
        let money = Limits { max_cost_usd: Some(1.0), ..Limits::default() };
        let time = Limits { timeout_ms: Some(2000), ..Limits::default() };
        let option = |limits, spent: &Usage, used_ms, is_over| {
            exhausted("r", limits, spent, used_ms, is_over).err().map(|refused| refused.option)
        };
        assert_eq!(option(&tokens, &used(120, None), 0, true).as_deref(), Some("--max-tokens 240"));
        assert_eq!(option(&tokens, &used(100, None), 0, true).as_deref(), Some("--max-tokens 200"));
        assert_eq!(option(&tokens, &used(100, None), 0, false), None, "it failed for something else");
        assert_eq!(option(&money, &used(0, Some(1.2)), 0, true).as_deref(), Some("--max-cost 3"));
        assert_eq!(option(&time, &used(0, None), 2000, true).as_deref(), Some("--timeout 4s"));
        assert_eq!(option(&Limits::default(), &used(9, Some(9.0)), 9, true), None);
    }
}

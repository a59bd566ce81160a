//! Bounds of rates: the upper bound of Clopper and Pearson, the lower bound of Wilson (`learn.md` 2.10).

/// Number of bisection steps, which exceeds the bits of a number.
const STEPS: usize = 64;

/// Maximum number of comparisons that is ever required.
const MAX_COMPARISONS: u64 = 1 << 20;

/// One-sided upper bound of the rate of wrong among `n` comparisons of which `wrong` were wrong. It is the largest rate at
/// which that few are as likely as `1 - confidence`; 1 without comparisons.
pub fn upper_wrong_rate(n: u64, wrong: u64, confidence: f64) -> f64 {
    if wrong >= n {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        match at_most(n, wrong, middle) > 1.0 - confidence {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Bound in documents: four digits, rounded up.
pub fn shown(bound: f64) -> f64 {
    (bound * 1e4 - 1e-6).ceil() / 1e4
}

/// Number of comparisons that the bound `rate` needs if `wrong` of them are wrong.
pub fn comparisons_for(rate: f64, wrong: u64, confidence: f64) -> u64 {
    let is_enough = |n: u64| upper_wrong_rate(n, wrong, confidence) <= rate;
    let (mut low, mut high) = (wrong, wrong + 1);
    while !is_enough(high) && high < MAX_COMPARISONS {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        match is_enough(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

/// Probability of at most `k` of `n` at the rate `p`.
fn at_most(n: u64, k: u64, p: f64) -> f64 {
    if p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return if k >= n { 1.0 } else { 0.0 };
    }
    let (n, odds) = (n as f64, p.ln() - (1.0 - p).ln());
    let mut term = n * (1.0 - p).ln();
    let mut sum = term.exp();
    for i in 1..=k {
        let i = i as f64;
        term += ((n - i + 1.0) / i).ln() + odds;
        sum += term.exp();
    }
    sum.min(1.0)
}

/// One-sided lower bound of the rate of `hits` among `n`; 0 if `n` is 0.
pub fn lower_hit_rate(n: u64, hits: u64, confidence: f64) -> f64 {
    if n == 0 {
        return 0.0;
    }
    let (count, rate, z) = (n as f64, hits as f64 / n as f64, quantile(confidence));
    let spread = z * (rate * (1.0 - rate) / count + z * z / (4.0 * count * count)).sqrt();
    ((rate + z * z / (2.0 * count) - spread) / (1.0 + z * z / count)).max(0.0)
}

/// Point of the normal distribution below which `probability` lies, which is at least a half.
fn quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (0.0, 8.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        match normal_below(middle) < probability {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Part of the normal distribution below `x`, by its series.
fn normal_below(x: f64) -> f64 {
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term > sum * 1e-17 {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    0.5 + sum * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 5e-5, "{found} is not {wanted}");
    }

    /// L-58, 2.10: the upper bound of Clopper and Pearson agrees with tables of one-sided limits: 0 of 10 and 1 of 10 at 95 %
    /// are 25.89 % and 39.42 %, 3 of 100 at 97.5 % is 8.52 %; without a wrong one it is 1 - 0.05^(1/n).
    #[test]
    fn the_upper_bound_is_that_of_clopper_and_pearson() {
        is(upper_wrong_rate(10, 0, 0.95), 0.25887);
        is(upper_wrong_rate(10, 1, 0.95), 0.39416);
        is(upper_wrong_rate(100, 3, 0.975), 0.08518);
        is(upper_wrong_rate(3, 0, 0.95), 1.0 - 0.05_f64.powf(1.0 / 3.0));
        assert_eq!(upper_wrong_rate(0, 0, 0.95), 1.0);
        assert_eq!(upper_wrong_rate(2, 2, 0.95), 1.0);
        assert!(upper_wrong_rate(100_000, 900, 0.95) < 0.01);
        assert_eq!((shown(0.63162), shown(0.95), shown(1.0)), (0.6317, 0.95, 1.0));
    }

    /// 2.10: 59 comparisons without a disagreement are needed for 5 %, 29 for 10 %.
    #[test]
    fn the_number_of_comparisons_follows() {
        assert_eq!(comparisons_for(0.05, 0, 0.95), 59);
        assert_eq!(comparisons_for(0.1, 0, 0.95), 29);
        assert_eq!(comparisons_for(0.05, 1, 0.95), 93);
        assert_eq!(comparisons_for(0.01, 0, 0.95), 299);
    }

    /// L-82: the lower bound of Wilson: 81 of 263 at 97.5 % is 25.53 % (Newcombe 1998), 15 of 148 is 6.24 %, 0 of 20 is 0.
    #[test]
    fn the_lower_bound_is_that_of_wilson() {
        is(lower_hit_rate(263, 81, 0.975), 0.2553);
        is(lower_hit_rate(148, 15, 0.975), 0.0624);
        assert_eq!(lower_hit_rate(20, 0, 0.95), 0.0);
        assert_eq!(lower_hit_rate(0, 0, 0.95), 0.0);
        is(quantile(0.95), 1.644_85);
        is(quantile(0.975), 1.959_96);
    }
}

//! Calibration: from measures to a probability, and from the probability to a verdict.
//!
//! The coefficients were fitted by logistic regression over 86 tables from the train part of CLINC150. The tables have 3 to
//! 150 routes with 0 to 10 triggers each. The requests are from the validation part: in scope, of routes left out of the
//! table, and out of scope. One fit over many tables serves every table: a user's own table has some dozen texts, too few to
//! tell a threshold from chance. `bench/routing/calibrate.py` repeats the fit.

use crate::decision::{Signals, Verdict};

/// Scores at which the verdict changes.
struct Cuts {
    /// Scores below it are rejected: about nine of ten foreign requests, and one of ten of the table's own.
    reject: f64,
    /// Scores from here on need no confirmation: on validation more than 19 of 20 are right in tables of up to twenty routes.
    sure: f64,
}

const CUTS: Cuts = Cuts { reject: 0.25, sure: 0.8 };
/// Lowest cuts at which no kind of table accepts more foreign requests than one classifier per route did at [`CUTS`].
const CUTS_TOGETHER: Cuts = Cuts { reject: 0.29, sure: 0.84 };
/// Score of an exact trigger.
const EXACT: f64 = 0.99;
/// Lead beyond which the second candidate has no effect.
const LEAD: f64 = 1.5;

struct Line {
    fit: f64,
    lead: f64,
    nearest: f64,
    central: f64,
    thin: f64,
    routes: f64,
    offset: f64,
}

const LEXICAL: Line =
    Line { fit: 3.29, lead: 3.75, nearest: 6.01, central: 0.0, thin: 1.49, routes: -0.62, offset: 0.64 };
const SEMANTIC: Line =
    Line { fit: 1.80, lead: 2.76, nearest: 3.34, central: 5.78, thin: 1.95, routes: -0.41, offset: -3.47 };
/// Other weights, because the classifier of all routes at once gives other measures.
const TOGETHER: Line =
    Line { fit: 4.95, lead: 8.80, nearest: 3.69, central: 4.90, thin: 2.18, routes: -0.55, offset: -0.05 };

/// Kind of classifiers of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// One per route, over words and letters.
    Words,
    /// One per route, over meaning as well: large tables.
    Apart,
    /// One for all routes, over meaning as well.
    Together,
}

impl Head {
    fn line(self) -> &'static Line {
        match self {
            Self::Words => &LEXICAL,
            Self::Apart => &SEMANTIC,
            Self::Together => &TOGETHER,
        }
    }

    fn cuts(self) -> &'static Cuts {
        match self {
            Self::Words | Self::Apart => &CUTS,
            Self::Together => &CUTS_TOGETHER,
        }
    }
}

/// Probability that the first candidate is right. `thin` is true if it has no triggers: its scores are lower, right or wrong.
/// `routes` is the size of the table: among more routes, more are close by chance.
pub(crate) fn probability(signals: &Signals, head: Head, thin: bool, routes: usize) -> f64 {
    if signals.nearest <= 0.0 {
        return 0.0;
    }
    if signals.exact {
        return if signals.lead > 0.0 { EXACT } else { 0.5 };
    }
    let line = head.line();
    let sum = line.offset
        + line.fit * signals.fit.clamp(-2.0, 2.0)
        + line.lead * signals.lead.min(LEAD)
        + line.nearest * signals.nearest
        + line.central * signals.central
        + line.thin * f64::from(u8::from(thin))
        + line.routes * (routes.clamp(3, 300) as f64).ln();
    (1.0 / (1.0 + (-sum).exp())).min(EXACT)
}

/// Verdict for the caller at a probability.
pub(crate) fn verdict(score: f64, head: Head) -> Verdict {
    let cuts = head.cuts();
    if score >= cuts.sure {
        Verdict::Sure
    } else if score >= cuts.reject {
        Verdict::Doubtful
    } else {
        Verdict::Rejected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signals(fit: f64, lead: f64, nearest: f64) -> Signals {
        Signals { fit, lead, nearest, coverage: 0.5, central: 0.0, semantic: false, exact: false }
    }

    /// "sure" has the same meaning in every table, so that the score never falls when a measure rises.
    #[test]
    fn score_rises_with_each_measure() {
        for head in [Head::Words, Head::Apart, Head::Together] {
            for step in 0..20 {
                let at = f64::from(step) / 10.0 - 1.0;
                let base = probability(&signals(at, 0.3, 0.3), head, false, 20);
                assert!(probability(&signals(at + 0.1, 0.3, 0.3), head, false, 20) >= base);
                assert!(probability(&signals(at, 0.4, 0.3), head, false, 20) >= base);
                assert!(probability(&signals(at, 0.3, 0.4), head, false, 20) >= base);
                assert!(probability(&signals(at, 0.3, 0.3), head, false, 200) <= base);
                assert!((0.0..=1.0).contains(&base));
            }
        }
    }

    #[test]
    fn verdicts_follow_the_score() {
        for head in [Head::Words, Head::Apart, Head::Together] {
            assert_eq!(verdict(0.1, head), Verdict::Rejected);
            assert_eq!(verdict(0.5, head), Verdict::Doubtful);
            assert_eq!(verdict(0.9, head), Verdict::Sure);
        }
    }

    #[test]
    fn exact_trigger_of_two_routes_is_not_sure() {
        let tie = Signals { exact: true, ..signals(1.0, 0.0, 1.0) };
        assert_eq!(verdict(probability(&tie, Head::Words, false, 5), Head::Words), Verdict::Doubtful);
    }
}

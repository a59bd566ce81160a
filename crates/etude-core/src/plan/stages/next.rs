//! The stages after a stage (`b-stages` §10).

use super::{Script, Test};

/// The rule or program that chooses the next stages.
#[derive(Debug, Clone, PartialEq)]
pub enum NextRule {
    /// The first case that holds.
    Cases(Vec<NextCase>),
    /// A script of the hook `next`, which prints the next stage or stages (§20.4).
    Script(Script),
}

/// A case of a declarative `next`.
#[derive(Debug, Clone, PartialEq)]
pub struct NextCase {
    /// Tests that must all hold; empty: always (`else`).
    pub when: Vec<Test>,
    /// The next stage or stages, or the end.
    pub next: Next,
}

/// The choice of the next stages (B-N1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The machine ends here.
    Terminal,
    /// These stages, one after the other.
    Sequential(Vec<String>),
    /// These stages at once, then possibly a join.
    Parallel {
        /// The siblings, in order, without the join.
        siblings: Vec<String>,
        /// The join, which runs if all siblings succeeded.
        join: Option<String>,
    },
}

impl Next {
    /// The word in `execution`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Terminal => "terminate",
            Self::Sequential(_) => "sequential",
            Self::Parallel { .. } => "parallel",
        }
    }

    /// Every named stage, the join last.
    pub fn targets(&self) -> Vec<&str> {
        match self {
            Self::Terminal => Vec::new(),
            Self::Sequential(list) => list.iter().map(String::as_str).collect(),
            Self::Parallel { siblings, join } => siblings.iter().chain(join).map(String::as_str).collect(),
        }
    }

    /// Builds a fan-out from its list and its join, which must be in the list unless `outside` (B-P4, B-P5).
    ///
    /// # Errors
    /// The fault of the fan-out.
    pub fn parallel(list: Vec<String>, join: Option<String>, outside: bool) -> Result<Self, FanOutFault> {
        let is_inside = join.as_ref().is_some_and(|join| list.contains(join));
        if join.is_some() && !is_inside && !outside {
            return Err(FanOutFault::DanglingJoin);
        }
        if list.len() < 2 {
            return Err(FanOutFault::TooFew);
        }
        if (1..list.len()).any(|at| list[..at].contains(&list[at])) {
            return Err(FanOutFault::Twice);
        }
        let siblings = list.into_iter().filter(|stage| Some(stage) != join.as_ref()).collect();
        Ok(Self::Parallel { siblings, join })
    }
}

/// Reason why a list and a join are not a valid fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FanOutFault {
    /// The list has fewer than two entries (B-P3).
    TooFew,
    /// The join is not in the list (B-P4).
    DanglingJoin,
    /// A stage is named twice.
    Twice,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    /// B-P3, B-P4, B-P5: the join is in the list and does not count as a sibling; a list has at least two entries.
    #[test]
    fn a_fan_out_is_built_only_if_it_makes_sense() {
        let parallel =
            |list: &[&str], join: Option<&str>, outside| Next::parallel(names(list), join.map(str::to_owned), outside);
        let with_join = Next::Parallel { siblings: names(&["a", "b"]), join: Some("j".into()) };
        assert_eq!(parallel(&["a", "b", "j"], Some("j"), false), Ok(with_join.clone()));
        assert_eq!(parallel(&["a", "b"], Some("j"), true), Ok(with_join));
        assert_eq!(parallel(&["a", "b"], Some("j"), false), Err(FanOutFault::DanglingJoin));
        assert_eq!(parallel(&["a"], None, false), Err(FanOutFault::TooFew));
        assert_eq!(parallel(&["a", "a"], None, false), Err(FanOutFault::Twice));
        assert!(parallel(&["a", "j"], Some("j"), false).is_ok());
    }
}

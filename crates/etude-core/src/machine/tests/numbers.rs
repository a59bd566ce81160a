//! Numbers for tests that try many cases.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Tests `count` seeds from 0 on, and reports the seed that fails. Other seeds are tested with `ETUDE_SEEDS=FIRST,COUNT
/// cargo test -p etude-core`. The variable is read at compile time, because this crate reads no environment.
#[track_caller]
pub(super) fn for_seeds(count: u64, holds: impl Fn(u64)) {
    let asked = option_env!("ETUDE_SEEDS").map(|text| {
        let numbers = text
            .split_once(',')
            .and_then(|(first, count)| Some((first.parse::<u64>().ok()?, count.parse::<u64>().ok()?)));
        numbers.unwrap_or_else(|| panic!("ETUDE_SEEDS is `{text}`, not FIRST,COUNT"))
    });
    let (first, count) = asked.unwrap_or((0, count));
    for seed in first..first + count {
        if catch_unwind(AssertUnwindSafe(|| holds(seed))).is_err() {
            panic!("it was seed {seed}; once more: ETUDE_SEEDS={seed},1 cargo test -p etude-core");
        }
    }
}

/// A small pseudo-random number generator, with the same numbers on every run.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    /// True in one of `n` cases.
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

//! How patient the transport is.

/// No call is tried more often, whatever is configured.
const MAX_ATTEMPTS: u32 = 10;

/// Time for one try where nothing else is configured. Long answers of reasoning models take minutes.
pub(crate) const DEFAULT_TIMEOUT_MS: u64 = 600_000;

/// Retries of transport failures. They do not count as retries of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportPolicy {
    /// Most tries of one call, the first included; held within 1 and 10.
    pub tries: u32,
    /// The first wait in milliseconds; it doubles with every try, and a random part of it is waited. A provider that says it is
    /// busy (429, 503, 529) is left alone for longer.
    pub base_wait_ms: u64,
    /// The longest wait in milliseconds, also when the provider asks for a longer one.
    pub max_wait_ms: u64,
}

impl Default for TransportPolicy {
    fn default() -> Self {
        Self { tries: 5, base_wait_ms: 500, max_wait_ms: 60_000 }
    }
}

impl TransportPolicy {
    pub(crate) fn tries(&self) -> u32 {
        self.tries.clamp(1, MAX_ATTEMPTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_stay_within_one_and_ten() {
        let tries = |tries| TransportPolicy { tries, ..TransportPolicy::default() }.tries();
        assert_eq!((tries(0), tries(3), tries(99)), (1, 3, 10));
    }
}

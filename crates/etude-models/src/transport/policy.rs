//! Retry policy of the transport.

/// Maximum number of attempts of any call, whatever is configured.
const MAX_ATTEMPTS: u32 = 10;

/// Default time limit of one attempt, in milliseconds. Long responses of reasoning models take minutes.
pub(crate) const DEFAULT_TIMEOUT_MS: u64 = 600_000;

/// Retries of transport failures. They do not count as retries of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportPolicy {
    /// Maximum number of attempts of one call, including the first; clamped to 1 to 10.
    pub tries: u32,
    /// The first wait in milliseconds. It doubles with every attempt, and a random part of it is waited. A provider that says
    /// it is busy (429, 503, 529) gets longer waits.
    pub base_wait_ms: u64,
    /// The maximum wait in milliseconds, even if the provider asks for a longer one.
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

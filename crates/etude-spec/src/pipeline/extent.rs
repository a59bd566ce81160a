//! Size limits of a pipeline together with the pipelines that it runs. A few small files can describe more steps than
//! fit in memory, if each level doubles the one below.

use crate::diagnose::references::Excess;
use crate::input::InputDecl;

/// Maximum nesting depth of pipelines, including the outermost.
const MAX_DEPTH: u32 = 64;

/// Maximum number of steps, including those of inner pipelines as often as they run. `for_each` counts once.
const MAX_STEPS: u64 = 10_000;

/// Maximum size of definitions, in bytes, counted in the same way.
const MAX_BYTES: u64 = 32 << 20;

/// Size of a parameter of a step that runs another pipeline, in bytes.
const PER_PARAMETER: u64 = 128;

/// Size of a pipeline with its inner pipelines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Nesting depth of pipelines.
    pub(crate) depth: u32,
    pub(crate) steps: u64,
    /// Size of definitions and instructions, in bytes.
    pub(crate) bytes: u64,
}

impl Extent {
    /// Extent of a pipeline without inner pipelines, with `steps` in a file of `bytes`.
    pub(super) fn new(steps: usize, bytes: usize) -> Self {
        Self { depth: 1, steps: steps as u64, bytes: bytes as u64 }
    }

    /// Adds a pipeline that a step runs.
    pub(super) fn add(&mut self, inner: Self, input: &InputDecl) -> Result<(), Excess> {
        self.depth = self.depth.max(inner.depth + 1);
        self.steps += inner.steps;
        self.bytes += inner.bytes;
        if self.depth > MAX_DEPTH {
            return Err(Excess::Depth { most: MAX_DEPTH });
        }
        if self.steps > MAX_STEPS {
            return Err(Excess::Steps { most: MAX_STEPS });
        }
        self.add_bytes(PER_PARAMETER * input.parameters.len() as u64)
    }

    /// Adds instructions of `bytes`, such as those of a skill.
    pub(super) fn add_bytes(&mut self, bytes: u64) -> Result<(), Excess> {
        self.bytes += bytes;
        if self.bytes > MAX_BYTES { Err(Excess::Bytes { most: MAX_BYTES }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_the_last_extent_that_is_taken() {
        let none = InputDecl::default();
        let add = |inner: Extent| Extent::new(1, 10).add(inner, &none);
        let inner = Extent { depth: MAX_DEPTH - 1, steps: MAX_STEPS - 1, bytes: MAX_BYTES - 10 };
        assert_eq!(add(inner), Ok(()));
        assert_eq!(add(Extent { depth: MAX_DEPTH, ..inner }), Err(Excess::Depth { most: MAX_DEPTH }));
        assert_eq!(add(Extent { steps: MAX_STEPS, ..inner }), Err(Excess::Steps { most: MAX_STEPS }));
        assert_eq!(add(Extent { bytes: MAX_BYTES, ..inner }), Err(Excess::Bytes { most: MAX_BYTES }));
    }

    #[test]
    fn a_pipeline_is_as_deep_as_the_deepest_that_it_runs() {
        let mut extent = Extent::new(3, 10);
        for depth in [1, 5, 2] {
            extent.add(Extent { depth, steps: 2, bytes: 1 }, &InputDecl::default()).expect("it is small");
        }
        assert_eq!(extent, Extent { depth: 6, steps: 9, bytes: 13 });
    }
}

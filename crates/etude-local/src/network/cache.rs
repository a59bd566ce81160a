//! Cache of keys and values, in buffers that grow by steps and are overwritten after a roll-back.

use candle_core::{DType, Device, Result, Tensor};

/// Number of tokens by which the buffers grow.
const STEP: usize = 512;

/// The keys or the values of one layer: (heads, tokens, size).
pub(crate) struct Cache {
    heads: usize,
    size: usize,
    buffer: Option<Tensor>,
}

impl Cache {
    pub(crate) fn new(heads: usize, size: usize) -> Self {
        Self { heads, size, buffer: None }
    }

    /// Writes `rows` (heads, tokens, size) at position `start`, and returns the content up to their end.
    pub(crate) fn write(&mut self, rows: &Tensor, start: usize) -> Result<Tensor> {
        let end = start + rows.dim(1)?;
        let buffer = self.grown(start, end)?;
        buffer.slice_set(&rows.contiguous()?, 1, start)?;
        buffer.narrow(1, 0, end)
    }

    /// A buffer for `end` tokens, with the first `keep` of the old one.
    fn grown(&mut self, keep: usize, end: usize) -> Result<Tensor> {
        let capacity = self.buffer.as_ref().map_or(Ok(0), |buffer| buffer.dim(1))?;
        if let Some(buffer) = self.buffer.as_ref().filter(|_| capacity >= end) {
            return Ok(buffer.clone());
        }
        let shape = (self.heads, end.next_multiple_of(STEP), self.size);
        let larger = Tensor::zeros(shape, DType::F32, &Device::Cpu)?;
        if let Some(old) = self.buffer.take().filter(|_| keep > 0) {
            larger.slice_set(&old.narrow(1, 0, keep)?.contiguous()?, 1, 0)?;
        }
        self.buffer = Some(larger.clone());
        Ok(larger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(from: u32, count: usize) -> Tensor {
        let rows = Tensor::arange(from as f32, from as f32 + count as f32, &Device::Cpu);
        rows.and_then(|rows| rows.reshape((1, count, 1))).expect("rows")
    }

    fn written(cache: &mut Cache, rows: &Tensor, start: usize) -> Vec<f32> {
        let all = cache.write(rows, start).and_then(|all| all.flatten_all());
        all.and_then(|all| all.to_vec1()).expect("what was written")
    }

    #[test]
    fn what_was_rolled_back_is_overwritten_and_the_rest_survives_growth() {
        let mut cache = Cache::new(1, 1);
        assert_eq!(written(&mut cache, &rows(0, 3), 0), [0.0, 1.0, 2.0]);
        assert_eq!(written(&mut cache, &rows(7, 1), 1), [0.0, 7.0]);
        let all = written(&mut cache, &rows(100, STEP), 2);
        assert_eq!((all[0], all[1], all[2], all.len()), (0.0, 7.0, 100.0, STEP + 2));
    }
}

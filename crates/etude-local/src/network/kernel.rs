//! Products of quantized weights with many rows, for processors on which candle's kernels are slow: x86-64 with AVX2 and without
//! wider instructions for bytes.
//!
//! candle repacks the weights for these processors, which doubles the memory, and keeps its sums in memory instead of registers.
//! These kernels read the weights in the file's format, and unpack each block once for several rows. Threads share the work
//! through rayon instead of waiting for each other in a loop, so that other work on the machine slows them only by its share. The
//! arithmetic is that of ggml: inputs as 8-bit numbers with a scale per 256, exact sums within a block.

#[cfg(target_arch = "x86_64")]
mod avx2;

use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Result, Tensor};
use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use avx2::Simd;

/// Values per block of weights and of inputs.
const BLOCK: usize = 256;
/// Rows of inputs that share one unpacked block: their sums fill the registers.
const TILE: usize = 8;
/// Outputs per task of a thread: their weights stay in its cache.
const OUTPUTS: usize = 16;

/// Formats of weights.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Q4K,
    Q6K,
}

impl Format {
    const fn block_bytes(self) -> usize {
        match self {
            Self::Q4K => 144,
            Self::Q6K => 210,
        }
    }
}

/// A matrix of weights that these kernels multiply.
pub(super) struct Kernel {
    simd: Simd,
    weights: Arc<QTensor>,
    format: Format,
    outputs: usize,
}

/// Rows of inputs, quantized to 8 bits.
pub(super) struct Rows {
    count: usize,
    /// Number of blocks per row.
    blocks: usize,
    all: Vec<InputBlock>,
}

/// 256 inputs: `scale * values`.
#[derive(Clone)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "other processors use candle's kernels"))]
struct InputBlock {
    values: [i8; BLOCK],
    /// Sums of 16 neighbours each.
    sums: [i16; 16],
    scale: f32,
}

impl Kernel {
    /// `None` for other formats, shapes and processors, which use candle's kernels.
    pub(super) fn new(weights: &Arc<QTensor>) -> Option<Self> {
        let format = match weights.dtype() {
            GgmlDType::Q4K => Format::Q4K,
            GgmlDType::Q6K => Format::Q6K,
            _ => return None,
        };
        let (outputs, inputs) = weights.shape().dims2().ok()?;
        let simd = Simd::new().filter(|_| inputs > 0 && inputs.is_multiple_of(BLOCK))?;
        Some(Self { simd, weights: Arc::clone(weights), format, outputs })
    }

    /// Quantizes `inputs` (rows, inputs) for [`Kernel::forward`].
    pub(super) fn rows(&self, inputs: &Tensor) -> Result<Rows> {
        let (count, width) = inputs.dims2()?;
        let values: Vec<f32> = inputs.flatten_all()?.to_vec1()?;
        let all = values.as_chunks::<BLOCK>().0.par_iter().map(|block| self.simd.quantize(block)).collect();
        Ok(Rows { count, blocks: width / BLOCK, all })
    }

    /// The products: (rows, outputs).
    pub(super) fn forward(&self, rows: &Rows) -> Result<Tensor> {
        let weights = self.weights.data()?;
        let count = rows.count;
        let row_bytes = rows.blocks * self.format.block_bytes();
        if count == 0 || weights.len() != self.outputs * row_bytes || rows.all.len() != count * rows.blocks {
            candle_core::bail!("inputs and weights have different widths");
        }
        // One line per output, so that each thread writes to a separate range.
        let mut lines = vec![0.0_f32; self.outputs * count];
        let work = lines.par_chunks_mut(OUTPUTS * count).zip(weights.par_chunks(OUTPUTS * row_bytes));
        work.for_each(|(lines, weights)| {
            for first in (0..count).step_by(TILE) {
                let tile: Vec<&[InputBlock]> = rows.all.chunks_exact(rows.blocks).skip(first).take(TILE).collect();
                for (line, weights) in lines.chunks_exact_mut(count).zip(weights.chunks_exact(row_bytes)) {
                    self.simd.tile(self.format, weights, &tile, &mut line[first..first + tile.len()]);
                }
            }
        });
        if count == 1 {
            return Tensor::from_vec(lines, (1, self.outputs), &Device::Cpu);
        }
        let mut products = vec![0.0_f32; lines.len()];
        products.par_chunks_mut(TILE * self.outputs).enumerate().for_each(|(tile, products)| {
            let first = tile * TILE;
            for (output, line) in lines.chunks_exact(count).enumerate() {
                for (row, products) in products.chunks_exact_mut(self.outputs).enumerate() {
                    products[output] = line[first + row];
                }
            }
        });
        Tensor::from_vec(products, (count, self.outputs), &Device::Cpu)
    }
}

/// Never exists: no processor of another kind has these instructions.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy)]
enum Simd {}

#[cfg(not(target_arch = "x86_64"))]
impl Simd {
    fn new() -> Option<Self> {
        None
    }

    fn quantize(self, _: &[f32; BLOCK]) -> InputBlock {
        match self {}
    }

    fn tile(self, _: Format, _: &[u8], _: &[&[InputBlock]], _: &mut [f32]) {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random numbers from -1 to 1.
    fn noise(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// The products are those of the dequantized weights; the inputs lose only the precision beyond 8 bits.
    #[test]
    fn products_are_those_of_the_dequantized_weights() {
        const WIDTH: usize = 3 * BLOCK;
        const OUTPUTS: usize = 37;
        for dtype in [GgmlDType::Q4K, GgmlDType::Q6K] {
            let dense = Tensor::from_vec(noise(OUTPUTS * WIDTH, 1), (OUTPUTS, WIDTH), &Device::Cpu).expect("weights");
            let weights = Arc::new(QTensor::quantize(&dense, dtype).expect("quantized"));
            let Some(kernel) = Kernel::new(&weights) else {
                return println!("skipped: this processor uses candle's kernels");
            };
            let exact = weights.dequantize(&Device::Cpu).expect("weights");
            for count in [1, 2, 3, 8, 21] {
                let inputs = Tensor::from_vec(noise(count * WIDTH, 7), (count, WIDTH), &Device::Cpu).expect("inputs");
                let rows = kernel.rows(&inputs).expect("rows");
                let got: Vec<Vec<f32>> = kernel.forward(&rows).and_then(|p| p.to_vec2()).expect("products");
                let want = exact.t().and_then(|exact| inputs.matmul(&exact));
                let want: Vec<Vec<f32>> = want.and_then(|products| products.to_vec2()).expect("products");
                for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
                    assert!((got - want).abs() < 0.25, "{dtype:?}, {count} rows: {got} instead of {want}");
                }
            }
        }
    }
}

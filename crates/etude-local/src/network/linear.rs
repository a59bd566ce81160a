//! Multiplication by quantized weights.

use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Module, Result, Tensor, quantized::QMatMul};

use super::kernel::Kernel;

/// A matrix of weights, (outputs, inputs).
pub(crate) struct Linear {
    weights: Arc<QTensor>,
    product: QMatMul,
    /// The custom kernel, if there is one for these weights and this processor.
    kernel: Option<Kernel>,
    /// Number of zeros added to each row of inputs, because the weights were widened.
    padding: usize,
}

/// A table of vectors, one row per token.
pub(crate) struct Table(QTensor);

/// Number of inputs per block of the formats that candle multiplies fast.
const BLOCK: usize = 256;

impl Linear {
    /// Loads weights unchanged, or converts them if candle has no fast path for their format.
    pub(crate) fn load(weights: QTensor) -> Result<Self> {
        let is_slow = matches!(
            weights.dtype(),
            GgmlDType::Q4_0 | GgmlDType::Q4_1 | GgmlDType::Q5_0 | GgmlDType::Q5_1 | GgmlDType::Q8_0
        );
        let (weights, padding) = if is_slow { widened(&weights)? } else { (weights, 0) };
        let weights = Arc::new(weights);
        let product = QMatMul::from_arc(Arc::clone(&weights))?;
        let kernel = Kernel::new(&weights).filter(|_| padding == 0);
        Ok(Self { weights, product, kernel, padding })
    }

    /// Multiplies `inputs` (rows, inputs) to (rows, outputs).
    pub(crate) fn forward(&self, inputs: &Tensor) -> Result<Tensor> {
        match &self.kernel {
            Some(kernel) => kernel.forward(&kernel.rows(inputs)?),
            None => self.product.forward(&self.padded(inputs)?),
        }
    }

    /// The products of the same inputs with several weights; for a single row in one step, if candle can.
    pub(crate) fn forward_all<const N: usize>(all: [&Self; N], inputs: &Tensor) -> Result<[Tensor; N]> {
        if let [Self { kernel: Some(first), .. }, ..] = all.as_slice()
            && all.iter().all(|one| one.kernel.is_some())
        {
            let rows = first.rows(inputs)?;
            let products = all.iter().filter_map(|one| one.kernel.as_ref()).map(|kernel| kernel.forward(&rows));
            return exactly(products.collect::<Result<Vec<_>>>()?);
        }
        let is_alike = all.iter().all(|one| {
            one.padding == all[0].padding
                && one.weights.dtype() == all[0].weights.dtype()
                && one.weights.dtype() != GgmlDType::F32
        });
        if inputs.dim(0)? == 1 && is_alike {
            let weights = all.map(|one| &*one.weights);
            if let Some(fused) = QTensor::gemv_fused_shared_lhs(&weights, &all[0].padded(inputs)?)?
                && let Ok(fused) = <[Tensor; N]>::try_from(fused)
            {
                return Ok(fused);
            }
        }
        exactly(all.iter().map(|one| one.forward(inputs)).collect::<Result<Vec<_>>>()?)
    }

    fn padded(&self, inputs: &Tensor) -> Result<Tensor> {
        if self.padding == 0 { inputs.contiguous() } else { inputs.pad_with_zeros(1, 0, self.padding)?.contiguous() }
    }
}

fn exactly<const N: usize>(products: Vec<Tensor>) -> Result<[Tensor; N]> {
    <[Tensor; N]>::try_from(products).map_err(|_| candle_core::Error::Msg("as many products as weights".into()))
}

/// Converts weights to Q8_0, padded to whole blocks of 256. Q8_0 loses almost nothing against the formats with fewer bits, and
/// has fast kernels for such rows.
fn widened(weights: &QTensor) -> Result<(QTensor, usize)> {
    let dense = weights.dequantize(&Device::Cpu)?;
    let inputs = dense.dim(1)?;
    let padding = inputs.next_multiple_of(BLOCK) - inputs;
    let dense = if padding == 0 { dense } else { dense.pad_with_zeros(1, 0, padding)? };
    Ok((QTensor::quantize(&dense, GgmlDType::Q8_0)?, padding))
}

impl Table {
    pub(crate) fn load(rows: QTensor) -> Result<Self> {
        rows.shape().dims2()?;
        Ok(Self(rows))
    }

    /// The rows of `tokens`: (tokens, size).
    pub(crate) fn rows(&self, tokens: &[u32]) -> Result<Tensor> {
        self.0.embedding(&Tensor::new(tokens, &Device::Cpu)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of products, computed directly.
    fn expected(inputs: &[f32], weights: &Tensor) -> Vec<f32> {
        let rows: Vec<Vec<f32>> = weights.to_vec2().expect("two dimensions");
        rows.iter().map(|row| row.iter().zip(inputs).map(|(a, b)| a * b).sum()).collect()
    }

    #[test]
    fn converted_and_widened_weights_give_the_same_products() {
        let weights: Vec<f32> = (0..48 * 96).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        let dense = Tensor::from_vec(weights, (48, 96), &Device::Cpu).expect("weights");
        let inputs: Vec<f32> = (0..96).map(|i| ((i * 13 % 17) as f32 - 8.0) / 8.0).collect();
        let slow = QTensor::quantize(&dense, GgmlDType::Q8_0).expect("quantized");
        let linear = Linear::load(slow).expect("loaded");
        assert_eq!(linear.padding, 160);
        let row = Tensor::new(inputs.as_slice(), &Device::Cpu).and_then(|row| row.reshape((1, 96))).expect("a row");
        let got = linear.forward(&row).and_then(|out| out.squeeze(0)).and_then(|out| out.to_vec1::<f32>());
        let [first, second] = Linear::forward_all([&linear, &linear], &row).expect("both");
        assert_eq!(first.to_vec2::<f32>().expect("rows"), second.to_vec2::<f32>().expect("rows"));
        for (got, want) in got.expect("products").iter().zip(expected(&inputs, &dense)) {
            assert!((got - want).abs() < 0.3, "{got} instead of {want}");
        }
    }
}

//! The forward pass of a decoder: Qwen2 and Llama files, quantized, on the CPU.
//!
//! This is not the implementation of `candle-transformers`, for three measured reasons (docs/design/local-model.md). The table of
//! embeddings stays quantized (933 MB less for the default model). The cache of keys and values can be rolled back, so that
//! prompts with the same start are read once. Weights in formats that candle multiplies slowly are converted while loading.

mod cache;
mod kernel;
mod layer;
mod linear;

use candle_core::{DType, Device, IndexOp, Result, Tensor};

use crate::gguf::{Architecture, Gguf, Shape};
use layer::Layer;
use linear::{Linear, Table};

/// Maximum number of tokens of a prompt per step. It is large enough to keep the multiplications busy, and small enough that a
/// cancelled request ends soon and that the mask stays small.
pub(crate) const CHUNK: usize = 128;

/// A loaded model, together with the tokens that it has read so far.
pub(crate) struct Network {
    embeddings: Table,
    layers: Vec<Layer>,
    norm: Tensor,
    output: Linear,
    rotary: Rotary,
    epsilon: f32,
    context: usize,
    read: Vec<u32>,
}

/// Sines and cosines of the rotary position embedding, for every position.
pub(crate) struct Rotary {
    cos: Tensor,
    sin: Tensor,
    /// True for Llama files, which have the pairs of a head interleaved; Qwen2 files have them in two halves.
    is_interleaved: bool,
}

impl Network {
    /// Loads the weights of `gguf`, for at most `context` tokens.
    pub(crate) fn load(gguf: &mut Gguf, context: usize) -> Result<Self> {
        let shape = gguf.shape()?;
        let context = context.min(shape.context).max(1);
        let embeddings = Table::load(gguf.tensor("token_embd.weight")?)?;
        let output = match gguf.has("output.weight") {
            true => Linear::load(gguf.tensor("output.weight")?)?,
            false => Linear::load(gguf.tensor("token_embd.weight")?)?,
        };
        let norm = gguf.dense("output_norm.weight")?;
        let layers = (0..shape.blocks).map(|block| Layer::load(gguf, block, &shape)).collect::<Result<_>>()?;
        let rotary = Rotary::new(&shape, context)?;
        Ok(Self { embeddings, layers, norm, output, rotary, epsilon: shape.epsilon, context, read: Vec::new() })
    }

    /// Maximum number of tokens of prompt and response together.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// The tokens read so far, in order.
    pub(crate) fn read(&self) -> &[u32] {
        &self.read
    }

    /// Forgets everything after the first `len` tokens.
    pub(crate) fn roll_back(&mut self, len: usize) {
        self.read.truncate(len);
    }

    /// Reads `tokens`, at most [`CHUNK`] of them, and returns the scores of the next token.
    pub(crate) fn advance(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let hidden = Device::Cpu.with_context(|| self.forward(tokens))?;
        self.read.extend_from_slice(tokens);
        hidden.to_vec1()
    }

    fn forward(&mut self, tokens: &[u32]) -> Result<Tensor> {
        let (start, count) = (self.read.len(), tokens.len());
        if count == 0 || start + count > self.context {
            candle_core::bail!("{count} tokens after {start} do not fit into {}", self.context);
        }
        let mask = if count == 1 { None } else { Some(causal_mask(start, count)?) };
        let mut hidden = self.embeddings.rows(tokens)?;
        for layer in &mut self.layers {
            hidden = layer.forward(&hidden, mask.as_ref(), &self.rotary, start)?;
        }
        let last = hidden.i(count - 1..count)?.contiguous()?;
        let last = candle_nn::ops::rms_norm(&last, &self.norm, self.epsilon)?;
        self.output.forward(&last)?.squeeze(0)
    }
}

impl Rotary {
    fn new(shape: &Shape, context: usize) -> Result<Self> {
        let frequencies: Vec<f32> = (0..shape.head_size)
            .step_by(2)
            .map(|i| 1.0 / shape.rotary_base.powf(i as f32 / shape.head_size as f32))
            .collect();
        let width = frequencies.len();
        let frequencies = Tensor::from_vec(frequencies, (1, width), &Device::Cpu)?;
        let positions = Tensor::arange(0, context as u32, &Device::Cpu)?.to_dtype(DType::F32)?;
        let angles = positions.reshape((context, 1))?.matmul(&frequencies)?;
        let is_interleaved = shape.architecture == Architecture::Llama;
        Ok(Self { cos: angles.cos()?, sin: angles.sin()?, is_interleaved })
    }

    /// Rotates `heads` (1, heads, tokens, size), the first of whose tokens is at position `start`.
    pub(crate) fn turn(&self, heads: &Tensor, start: usize) -> Result<Tensor> {
        let count = heads.dim(2)?;
        let (cos, sin) = (self.cos.narrow(0, start, count)?, self.sin.narrow(0, start, count)?);
        match self.is_interleaved {
            true => candle_nn::rotary_emb::rope_i(heads, &cos, &sin),
            false => candle_nn::rotary_emb::rope(heads, &cos, &sin),
        }
    }
}

/// The mask that is added to the scores so that no token sees a later one: (count, start + count).
fn causal_mask(start: usize, count: usize) -> Result<Tensor> {
    let width = start + count;
    let mut mask = vec![0.0_f32; count * width];
    for (row, line) in mask.chunks_exact_mut(width).enumerate() {
        line[start + row + 1..].fill(f32::NEG_INFINITY);
    }
    Tensor::from_vec(mask, (count, width), &Device::Cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This needs real weights, as in `tests/it/weights.rs`.
    #[test]
    fn reading_in_pieces_and_after_a_roll_back_gives_the_same_scores() {
        let Some(path) = std::env::var_os("ETUDE_LOCAL_WEIGHTS") else {
            return println!("skipped: ETUDE_LOCAL_WEIGHTS is not set");
        };
        let mut gguf = Gguf::open(path.as_ref()).expect("weights");
        let mut network = Network::load(&mut gguf, 256).expect("a network");
        let tokens: Vec<u32> = (0..40).map(|i| 1000 + i * 37).collect();
        let at_once = network.advance(&tokens).expect("scores");
        network.roll_back(25);
        network.advance(&tokens[25..38]).expect("scores");
        network.advance(&tokens[38..39]).expect("scores");
        let in_pieces = network.advance(&tokens[39..]).expect("scores");
        assert_eq!(network.read(), tokens);
        let largest = at_once.iter().fold(0.0_f32, |largest, score| largest.max(score.abs()));
        let apart = at_once.iter().zip(&in_pieces).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("scores up to {largest}, at most {apart} apart");
        assert!(apart < 0.05 * largest, "{apart} of {largest}");
    }

    #[test]
    fn a_token_sees_itself_and_what_came_before() {
        let mask = causal_mask(1, 2).and_then(|mask| mask.to_vec2::<f32>()).expect("a mask");
        assert_eq!(mask, [[0.0, 0.0, f32::NEG_INFINITY], [0.0, 0.0, 0.0]]);
    }
}

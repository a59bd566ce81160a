//! One block of the decoder: attention, then the feed-forward part.

use candle_core::{D, Result, Tensor};

use super::Rotary;
use super::cache::Cache;
use super::linear::Linear;
use crate::gguf::{Gguf, Shape};

/// A block and its part of the cache.
pub(crate) struct Layer {
    query: Projection,
    key: Projection,
    value: Projection,
    out: Linear,
    attention_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
    feed_forward_norm: Tensor,
    keys: Cache,
    values: Cache,
    heads: usize,
    shared_heads: usize,
    head_size: usize,
    epsilon: f32,
}

/// Weights and, in Qwen2, a bias.
struct Projection {
    weights: Linear,
    bias: Option<Tensor>,
}

impl Projection {
    fn load(gguf: &mut Gguf, name: &str) -> Result<Self> {
        let bias = format!("{name}.bias");
        let bias = if gguf.has(&bias) { Some(gguf.dense(&bias)?) } else { None };
        Ok(Self { weights: Linear::load(gguf.tensor(&format!("{name}.weight"))?)?, bias })
    }

    fn biased(&self, product: Tensor) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }
}

impl Layer {
    pub(crate) fn load(gguf: &mut Gguf, block: usize, shape: &Shape) -> Result<Self> {
        let name = |part: &str| format!("blk.{block}.{part}");
        let weights = |gguf: &mut Gguf, part: &str| Linear::load(gguf.tensor(&name(&format!("{part}.weight")))?);
        Ok(Self {
            query: Projection::load(gguf, &name("attn_q"))?,
            key: Projection::load(gguf, &name("attn_k"))?,
            value: Projection::load(gguf, &name("attn_v"))?,
            out: weights(gguf, "attn_output")?,
            attention_norm: gguf.dense(&name("attn_norm.weight"))?,
            gate: weights(gguf, "ffn_gate")?,
            up: weights(gguf, "ffn_up")?,
            down: weights(gguf, "ffn_down")?,
            feed_forward_norm: gguf.dense(&name("ffn_norm.weight"))?,
            keys: Cache::new(shape.shared_heads, shape.head_size),
            values: Cache::new(shape.shared_heads, shape.head_size),
            heads: shape.heads,
            shared_heads: shape.shared_heads,
            head_size: shape.head_size,
            epsilon: shape.epsilon,
        })
    }

    /// Transforms `hidden` (tokens, size), the first of whose tokens is at position `start`, to the same shape.
    pub(crate) fn forward(
        &mut self,
        hidden: &Tensor,
        mask: Option<&Tensor>,
        rotary: &Rotary,
        start: usize,
    ) -> Result<Tensor> {
        let normed = candle_nn::ops::rms_norm(hidden, &self.attention_norm, self.epsilon)?;
        let hidden = (self.attend(&normed, mask, rotary, start)? + hidden)?;
        let normed = candle_nn::ops::rms_norm(&hidden, &self.feed_forward_norm, self.epsilon)?;
        let [gate, up] = Linear::forward_all([&self.gate, &self.up], &normed)?;
        self.down.forward(&(candle_nn::ops::silu(&gate)? * up)?)? + hidden
    }

    fn attend(&mut self, normed: &Tensor, mask: Option<&Tensor>, rotary: &Rotary, start: usize) -> Result<Tensor> {
        let count = normed.dim(0)?;
        let [query, key] = Linear::forward_all([&self.query.weights, &self.key.weights], normed)?;
        let value = self.value.weights.forward(normed)?;
        let query = rotary.turn(&self.split(&self.query.biased(query)?, self.heads)?, start)?;
        let key = rotary.turn(&self.split(&self.key.biased(key)?, self.shared_heads)?, start)?.squeeze(0)?;
        let value = self.split(&self.value.biased(value)?, self.shared_heads)?.squeeze(0)?;
        let keys = self.keys.write(&key, start)?;
        let values = self.values.write(&value, start)?;

        // The heads that share keys and values are rows of one product, so that nothing has to be copied for each.
        let group = self.heads / self.shared_heads;
        let width = keys.dim(1)?;
        let query = query.reshape((self.shared_heads, group * count, self.head_size))?;
        let scores = (query.matmul(&keys.transpose(1, 2)?)? / (self.head_size as f64).sqrt())?;
        let scores = match mask {
            Some(mask) => scores.reshape((self.heads, count, width))?.broadcast_add(mask)?.reshape((
                self.shared_heads,
                group * count,
                width,
            ))?,
            None => scores,
        };
        let mixed = candle_nn::ops::softmax_last_dim(&scores)?.matmul(&values)?;
        let mixed = mixed.reshape((self.heads, count, self.head_size))?.transpose(0, 1)?;
        self.out.forward(&mixed.reshape((count, self.heads * self.head_size))?)
    }

    /// Reshapes (tokens, heads * size) to (1, heads, tokens, size).
    fn split(&self, rows: &Tensor, heads: usize) -> Result<Tensor> {
        let count = rows.dim(D::Minus2)?;
        rows.reshape((1, count, heads, self.head_size))?.transpose(1, 2)?.contiguous()
    }
}

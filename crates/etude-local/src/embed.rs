//! Embedding of texts as vectors: a small BERT, mean pooling, unit length.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{D, Device, IndexOp, Result, Tensor};
use serde_json::Value;
use tokenizers::Tokenizer;

/// The files in the directory of an embedding model.
pub(crate) const FILES: &[&str] = &["model.safetensors", "tokenizer.json", "config.json"];

/// Maximum number of texts per batch.
const BATCH: usize = 32;

/// A loaded embedding model.
pub struct Embedder {
    tokenizer: Tokenizer,
    words: Tensor,
    positions: Tensor,
    kind: Tensor,
    norm: Norm,
    layers: Vec<Layer>,
    heads: usize,
    max_tokens: usize,
}

/// Reason why an embedding model cannot be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// A file is missing or invalid.
    #[error("cannot use {path} of the embedding model: {why}", path = .path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The fault, as a sentence fragment.
        why: String,
    },
    /// The computation failed.
    #[error("the embedding model failed: {0}")]
    Engine(String),
}

/// The used members of `config.json`.
struct Config {
    num_hidden_layers: usize,
    num_attention_heads: usize,
    max_position_embeddings: usize,
    layer_norm_eps: f64,
}

impl Config {
    fn read(text: &str) -> std::result::Result<Self, String> {
        let fields: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let number = |key: &str| {
            let number = fields.get(key).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("`{key}` is missing"))
        };
        Ok(Self {
            num_hidden_layers: number("num_hidden_layers")?,
            num_attention_heads: number("num_attention_heads")?,
            max_position_embeddings: number("max_position_embeddings")?,
            layer_norm_eps: fields.get("layer_norm_eps").and_then(Value::as_f64).unwrap_or(1e-12),
        })
    }
}

struct Dense {
    weights: Tensor,
    bias: Tensor,
}

struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f32,
}

struct Layer {
    query: Dense,
    key: Dense,
    value: Dense,
    attended: Dense,
    attended_norm: Norm,
    up: Dense,
    down: Dense,
    norm: Norm,
}

impl Embedder {
    /// Loads the model in the directory `dir`, which [`crate::pull`] has created.
    ///
    /// # Errors
    /// A file is missing or invalid.
    pub fn load(dir: &Path) -> std::result::Result<Self, EmbedError> {
        let file = |name: &str, why: String| EmbedError::File { path: dir.join(name), why };
        let [weights, tokenizer, config] = [FILES[0], FILES[1], FILES[2]];
        let text = fs::read_to_string(dir.join(config)).map_err(|error| file(config, error.to_string()))?;
        let parsed = Config::read(&text).map_err(|why| file(config, why))?;
        let mut words =
            Tokenizer::from_file(dir.join(tokenizer)).map_err(|error| file(tokenizer, error.to_string()))?;
        // The file asks for texts of exactly 128 tokens; a batch here has only texts of the same length.
        words.with_padding(None);
        words.with_truncation(None).map_err(|error| file(tokenizer, error.to_string()))?;
        let tensors = candle_core::safetensors::load(dir.join(weights), &Device::Cpu);
        let tensors = tensors.map_err(|error| file(weights, error.to_string()))?;
        let mut tensors = Tensors { all: tensors.into_iter().collect(), epsilon: parsed.layer_norm_eps as f32 };
        tensors.model(words, &parsed).map_err(|error| file(weights, error.to_string()))
    }

    /// A vector of length 1 for each of `texts`, in order. Longer texts are truncated to the model's maximum.
    ///
    /// # Errors
    /// The computation failed.
    pub fn embed(&self, texts: &[&str]) -> std::result::Result<Vec<Vec<f32>>, EmbedError> {
        let mut by_length: BTreeMap<usize, Vec<(usize, Vec<u32>)>> = BTreeMap::new();
        for (at, text) in texts.iter().enumerate() {
            let encoding = self.tokenizer.encode_fast(*text, true);
            let mut ids = encoding.map_err(|error| EmbedError::Engine(error.to_string()))?.get_ids().to_vec();
            if ids.len() > self.max_tokens {
                let end = ids.last().copied();
                ids.truncate(self.max_tokens - 1);
                ids.extend(end);
            }
            by_length.entry(ids.len()).or_default().push((at, ids));
        }
        let mut vectors = vec![Vec::new(); texts.len()];
        for batch in by_length.values().flat_map(|same| same.chunks(BATCH)) {
            let ids: Vec<&[u32]> = batch.iter().map(|(_, ids)| ids.as_slice()).collect();
            let rows = Device::Cpu.with_context(|| self.forward(&ids)).and_then(|rows| rows.to_vec2::<f32>());
            let rows = rows.map_err(|error| EmbedError::Engine(error.to_string()))?;
            for ((at, _), row) in batch.iter().zip(rows) {
                vectors[*at] = row;
            }
        }
        Ok(vectors)
    }

    /// The number of tokens of `text` that count, including those that mark its start and its end.
    pub fn tokens(&self, text: &str) -> usize {
        self.tokenizer.encode_fast(text, true).map_or(0, |encoding| encoding.get_ids().len().min(self.max_tokens))
    }

    /// One row for each text; all texts have the same length.
    fn forward(&self, texts: &[&[u32]]) -> Result<Tensor> {
        let (count, length) = (texts.len(), texts.first().map_or(0, |text| text.len()));
        let ids = Tensor::from_vec(texts.concat(), count * length, &Device::Cpu)?;
        let words = self.words.index_select(&ids, 0)?.reshape((count, length, ()))?;
        let places = self.positions.narrow(0, 0, length)?.broadcast_add(&self.kind)?;
        let mut hidden = self.norm.forward(&words.broadcast_add(&places)?)?;
        for layer in &self.layers {
            hidden = layer.forward(&hidden, self.heads)?;
        }
        let mean = hidden.mean(1)?;
        let length = mean.sqr()?.sum_keepdim(1)?.sqrt()?.maximum(1e-12)?;
        mean.broadcast_div(&length)
    }
}

impl Layer {
    fn forward(&self, hidden: &Tensor, heads: usize) -> Result<Tensor> {
        let (count, length, size) = hidden.dims3()?;
        let split = |rows: Tensor| rows.reshape((count, length, heads, size / heads))?.transpose(1, 2)?.contiguous();
        let query = split(self.query.forward(hidden)?)?;
        let key = split(self.key.forward(hidden)?)?;
        let value = split(self.value.forward(hidden)?)?;
        let scores = (query.matmul(&key.t()?)? / ((size / heads) as f64).sqrt())?;
        let mixed = candle_nn::ops::softmax_last_dim(&scores)?.matmul(&value)?;
        let mixed = mixed.transpose(1, 2)?.reshape((count, length, size))?;
        let hidden = self.attended_norm.forward(&(self.attended.forward(&mixed)? + hidden)?)?;
        let wide = self.up.forward(&hidden)?.gelu_erf()?;
        self.norm.forward(&(self.down.forward(&wide)? + hidden)?)
    }
}

impl Dense {
    fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        let (count, length, size) = rows.dims3()?;
        let product = rows.reshape((count * length, size))?.matmul(&self.weights.t()?)?;
        product.broadcast_add(&self.bias)?.reshape((count, length, self.weights.dim(0)?))
    }
}

impl Norm {
    fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        candle_nn::ops::layer_norm(&rows.contiguous()?, &self.weight, &self.bias, self.epsilon)
    }
}

/// Tensors by their names.
struct Tensors {
    all: BTreeMap<String, Tensor>,
    epsilon: f32,
}

impl Tensors {
    fn model(&mut self, tokenizer: Tokenizer, config: &Config) -> Result<Embedder> {
        let heads = config.num_attention_heads;
        let words = self.take("embeddings.word_embeddings.weight")?;
        if heads == 0 || words.dim(D::Minus1)? % heads != 0 || config.max_position_embeddings < 2 {
            candle_core::bail!("its configuration does not match its weights");
        }
        Ok(Embedder {
            tokenizer,
            words,
            positions: self.take("embeddings.position_embeddings.weight")?,
            kind: self.take("embeddings.token_type_embeddings.weight")?.i(0)?,
            norm: self.norm("embeddings.LayerNorm")?,
            layers: (0..config.num_hidden_layers).map(|at| self.layer(at)).collect::<Result<_>>()?,
            heads,
            max_tokens: config.max_position_embeddings,
        })
    }

    fn layer(&mut self, at: usize) -> Result<Layer> {
        let name = |part: &str| format!("encoder.layer.{at}.{part}");
        Ok(Layer {
            query: self.dense(&name("attention.self.query"))?,
            key: self.dense(&name("attention.self.key"))?,
            value: self.dense(&name("attention.self.value"))?,
            attended: self.dense(&name("attention.output.dense"))?,
            attended_norm: self.norm(&name("attention.output.LayerNorm"))?,
            up: self.dense(&name("intermediate.dense"))?,
            down: self.dense(&name("output.dense"))?,
            norm: self.norm(&name("output.LayerNorm"))?,
        })
    }

    fn dense(&mut self, name: &str) -> Result<Dense> {
        Ok(Dense { weights: self.take(&format!("{name}.weight"))?, bias: self.take(&format!("{name}.bias"))? })
    }

    fn norm(&mut self, name: &str) -> Result<Norm> {
        let (weight, bias) = (self.take(&format!("{name}.weight"))?, self.take(&format!("{name}.bias"))?);
        Ok(Norm { weight, bias, epsilon: self.epsilon })
    }

    fn take(&mut self, name: &str) -> Result<Tensor> {
        match self.all.remove(name) {
            Some(tensor) => Ok(tensor),
            None => candle_core::bail!("`{name}` is missing"),
        }
    }
}

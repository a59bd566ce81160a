//! A GGUF file: its metadata and its tensors.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::{Device, Result, Tensor, bail};

/// An open GGUF file.
pub(crate) struct Gguf {
    content: Content,
    reader: BufReader<File>,
}

/// Supported kinds of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Architecture {
    Llama,
    Qwen2,
}

/// The dimensions of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    pub(crate) architecture: Architecture,
    /// Number of blocks.
    pub(crate) blocks: usize,
    /// Number of query heads.
    pub(crate) heads: usize,
    /// Number of heads of keys and values; each is shared by `heads / shared_heads` query heads.
    pub(crate) shared_heads: usize,
    pub(crate) head_size: usize,
    /// Maximum number of tokens that the model was trained for.
    pub(crate) context: usize,
    pub(crate) epsilon: f32,
    pub(crate) rotary_base: f32,
}

/// Reason why a weights file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be opened.
    #[error("the weights {path} cannot be read: {source}", path = .path.display())]
    Io {
        /// The path of the weights.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The file is not in the GGUF format, or is truncated.
    #[error("{path} is not a complete GGUF file: {why}", path = .path.display())]
    Format {
        /// The path of the weights.
        path: PathBuf,
        /// The first fault, as a sentence fragment.
        why: String,
    },
    /// The file has a model that is not supported.
    #[error("{path} cannot be run: {why}; supported are models of the kinds `llama` and `qwen2` with a `gpt2` tokenizer", path = .path.display())]
    Unsupported {
        /// The path of the weights.
        path: PathBuf,
        /// The unsupported part of the model, as a sentence fragment.
        why: String,
    },
}

impl Gguf {
    /// Opens `path` and reads everything but the tensors.
    pub(crate) fn open(path: &Path) -> std::result::Result<Self, OpenError> {
        let file = File::open(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let format = |why: String| OpenError::Format { path: path.to_owned(), why };
        // The error of the library would show the first bytes of any file that an app names.
        let begins = reader.fill_buf().map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        if !(begins.starts_with(b"GGUF") || begins.starts_with(b"FUGG")) {
            return Err(format("it does not begin with `GGUF`".to_owned()));
        }
        let content = Content::read(&mut reader).map_err(|error| format(error.to_string()))?;
        Ok(Self { content, reader })
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.content.tensor_infos.contains_key(tensor)
    }

    pub(crate) fn tensor(&mut self, name: &str) -> Result<QTensor> {
        self.content.tensor(&mut self.reader, name, &Device::Cpu)
    }

    /// A small tensor, dequantized.
    pub(crate) fn dense(&mut self, name: &str) -> Result<Tensor> {
        self.tensor(name)?.dequantize(&Device::Cpu)
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.content.metadata.get(key)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// A number that is not negative, of any width.
    pub(crate) fn number(&self, key: &str) -> Option<usize> {
        let value = self.content.metadata.get(key)?;
        let number = match value {
            Value::I32(number) => u64::try_from(*number).ok()?,
            other => other.to_u64().ok()?,
        };
        usize::try_from(number).ok()
    }

    /// The dimensions of the model.
    pub(crate) fn shape(&self) -> Result<Shape> {
        let name = self.text("general.architecture").unwrap_or_default();
        let architecture = match name {
            "llama" => Architecture::Llama,
            "qwen2" => Architecture::Qwen2,
            other => bail!("it is a model of the kind `{other}`"),
        };
        let key = |part: &str| format!("{name}.{part}");
        let need = |part: &str| match self.number(&key(part)) {
            Some(number) if number > 0 => Ok(number),
            _ => bail!("`{}` is missing", key(part)),
        };
        let float = |part: &str| self.content.metadata.get(&key(part)).and_then(|value| value.to_f32().ok());
        let heads = need("attention.head_count")?;
        let shared_heads = self.number(&key("attention.head_count_kv")).unwrap_or(heads);
        let size = need("embedding_length")?;
        if shared_heads == 0 || heads % shared_heads != 0 || size % heads != 0 {
            bail!("{size} is not divisible by {heads} heads, or the heads are not divisible by {shared_heads}");
        }
        let Some(epsilon) = float("attention.layer_norm_rms_epsilon") else {
            bail!("`{}` is missing", key("attention.layer_norm_rms_epsilon"));
        };
        Ok(Shape {
            architecture,
            blocks: need("block_count")?,
            heads,
            shared_heads,
            head_size: size / heads,
            context: need("context_length")?,
            epsilon,
            rotary_base: float("rope.freq_base").unwrap_or(10_000.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_something_else_is_refused_with_its_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notes.gguf");
        std::fs::write(&path, "these are no weights at all").expect("written");
        let error = Gguf::open(&path).err().expect("an error");
        assert!(matches!(error, OpenError::Format { .. }), "{error}");
        assert!(
            error.to_string().ends_with("notes.gguf is not a complete GGUF file: it does not begin with `GGUF`"),
            "{error}"
        );
        let missing = Gguf::open(&dir.path().join("none")).err().expect("an error");
        assert!(matches!(missing, OpenError::Io { .. }), "{missing}");
    }
}

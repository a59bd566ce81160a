//! Settings on which the model's process and its clients agree.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The version of the API. It is part of the socket's name, so that incompatible versions of the program never meet.
const VERSION: u32 = 2;

/// Default maximum number of tokens of prompt and response together: each costs 57 kB in the default model.
pub const DEFAULT_CONTEXT_TOKENS: usize = 8192;
/// Default time without a request after which a process becomes idle.
pub const DEFAULT_IDLE: Duration = Duration::from_secs(600);

/// One model, served to one user. Settings with other weights or another context need another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the model in responses, after `local/`.
    pub id: String,
    /// The path of the GGUF file.
    pub weights: PathBuf,
    /// A directory for the socket, private to the user. Its path must be short: that of a socket has at most about 100 bytes.
    pub runtime_dir: PathBuf,
    /// Maximum number of tokens of prompt and response together.
    pub context_tokens: usize,
    /// Time without a request after which the process is idle.
    pub idle: Duration,
}

impl Settings {
    /// Settings with default context and idle time.
    pub fn new(id: &str, weights: &Path, runtime_dir: &Path) -> Self {
        Self {
            id: id.to_owned(),
            weights: weights.to_owned(),
            runtime_dir: runtime_dir.to_owned(),
            context_tokens: DEFAULT_CONTEXT_TOKENS,
            idle: DEFAULT_IDLE,
        }
    }

    /// The path of the socket on which the process listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime_dir.join(format!("{}.sock", self.name()))
    }

    /// The path of the file that the process keeps locked while it runs.
    pub(crate) fn lock(&self) -> PathBuf {
        self.runtime_dir.join(format!("{}.lock", self.name()))
    }

    /// A name that is unique to these settings and this version.
    fn name(&self) -> String {
        use sha2::{Digest, Sha256};
        let mut hash = Sha256::new();
        hash.update(self.weights.as_os_str().as_encoded_bytes());
        hash.update([0]);
        hash.update(self.id.as_bytes());
        hash.update([0]);
        hash.update(self.context_tokens.to_le_bytes());
        let hash = etude_core::digest::hex(&hash.finalize()[..4]);
        format!("local-model-v{VERSION}-{hash}")
    }
}

/// The default number of threads: all cores but one, because a core that another program needs makes all threads wait.
pub fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

/// The environment variables with which the model's process uses `threads`. The libraries below read them once at the start, and
/// have no other setting.
pub fn environment(threads: usize) -> [(&'static str, String); 2] {
    [("RAYON_NUM_THREADS", threads.max(1).to_string()), ("CANDLE_NUM_THREADS", threads.max(1).to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_weights_or_another_context_are_another_socket() {
        let settings = Settings::new("m", Path::new("/models/m.gguf"), Path::new("/run/user/1/etude"));
        let other = Settings { weights: "/models/n.gguf".into(), ..settings.clone() };
        let larger = Settings { context_tokens: 4096, ..settings.clone() };
        assert_ne!(settings.socket(), other.socket());
        assert_ne!(settings.socket(), larger.socket());
        assert_eq!(settings.socket(), Settings { idle: Duration::ZERO, ..settings.clone() }.socket());
        assert!(settings.socket().as_os_str().len() < 60);
    }
}

//! What the model's process and its clients agree on.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The version of the API. It is part of the socket's name, so that incompatible versions of the program never meet.
const VERSION: u32 = 2;

/// Tokens that prompt and answer have together, unless something else is said: each costs 57 kB in the default model.
pub const DEFAULT_CONTEXT_TOKENS: usize = 8192;
/// How long a process stays without being asked anything.
pub const DEFAULT_IDLE: Duration = Duration::from_secs(600);

/// One model, served to one user. Two settings that differ in weights or context are two processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What answers name the model, after `local/`.
    pub id: String,
    /// The GGUF file.
    pub weights: PathBuf,
    /// A directory for the socket, private to the user and short: a socket's path has at most about 100 bytes.
    pub runtime_dir: PathBuf,
    /// Tokens that prompt and answer may have together.
    pub context_tokens: usize,
    /// How long the process stays without being asked anything.
    pub idle: Duration,
}

impl Settings {
    /// Settings with the defaults.
    pub fn new(id: &str, weights: &Path, runtime_dir: &Path) -> Self {
        Self {
            id: id.to_owned(),
            weights: weights.to_owned(),
            runtime_dir: runtime_dir.to_owned(),
            context_tokens: DEFAULT_CONTEXT_TOKENS,
            idle: DEFAULT_IDLE,
        }
    }

    /// Where the process listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime_dir.join(format!("{}.sock", self.name()))
    }

    /// What the process holds as long as it is there.
    pub(crate) fn lock(&self) -> PathBuf {
        self.runtime_dir.join(format!("{}.lock", self.name()))
    }

    /// A name that no other settings and no other version have.
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

/// How many threads to use: all cores but one, because a core that somebody else needs makes all threads wait.
pub fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

/// What the environment of the model's process has to have so that it uses `threads`: the machinery below reads it
/// when it starts, and has no other way.
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

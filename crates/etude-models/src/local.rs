//! The server of the local model. The creator of the settings starts it, so that this crate does not depend on inference.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;

/// A server that is starting. Yields its socket; the error is a sentence about the user's environment.
pub type Starting = Pin<Box<dyn Future<Output = Result<PathBuf, String>> + Send>>;

/// Starts the OpenAI-compatible servers of providers of the kind `local`.
pub trait LocalServer: Send + Sync + fmt::Debug {
    /// The Unix socket of the server of the model `name`, which is the part of the id after the provider's name. Starts the
    /// server if it does not run.
    fn start(&self, name: &str) -> Starting;
}

//! A model on this machine: anyone who makes the settings hands it in, so that this crate knows nothing of inference.

use std::fmt;
use std::pin::Pin;

use etude_core::model::{CallFailure, ModelResponse, Request};

/// A call under way. Dropping it gives the call up.
pub type LocalCall = Pin<Box<dyn Future<Output = Result<ModelResponse, CallFailure>> + Send>>;

/// Answers calls of providers of the kind `local`.
pub trait LocalModel: Send + Sync + fmt::Debug {
    /// Has the model `name`, the part of the id after the provider's name, answer `request`. Answers satisfy the
    /// request's schema as well as the model can; the caller validates.
    fn call(&self, name: &str, request: &Request) -> LocalCall;
}

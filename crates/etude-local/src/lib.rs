//! The local model: answers without a key and without a network, in pure Rust.
//!
//! Read in this order:
//! - [`catalog`](mod@catalog): the known models.
//! - [`pull`]: the download of their weights.
//! - [`serve`]: an OpenAI-compatible server in a separate process, shared by all runs of a user.
//! - [`Model`]: from a request to a response whose JSON is always valid.
//!
//! [`Embedder`] is the semantic half of the router.
//!
//! Nothing here reads the environment, prints, or downloads without a request.

mod api;
mod bounds;
pub mod catalog;
mod embed;
mod generate;
mod gguf;
mod grammar;
mod launch;
mod network;
mod pull;
mod sample;
mod serve;
mod settings;
mod socket;
mod template;
mod vocabulary;

pub use catalog::catalog;
pub use embed::{EmbedError, Embedder};
pub use generate::{DEFAULT_MAX_TOKENS, GenerateError, Model, Options, Timing};
pub use gguf::OpenError;
pub use grammar::GrammarError;
pub use launch::ensure_running;
pub use pull::{Places, Progress, PullError, installed, pull};
pub use serve::{Ended, Listen, Ready, Serving, WhenIdle, serve};
pub use settings::{DEFAULT_CONTEXT_TOKENS, DEFAULT_IDLE, Settings, default_threads, environment};
pub use template::{ChatTemplate, TemplateError};

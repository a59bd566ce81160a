//! The local model: the answer to a machine with no key and no network, in pure Rust.
//!
//! Read in this order: [`catalog`] (which models are known), [`pull`] (how their weights are had), [`serve`] and
//! [`Client`] (the model runs in a process of its own, shared by all runs of a user), [`Model`] (from a request to an
//! answer whose JSON is always valid). [`Embedder`] is the semantic half of the router.
//!
//! Nothing here reads the environment, prints, or downloads without being asked.

mod bounds;
pub mod catalog;
mod client;
mod embed;
mod generate;
mod gguf;
mod grammar;
mod network;
mod protocol;
mod pull;
mod queue;
mod sample;
mod serve;
mod settings;
mod socket;
mod template;
mod vocabulary;

pub use catalog::catalog;
pub use client::{Canceller, Client, ClientError};
pub use embed::{EmbedError, Embedder};
pub use generate::{DEFAULT_MAX_TOKENS, GenerateError, Model, Timing};
pub use gguf::OpenError;
pub use grammar::GrammarError;
pub use protocol::Status;
pub use pull::{Places, Progress, PullError, installed, pull};
pub use serve::{Ended, serve};
pub use settings::{DEFAULT_CONTEXT_TOKENS, DEFAULT_IDLE, Settings, default_threads, environment};
pub use template::{ChatTemplate, TemplateError};

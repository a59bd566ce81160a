//! Model providers behind one call: hosted services, OpenAI-compatible servers, programs, recordings, and a model on this
//! machine whose server the caller supplies.
//!
//! [`Models`] takes resolved [`Settings`] (it reads no configuration and no environment) and responds to a
//! [`Request`](etude_core::model::Request) of a tier. It does the work that every provider needs and that callers should not
//! repeat:
//!
//! - wire formats ([`ProviderKind`]; ): pure encode and decode functions, one module per API;
//! - structured responses: a JSON Schema is rewritten into the dialect of the provider, and the rest of it goes into
//!   the instructions. The response is converted back into the form that the caller's schema describes. The caller validates
//!   it; this crate does not;
//! - transport failures: bounded retries with backoff, `Retry-After`, and a pause shared by all calls of a provider
//!   that asked for one;
//! - streaming, if the caller observes deltas: the response is the same as without streaming;
//! - usage and cost: counted the same way for all providers.
//!
//! A failure is a [`CallFailure`](etude_core::model::CallFailure) whose texts never hold a secret.

mod cause;
mod command;
mod delta_sink;
mod dialect;
mod hosted;
mod image;
mod kind;
mod listing;
mod local;
mod models;
pub mod offline;
mod prices;
mod recorded;
mod redact;
mod settings;
mod transport;
mod windows;
mod wire;

pub use cause::CallCause;
pub use kind::{ProviderKind, provider_kind_words};
pub use listing::list_models;
pub use local::{LocalServer, Starting};
pub use models::Models;
pub use prices::{Price, Prices};
pub use redact::{Redactor, Secret};
pub use settings::{ModelId, ProviderSettings, Settings, SettingsError, is_public_header};
pub use transport::TransportPolicy;

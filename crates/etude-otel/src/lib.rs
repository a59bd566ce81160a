//! What runs do, as OpenTelemetry spans: runs, steps, agents, tools and chats, with the GenAI semantic conventions.
//!
//! A [`Tracer`] is fed with what the driver tells anyway ([`Progress`]) and knows nothing else; nothing in the interpreter, the
//! host or the providers knows of it. Its spans are sent as OTLP/JSON over HTTP ([`otlp`] is the form). Texts of prompts,
//! answers and arguments are left out unless [`Settings::captures_content`] asks for them.
//!
//! `docs/observability.md` tells people what is sent; `docs/adr/0028-otlp-without-a-library.md` why it is made here.
//!
//! [`Progress`]: etude_runtime::driver::Progress

mod export;
pub mod otlp;
mod settings;
mod span;
mod tracer;

pub use settings::{HEADERS, Settings, headers};
pub use span::{Attribute, Span, Value};
pub use tracer::{Run, Tracer};

//! OpenTelemetry spans of runs, steps, agents, tools and chats, with the GenAI semantic conventions.
//!
//! A [`Tracer`] reads only the driver's [`Progress`] events. The interpreter, the host and the providers do not depend
//! on this crate. Spans are sent as OTLP/JSON over HTTP ([`otlp`] builds the body). Texts of prompts, completions and
//! arguments are left out unless [`Settings::captures_content`] is set.
//!
//! `docs/observability.md` lists the exported data for users; `docs/adr/0028-otlp-without-a-library.md` explains why
//! this crate needs no OTLP library.
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

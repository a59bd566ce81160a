//! Middleware around a run's effects: processes, model calls and commands as invocations.

pub mod agent;
mod effect_middleware;
mod forms;
mod relay;

pub(crate) use effect_middleware::Passing;
pub(crate) use forms::ToolForm;
pub use relay::EventRelay;

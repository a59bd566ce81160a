//! How a run's effects pass the middleware chain: processes, model calls and commands as invocations.

pub mod agent;
mod forms;
mod passage;
mod relay;

pub(crate) use forms::{CommandForm, ToolForm};
pub(crate) use passage::Passing;
pub use relay::EventRelay;

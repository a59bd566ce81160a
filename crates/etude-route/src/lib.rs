//! The embedded router: chooses the pipeline that a request in plain words asks for, without calling a model. Beside it,
//! [`values`]: the parameters that the request states.
//!
//! Pure: no IO, clock, randomness or environment; equal tables and requests give equal decisions, in whatever order
//! the routes were given. How it decides and what was measured: `docs/design/routing.md`.

mod calibrate;
mod decide;
mod decision;
mod evidence;
mod exact;
mod features;
mod index;
mod router;
mod semantic;
mod softmax;
mod spelling;
mod stem;
mod stored;
mod text;
mod train;
mod tuning;
pub mod values;

pub use decision::{Candidate, Decision, Evidence, Signals, Verdict};
pub use router::{Route, Router};
pub use semantic::Embedder;
pub use stored::FORMAT;

//! Embedded router: chooses the pipeline for a request in plain words, without calling a model. [`values`] reads the
//! parameters that the request states.
//!
//! Pure: no IO, clock, randomness or environment. Equal tables and requests give equal decisions, in any order of the routes.
//! Method and measurements: `docs/design/routing.md`.

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

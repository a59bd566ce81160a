//! Tests that read whole apps. `testdata/ok` and `testdata/err` hold one app per directory, each with its diagnostics
//! in `expected.txt`; `UPDATE=1 cargo test -p etude-spec` writes those files again.

mod definitions;
mod disk;
mod docs;
mod machines;
mod mistakes;
mod plans;
mod reference;
mod speed;
mod walks;

//! Plans, inputs and apps in memory.

mod apps;
mod inputs;

//! The handlers of the API, one module for each subject.

pub(crate) mod metrics;
pub(crate) mod notice;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod stream;
pub(crate) mod tree;
pub(crate) mod webhook;

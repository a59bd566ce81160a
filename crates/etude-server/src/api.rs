//! The handlers of the API, one module for each subject.

pub(crate) mod metrics;

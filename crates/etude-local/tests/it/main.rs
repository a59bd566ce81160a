//! Tests of the complete model.

mod weights;

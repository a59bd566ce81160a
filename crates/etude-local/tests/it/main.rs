//! The model as a whole.

mod weights;

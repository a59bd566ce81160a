//! The JSON that a model generates.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A tool call in the model's format.
#[derive(Deserialize)]
pub(super) struct Call<'a> {
    pub(super) name: String,
    #[serde(borrow)]
    pub(super) arguments: &'a RawValue,
}

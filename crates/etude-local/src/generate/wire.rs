//! What a model writes, as JSON.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A call as the model writes it.
#[derive(Deserialize)]
pub(super) struct Call<'a> {
    pub(super) name: String,
    #[serde(borrow)]
    pub(super) arguments: &'a RawValue,
}

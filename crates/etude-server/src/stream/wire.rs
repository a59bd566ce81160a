//! Events as they are read again.

use std::borrow::Cow;

use serde::Deserialize;

/// The name of an event; the rest of it is passed over.
#[derive(Deserialize)]
pub(super) struct Named<'b> {
    #[serde(borrow)]
    pub(super) event: Cow<'b, str>,
}

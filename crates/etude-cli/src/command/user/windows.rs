//! Account of this process, on Windows.

/// Name of the account; unknown here.
pub(super) fn account() -> Option<String> {
    None
}

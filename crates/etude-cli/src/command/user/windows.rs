//! The account that this process belongs to.

/// The name of the account; not known here.
pub(super) fn account() -> Option<String> {
    None
}

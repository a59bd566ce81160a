//! Windows has no process groups to kill: the child itself is killed when its handle is dropped.

/// Dropping the child kills it.
pub(super) fn kill(_id: Option<u32>) {}

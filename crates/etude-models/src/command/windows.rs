//! Windows has no process groups to kill: the child itself is killed when its handle is dropped.

use tokio::process::Command;

/// Nothing to prepare.
pub(super) fn prepare(_command: &mut Command) {}

/// Dropping the child kills it.
pub(super) fn kill(_id: Option<u32>) {}

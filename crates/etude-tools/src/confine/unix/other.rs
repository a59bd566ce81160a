//! Systems that do not resolve a path below a directory by themselves.

pub(super) use super::walk::open;

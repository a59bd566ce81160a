//! Files that somebody else has named: opened beneath a directory with links resolved once ([`beneath`]), and as regular
//! files of a bounded size ([`regular`]); and directories that are shared with other users ([`shared`]). Internal to `etude`.

pub mod beneath;
pub mod regular;
pub mod shared;

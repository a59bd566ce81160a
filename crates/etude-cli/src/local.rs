//! Local model of the command line: the paths of its weights and sockets, the start of its process, and the download of
//! weights. A build without the feature `local-model` has the same functions and no model.

#[cfg(feature = "local-model")]
mod built;
#[cfg(feature = "local-model")]
mod fetch;
#[cfg(feature = "local-model")]
mod process;
#[cfg(feature = "local-model")]
mod serve;
#[cfg(feature = "local-model")]
pub(crate) use {built::*, fetch::*, serve::*};

#[cfg(not(feature = "local-model"))]
mod absent;
#[cfg(not(feature = "local-model"))]
pub(crate) use absent::*;

//! The local model as the command line has it: where its weights and sockets lie, how its process is started, and how
//! weights are had. A build without the feature `local-model` has the same functions and no model.

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

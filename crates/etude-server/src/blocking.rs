//! Work that may block, such as reading the journal, away from the threads that drive runs.

use crate::problem::{Code, Problem};

/// Does blocking work away from the threads that drive runs.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Problem::new(Code::Bug, "a handler panicked")))
}

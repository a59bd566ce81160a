//! Work that may block, such as reading the journal, away from the threads that drive runs.

use std::time::Duration;

use etude_runtime::engine::with_patience;

use crate::problem::{Code, Problem};

/// Patience of a read-only request with an unreachable database (K-23). Writes wait for `engine.patience`.
const PATIENCE: Duration = Duration::from_secs(5);

tokio::task_local! {
    static READS: ();
}

/// Handles a read-only request: its client learns soon that the database is unreachable.
pub(crate) async fn reading<T>(handling: impl Future<Output = T>) -> T {
    READS.scope((), handling).await
}

/// Runs blocking work away from the threads that drive runs.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let reads = READS.try_with(|()| ()).is_ok();
    let done = tokio::task::spawn_blocking(move || if reads { with_patience(PATIENCE, work) } else { work() });
    done.await.unwrap_or_else(|_| Err(Problem::new(Code::Bug, "internal error: a handler panicked")))
}

#[cfg(test)]
mod tests {
    use etude_runtime::engine::patience;

    use super::*;

    /// K-23: reads of a request have the patience of a client, all other work that of the engine.
    #[tokio::test]
    async fn requests_that_read_do_not_wait_for_long() {
        let of = async || blocking(|| Ok(patience())).await.expect("no panic");
        assert_eq!((reading(of()).await, of().await), (Some(PATIENCE), None));
    }
}

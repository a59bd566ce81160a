//! The end of the works: runs in progress end, or are left to the next works.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Control, Works};

/// Time for runs to stop after the drain timeout.
const LEAVE: Duration = Duration::from_millis(700);

/// Lets the runs in progress finish their effects, at most for `patience`, then leaves them to the next works.
pub(crate) async fn drain(works: &Works, patience: Duration) {
    drain_beside(works, std::future::ready(()), tokio::time::sleep(patience), LEAVE).await;
}

/// Lets the runs in progress finish their effects, and `looking`, the last look at the queue, come to its end, at most until
/// `until` is over. Then leaves the runs to the next works; they have `grace` to stop. False if something still runs.
pub(crate) async fn drain_beside(
    works: &Works,
    looking: impl Future<Output = ()>,
    until: impl Future<Output = ()>,
    grace: Duration,
) -> bool {
    works.control_all(&Control::Drain);
    let is_left = AtomicBool::new(false);
    let mut over = pin!(async {
        looking.await;
        // The last look may have taken one more run.
        let is_left = is_left.load(Ordering::Relaxed);
        works.control_all(if is_left { &Control::Leave } else { &Control::Drain });
        works.all_over().await;
    });
    let is_over = tokio::select! {
        biased;
        () = &mut over => true,
        () = until => false,
    };
    if is_over {
        return true;
    }
    is_left.store(true, Ordering::Relaxed);
    works.control_all(&Control::Leave);
    works.commands.cancel();
    // Anything that has not ended dies with the process; its run is adopted.
    tokio::time::timeout(grace, over).await.is_ok()
}

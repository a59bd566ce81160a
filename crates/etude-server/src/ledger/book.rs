//! The names of the ledger's books.

use etude_runtime::engine::OF_RUN;

use crate::settings::ServedApp;

/// A request with an idempotency key is at work, or its process died at it.
pub(crate) const BEGUN: &str = "begun";

/// The response to it is kept, or it is an action that was accepted.
pub(crate) const DONE: &str = "done";

/// It was refused: nothing was done, and the key is free.
pub(crate) const FREE: &str = "free";

/// All states of an entry of [`responses`].
pub(crate) const RESPONSES: &[&str] = &[BEGUN, DONE, FREE];

/// The books of responses: to requests about one run, whose entries go with it, and to others.
pub(crate) fn responses() -> [String; 2] {
    [format!("{OF_RUN}responses"), "responses".to_owned()]
}

/// The book of a schedule's ticks.
pub(crate) fn ticks(app: &ServedApp, schedule: &str) -> String {
    format!("ticks {} {schedule}", app.dir.display())
}

/// The book of the states of an app's schedules.
pub(crate) fn schedules(app: &ServedApp) -> String {
    format!("schedules {}", app.dir.display())
}

/// The book of a webhook's deliveries.
pub(crate) fn webhook(app: &ServedApp, webhook: &str) -> String {
    format!("webhook {} {webhook}", app.dir.display())
}

/// The book of a notice's deliveries.
pub(crate) fn notice(app: &ServedApp, notice: &str) -> String {
    format!("notice {} {notice}", app.dir.display())
}

/// The book of how far the changes of runs were reported, for each notice of an app.
pub(crate) fn notices(app: &ServedApp) -> String {
    format!("notices {}", app.dir.display())
}

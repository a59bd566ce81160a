//! The names of the ledger's books.

use etude_runtime::engine::OF_RUN;

use crate::settings::ServedApp;

/// A request with an idempotency key is in progress, or its process died during it.
pub(crate) const BEGUN: &str = "begun";

/// The response to the request is stored, or the entry is an accepted action.
pub(crate) const DONE: &str = "done";

/// The request was refused: nothing was done, and the key is free again.
pub(crate) const FREE: &str = "free";

/// All states of an entry of [`responses`].
pub(crate) const RESPONSES: &[&str] = &[BEGUN, DONE, FREE];

/// The books of responses: first that for requests about one run, whose entries are deleted with the run; then that for all
/// others.
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

/// The book of each notice's position in the changes of runs, for an app.
pub(crate) fn notices(app: &ServedApp) -> String {
    format!("notices {}", app.dir.display())
}

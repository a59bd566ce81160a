//! What a server does by itself for its apps, as their files are now: schedules, webhooks, notices and limits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etude_spec::Diagnostic;
use etude_spec::automation::Automation;
use serde_json::Value;

use crate::app::Apps;
use crate::problem::{Code, Problem};
use crate::settings::ServedApp;

/// How long a definition is used before its file is read again.
const REREAD: Duration = Duration::from_secs(1);

/// The definitions that were read in the last second, by the directories of their apps.
#[derive(Debug, Default)]
pub(crate) struct Automations(Mutex<BTreeMap<PathBuf, (Instant, Arc<Automation>)>>);

impl Automations {
    fn known(&self) -> MutexGuard<'_, BTreeMap<PathBuf, (Instant, Arc<Automation>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The definition of an app, at most a second old.
    pub(crate) fn of(&self, apps: &dyn Apps, app: &ServedApp) -> Result<Arc<Automation>, Problem> {
        if let Some((read, automation)) = self.known().get(&app.dir)
            && read.elapsed() < REREAD
        {
            return Ok(Arc::clone(automation));
        }
        let begun = Instant::now();
        let automation = apps.automation(&app.dir);
        let automation = Arc::new(automation.map_err(|why| Problem::new(Code::DefinitionInvalid, why))?);
        let mut known = self.known();
        // A slow reader does not put back what another one has read since.
        if let Some((_, newer)) = known.get(&app.dir).filter(|(read, _)| *read > begun) {
            return Ok(Arc::clone(newer));
        }
        known.insert(app.dir.clone(), (begun, Arc::clone(&automation)));
        Ok(automation)
    }
}

/// The errors of an entry; null if it has none.
pub(crate) fn broken(errors: &[Diagnostic]) -> Option<Vec<Value>> {
    (!errors.is_empty()).then(|| errors.iter().map(etude_spec::render::json).collect())
}

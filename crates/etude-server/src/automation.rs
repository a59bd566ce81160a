//! Automation of the served apps, as their files are now: schedules, webhooks, notices and limits.

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

/// Maximum age of a definition before its file is read again.
const REREAD: Duration = Duration::from_secs(1);

/// The cached definitions of an app.
#[derive(Debug, Clone)]
struct Known {
    read: Instant,
    /// The current definitions. While the file cannot be read: the last good ones with their schedules stopped.
    now: Arc<Automation>,
    /// The last definitions that could be read.
    good: Option<Arc<Automation>>,
}

/// The cached definitions, by the directories of their apps.
#[derive(Debug, Default)]
pub(crate) struct Automations(Mutex<BTreeMap<PathBuf, Known>>);

impl Automations {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The definitions of an app, at most a second old. The last good ones stay while its file cannot be read.
    pub(crate) fn of(&self, apps: &dyn Apps, app: &ServedApp) -> Result<Arc<Automation>, Problem> {
        if let Some(known) = self.lock().get(&app.dir)
            && known.read.elapsed() < REREAD
        {
            return Ok(Arc::clone(&known.now));
        }
        let begun = Instant::now();
        let read = apps.automation(&app.dir);
        let mut known = self.lock();
        // A slow reader does not overwrite a newer result.
        if let Some(newer) = known.get(&app.dir).filter(|known| known.read > begun) {
            return Ok(Arc::clone(&newer.now));
        }
        let good = known.get(&app.dir).and_then(|known| known.good.clone());
        let (now, good) = match (read, good) {
            (Ok(read), good) if !read.unreadable.is_empty() => {
                (Arc::new(good.as_deref().cloned().unwrap_or_default().stopped(&read.unreadable)), good)
            }
            (Ok(read), _) => {
                let read = Arc::new(read);
                (Arc::clone(&read), Some(read))
            }
            (Err(why), Some(good)) => (Arc::new(Automation::clone(&good).stopped_by(&why)), Some(good)),
            (Err(why), None) => return Err(Problem::new(Code::DefinitionInvalid, why)),
        };
        known.insert(app.dir.clone(), Known { read: begun, now: Arc::clone(&now), good });
        Ok(now)
    }
}

/// The errors of an entry; null if it has none.
pub(crate) fn broken(errors: &[Diagnostic]) -> Option<Vec<Value>> {
    (!errors.is_empty()).then(|| errors.iter().map(etude_spec::render::json).collect())
}

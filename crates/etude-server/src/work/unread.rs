//! Apps that cannot be read at the moment, for example while they are edited or replaced. Their runs wait.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etude_runtime::engine::{Limits, Takes};

use super::event::Event;
use super::{LOOK, Works};
use crate::app::Apps;

/// The unreadable apps by directory, with the time of the last check.
#[derive(Debug, Default)]
pub(super) struct Unread(Mutex<BTreeMap<String, Instant>>);

impl Unread {
    fn apps(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an app could not be read now.
    pub(super) fn note(&self, app: &str) {
        self.apps().insert(app.to_owned(), Instant::now());
    }

    /// True unless the app was unreadable, and still is. It is checked again after `pause`.
    fn is_readable(&self, apps: &dyn Apps, app: &str, pause: Duration) -> bool {
        let Some(at) = self.apps().get(app).copied() else { return true };
        if at.elapsed() < pause {
            return false;
        }
        let is_readable = apps.check_readable(Path::new(app)).is_ok();
        match is_readable {
            true => drop(self.apps().remove(app)),
            false => self.note(app),
        }
        is_readable
    }
}

impl Works {
    /// True unless the app of a run cannot be read now.
    pub(super) fn can_read(&self, app: &str) -> bool {
        let was_noted = self.unread.apps().contains_key(app);
        let is_readable = self.unread.is_readable(self.context.apps(), app, LOOK);
        if was_noted && is_readable {
            self.observer.say(&Event::AppReadable { app: app.to_owned() });
        }
        is_readable
    }

    /// True if the app of a run cannot be read; this is then noted. The files of a worker's runs do not change.
    pub(super) fn is_unread(&self, app: &str) -> bool {
        if self.context.settings().worker.is_some() {
            return false;
        }
        let Err(message) = self.context.apps().check_readable(Path::new(app)) else { return false };
        self.unread.note(app);
        self.observer.say(&Event::AppUnreadable { app: app.to_owned(), message });
        true
    }

    /// The same limits without the apps that cannot be read now.
    pub(super) fn readable_of(&self, limits: &Limits) -> Limits {
        let mut limits = limits.clone();
        if let Takes::Apps(apps) = &mut limits.takes {
            apps.retain(|app| self.can_read(app));
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use etude::Disk;
    use etude::definition::Definition;
    use etude::runner::Runner;
    use etude_runs::target::Target;
    use etude_runtime::engine::NewRun;

    use super::*;
    use crate::app::NotLoaded;

    /// An app that can be read or not.
    struct Folder(AtomicBool);

    impl Apps for Folder {
        fn check_readable(&self, _: &Path) -> Result<(), String> {
            if self.0.load(Ordering::Relaxed) { Ok(()) } else { Err("it is away".to_owned()) }
        }

        fn load(&self, _: &Path, _: &Target) -> Result<(Disk, Definition), NotLoaded> {
            Err(NotLoaded::Unknown { known: Vec::new() })
        }

        fn runner(&self, _: &NewRun, _: &Disk, _: &Definition) -> Result<Runner, String> {
            Err("no app is served".to_owned())
        }

        fn list(&self, _: &Path) -> Result<serde_json::Value, String> {
            Err("no app is served".to_owned())
        }
    }

    /// An unreadable app is checked again after the pause, and its runs continue once it can be read.
    #[test]
    fn an_app_is_read_again_after_a_pause() {
        let (unread, folder) = (Unread::default(), Folder(AtomicBool::new(false)));
        let hour = Duration::from_secs(3600);
        assert!(unread.is_readable(&folder, "a", Duration::ZERO), "no run of it has met a fault");
        unread.note("a");
        assert!(!unread.is_readable(&folder, "a", Duration::ZERO));
        folder.0.store(true, Ordering::Relaxed);
        assert!(!unread.is_readable(&folder, "a", hour));
        assert!(unread.is_readable(&folder, "b", hour));
        assert!(unread.is_readable(&folder, "a", Duration::ZERO) && unread.is_readable(&folder, "a", hour));
    }
}

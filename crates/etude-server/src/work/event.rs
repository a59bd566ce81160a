//! Events of a worker or a server: about its runs, and about the resources that they need.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::problem::Problem;

/// An event of a worker or a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The worker drives the run now.
    Claimed {
        /// The id of the claimed run.
        run_id: String,
        /// The dead worker that had the run.
        taken_from: Option<String>,
    },
    /// The worker has stopped driving the run.
    Released {
        /// The id of the released run.
        run_id: String,
        /// `finished`, `waiting`, `sleeping` or `drained`.
        reason: &'static str,
    },
    /// The worker stopped with the run, or another one has it.
    Lost {
        /// The id of the lost run.
        run_id: String,
        /// `lease`, `overtaken`, `blobs` if its large values or its bundle cannot be reached, or `gap` if its records or its app cannot be
        /// used.
        reason: &'static str,
        /// Details of the reason, if there are any.
        message: Option<String>,
    },
    /// The database cannot be reached.
    Disconnected,
    /// The connection to the database is back.
    Connected {
        /// The time without a connection, in milliseconds.
        after_ms: u64,
    },
    /// A run stopped, and will be tried again.
    Stopped {
        /// The id of the run that will be tried again.
        run_id: String,
        /// The error that stopped the run, as one line.
        message: String,
    },
    /// A run ended as failed, because it stopped too often.
    GivenUp {
        /// The id of the run that ended.
        run_id: String,
        /// The last error that stopped the run, as one line.
        message: String,
    },
    /// No server continues the run, because it kills its servers.
    LeftAlone {
        /// The id of the run that is left alone.
        run_id: String,
    },
    /// An app or its configuration cannot be read: its runs wait.
    AppUnreadable {
        /// The directory of the app.
        app: String,
        /// The error of the first file that cannot be read, as one line.
        message: String,
    },
    /// The app can be read again.
    AppReadable {
        /// The directory of the app.
        app: String,
    },
    /// A look at the journal failed; the previous one did not.
    JournalFailed {
        /// The error of the store, as one line.
        message: String,
    },
    /// The journal is usable again.
    JournalUsable,
    /// The keys of the issuer of access tokens cannot be read, unlike before.
    IssuerUnreachable {
        /// The issuer, as configured.
        issuer: String,
        /// The error as one line.
        message: String,
    },
    /// The keys can be read again.
    IssuerReachable {
        /// The issuer, as configured.
        issuer: String,
    },
    /// The certificate files have changed, and cannot be used: the previous certificate stays.
    CertificateUnusable {
        /// The file of the certificate, as configured.
        file: String,
        /// The error as one line.
        message: String,
    },
    /// The renewed certificate of the files is in use.
    CertificateRenewed {
        /// The file of the certificate, as configured.
        file: String,
    },
}

impl Event {
    /// The event as a JSON line.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Claimed { run_id, taken_from } => {
                json!({"event": "claimed", "run_id": run_id, "taken_from": taken_from})
            }
            Self::Released { run_id, reason } => json!({"event": "released", "run_id": run_id, "reason": reason}),
            Self::Lost { run_id, reason, message: None } => {
                json!({"event": "lost", "run_id": run_id, "reason": reason})
            }
            Self::Lost { run_id, reason, message } => {
                json!({"event": "lost", "run_id": run_id, "reason": reason, "message": message})
            }
            Self::Disconnected => json!({"event": "disconnected"}),
            Self::Connected { after_ms } => json!({"event": "connected", "after_ms": after_ms}),
            Self::Stopped { run_id, message } => json!({"event": "stopped", "run_id": run_id, "message": message}),
            Self::GivenUp { run_id, message } => json!({"event": "given_up", "run_id": run_id, "message": message}),
            Self::LeftAlone { run_id } => json!({"event": "left_alone", "run_id": run_id}),
            Self::AppUnreadable { app, message } => json!({"event": "app_unreadable", "app": app, "message": message}),
            Self::AppReadable { app } => json!({"event": "app_readable", "app": app}),
            Self::JournalFailed { message } => json!({"event": "journal_failed", "message": message}),
            Self::JournalUsable => json!({"event": "journal_usable"}),
            Self::IssuerUnreachable { issuer, message } => {
                json!({"event": "issuer_unreachable", "issuer": issuer, "message": message})
            }
            Self::IssuerReachable { issuer } => json!({"event": "issuer_reachable", "issuer": issuer}),
            Self::CertificateUnusable { file, message } => {
                json!({"event": "certificate_unusable", "file": file, "message": message})
            }
            Self::CertificateRenewed { file } => json!({"event": "certificate_renewed", "file": file}),
        }
    }

    /// True for faults and their ends. All other events of a server are visible in its responses.
    pub fn is_notable(&self) -> bool {
        !matches!(self, Self::Claimed { .. } | Self::Released { .. })
    }
}

/// Receiver of the events of a worker or a server.
pub type Events = Box<dyn Fn(&Event) + Send + Sync>;

/// Holder of the receiver of events.
#[derive(Default)]
pub(crate) struct Observer(std::sync::OnceLock<Events>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl Observer {
    pub(crate) fn set(&self, events: Events) {
        // Set once, before anything happens.
        let _ = self.0.set(events);
    }

    pub(crate) fn say(&self, event: &Event) {
        if let Some(events) = self.0.get() {
            events(event);
        }
    }
}

/// True if the last look of a loop at the journal failed. Only changes are events.
#[derive(Debug, Default)]
pub(crate) struct Looks(AtomicBool);

impl Looks {
    /// Notes a look, and its failure if it failed.
    pub(crate) fn note(&self, observer: &Observer, failed: Option<&Problem>) {
        match (self.0.swap(failed.is_some(), Ordering::SeqCst), failed) {
            (false, Some(problem)) => observer.say(&Event::JournalFailed { message: problem.detail().to_owned() }),
            (true, None) => observer.say(&Event::JournalUsable),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::problem::Code;

    /// A journal that fails for a while makes two events, for any number of looks.
    #[test]
    fn a_failing_journal_is_said_once() {
        let said: Arc<Mutex<Vec<Event>>> = Arc::default();
        let (observer, looks, of) = (Observer::default(), Looks::default(), Arc::clone(&said));
        observer.set(Box::new(move |event| of.lock().expect("no panic").push(event.clone())));
        let problem = Problem::new(Code::JournalUnavailable, "the disk is full");
        for failed in [None, Some(&problem), Some(&problem), None, None] {
            looks.note(&observer, failed);
        }
        let message = "the disk is full".to_owned();
        assert_eq!(*said.lock().expect("no panic"), [Event::JournalFailed { message }, Event::JournalUsable]);
    }
}

//! The rules of a fleet: its queues and tenants, with their limits.

use std::collections::BTreeMap;

use super::DEFAULT_QUEUE;

/// The queues and tenants of a fleet, each by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// The queues to which runs may be submitted.
    pub queues: BTreeMap<String, QueueRules>,
    /// The tenants that have limits.
    pub tenants: BTreeMap<String, TenantRules>,
    /// Where large values are: the URL of object storage. `None`: with the journal.
    pub blobs: Option<String>,
}

/// What holds for the runs of a queue. Limits are numbers of live runs (K-33).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRules {
    /// A worker looks at the queues of a higher one first.
    pub priority: i32,
    /// In the queue; `None`: any number.
    pub limit: Option<u32>,
    /// Of each tenant in the queue; `None`: any number.
    pub per_tenant: Option<u32>,
    /// Of each app in the queue; `None`: any number.
    pub per_app: Option<u32>,
    /// With a label, by its key and value.
    pub per_label: BTreeMap<(String, String), u32>,
    /// What a submitter may grant.
    pub allow: Allow,
    /// Every step runs in a sandbox or not at all (K-55).
    pub is_untrusted: bool,
}

/// What a submitter may grant to a run (K-54).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// Steps whose sandbox lets them use the network.
    pub network: bool,
    /// Steps without a sandbox.
    pub unsandboxed: bool,
    /// Agents that ask for nothing.
    pub yolo: bool,
    /// Folders of the workers that agents may read and write, with all that is in them.
    pub folders: Vec<String>,
}

/// What holds for the runs of a tenant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantRules {
    /// The most live runs, in all queues (K-33).
    pub live: Option<u32>,
    /// The most queued runs, as all that follows a quota at submission (K-57).
    pub queued: Option<u64>,
    /// The most records of runs that were submitted within a day.
    pub records_per_day: Option<u64>,
    /// The most bytes in the database.
    pub bytes: Option<u64>,
    /// The highest cost of runs that were submitted within a day, in US dollars.
    pub cost_usd_per_day: Option<f64>,
}

/// The most live runs of a queue that says nothing else.
pub const DEFAULT_LIMIT: u32 = 500;

impl Default for QueueRules {
    fn default() -> Self {
        Self {
            priority: 0,
            limit: Some(DEFAULT_LIMIT),
            per_tenant: None,
            per_app: None,
            per_label: BTreeMap::new(),
            allow: Allow::default(),
            is_untrusted: false,
        }
    }
}

impl Default for Allow {
    fn default() -> Self {
        Self { network: true, unsandboxed: true, yolo: false, folders: Vec::new() }
    }
}

impl Rules {
    /// The rules of a queue; `None` if there is no such queue. The default queue is always there.
    pub fn queue(&self, name: &str) -> Option<QueueRules> {
        let default = || (name == DEFAULT_QUEUE).then(QueueRules::default);
        self.queues.get(name).cloned().or_else(default)
    }
}

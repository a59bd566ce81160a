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
    /// URL of the object storage of large values. `None`: they are kept with the journal.
    pub blobs: Option<String>,
}

/// Rules for the runs of a queue. Limits are numbers of live runs (K-33).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRules {
    /// Priority of the queue: a worker looks at queues of higher priority first.
    pub priority: i32,
    /// Maximum in the queue; `None`: any number.
    pub limit: Option<u32>,
    /// Maximum of each tenant in the queue; `None`: any number.
    pub per_tenant: Option<u32>,
    /// Maximum of each app in the queue; `None`: any number.
    pub per_app: Option<u32>,
    /// Maximum of runs with a label, by its key and value.
    pub per_label: BTreeMap<(String, String), u32>,
    /// Permissions that a submitter may grant.
    pub allow: Allow,
    /// True if every step must run in a sandbox (K-55).
    pub is_untrusted: bool,
}

/// Permissions that a submitter may grant to a run (K-54).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// Network access for steps in a sandbox.
    pub network: bool,
    /// Steps without a sandbox.
    pub unsandboxed: bool,
    /// Agents without approvals.
    pub yolo: bool,
    /// Folders of the workers that agents may read and write, recursively.
    pub folders: Vec<String>,
}

/// Rules for the runs of a tenant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantRules {
    /// Maximum number of live runs, in all queues (K-33).
    pub live: Option<u32>,
    /// Maximum number of queued runs; like the quotas below it is checked at submission (K-57).
    pub queued: Option<u64>,
    /// Maximum number of records of runs that were submitted within a day.
    pub records_per_day: Option<u64>,
    /// Maximum size in the database, in bytes.
    pub bytes: Option<u64>,
    /// Maximum cost of runs that were submitted within a day, in US dollars.
    pub cost_usd_per_day: Option<f64>,
}

/// Limit of live runs of a queue that sets none.
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

//! `queues` and `tenants`: the rules of a fleet, which `etude engine apply` writes into its database.

use indexmap::IndexMap;

use crate::check::Findings;
use crate::diagnose::values;
use crate::diagnostic::Diagnostic;
use crate::source::{SourceFile, Span};
use crate::yaml::{self, Entries, Node, boolean, integer, number, texts};

/// Keys that an app's own file must not set, each with the reason.
const OF_USER: [(&str, &str); 3] = [
    ("engine", "it selects the database of all runs"),
    ("queues", "the rules of a fleet apply to the runs of all apps"),
    ("tenants", "the rules of a fleet apply to the runs of all apps"),
];

/// Rules of a queue under `queues`; `None` means no limit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Queue {
    /// Priority among the queues of one worker.
    pub priority: Option<i32>,
    /// Maximum number of live runs in the queue.
    pub limit: Option<u32>,
    /// Maximum number of live runs of one tenant in the queue.
    pub per_tenant: Option<u32>,
    /// Maximum number of live runs of one app in the queue.
    pub per_app: Option<u32>,
    /// Maximum number of live runs with one label, by `KEY=VALUE`.
    pub per_label: IndexMap<String, u32>,
    /// Permissions that a submitter may grant.
    pub allow: Allow,
    /// True if every step must run in a sandbox.
    pub untrusted: Option<bool>,
}

/// Permissions that a submitter may grant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Allow {
    /// Allows steps whose sandbox has the network.
    pub network: Option<bool>,
    /// Allows steps without a sandbox.
    pub unsandboxed: Option<bool>,
    /// Allows agents that never ask for approval.
    pub yolo: Option<bool>,
    /// Allowed folders of the workers.
    pub folders: Vec<String>,
}

/// Limits of a tenant under `tenants`; `None` means no limit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tenant {
    /// Maximum number of live runs in all queues.
    pub live: Option<u32>,
    /// Maximum number of queued runs of the tenant in all queues.
    pub queued: Option<u64>,
    /// Maximum number of records of runs that were submitted within a day.
    pub records_per_day: Option<u64>,
    /// Maximum size of its data in the database, in bytes.
    pub bytes: Option<u64>,
    /// Maximum cost of runs that were submitted within a day, in US dollars.
    pub cost_usd_per_day: Option<f64>,
}

/// Parses a size such as `1024`, `512KiB`, `8MiB` or `1GiB` into bytes.
pub fn size(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Reads `queues`, whose types have been checked. `None` without `queues`.
pub(super) fn queues(root: &Entries<'_>) -> Option<IndexMap<String, Queue>> {
    let entries = root.get("queues").and_then(Node::as_map)?;
    Some(entries.iter().filter_map(|(name, _, node)| Some((name.to_owned(), queue(node.as_map()?)))).collect())
}

fn queue(entries: &Entries<'_>) -> Queue {
    let small = |field: &str| integer(entries, field).and_then(|count| u32::try_from(count).ok());
    let labels = entries.get("per_label").and_then(Node::as_map).into_iter().flat_map(Entries::iter);
    let allow = entries.get("allow").and_then(Node::as_map);
    let allowed = |field: &str| allow.and_then(|allow| boolean(allow, field));
    Queue {
        priority: integer(entries, "priority").and_then(|priority| i32::try_from(priority).ok()),
        limit: small("limit"),
        per_tenant: small("per_tenant"),
        per_app: small("per_app"),
        per_label: labels
            .filter_map(|(label, _, node)| Some((label.to_owned(), u32::try_from(node.as_integer()?).ok()?)))
            .collect(),
        allow: Allow {
            network: allowed("network"),
            unsandboxed: allowed("unsandboxed"),
            yolo: allowed("yolo"),
            folders: allow.map(|allow| texts(allow, "folders")).unwrap_or_default(),
        },
        untrusted: boolean(entries, "untrusted"),
    }
}

/// Reads `tenants`, whose types have been checked. `None` without `tenants`.
pub(super) fn tenants(root: &Entries<'_>) -> Option<IndexMap<String, Tenant>> {
    let entries = root.get("tenants").and_then(Node::as_map)?;
    Some(entries.iter().filter_map(|(name, _, node)| Some((name.to_owned(), tenant(node.as_map()?)))).collect())
}

fn tenant(entries: &Entries<'_>) -> Tenant {
    let large = |field: &str| integer(entries, field).and_then(|count| u64::try_from(count).ok());
    Tenant {
        live: large("live").and_then(|count| u32::try_from(count).ok()),
        queued: large("queued"),
        records_per_day: large("records_per_day"),
        bytes: large("bytes").or_else(|| entries.get("bytes").and_then(Node::as_text).and_then(size)),
        cost_usd_per_day: number(entries, "cost_usd_per_day"),
    }
}

/// Reports faults that the field tables do not express.
pub(super) fn check(found: &mut Findings<'_>, root: &Entries<'_>) {
    for section in ["queues", "tenants"] {
        let members = root.get(section).and_then(Node::as_map).into_iter().flat_map(Entries::iter);
        for (name, key, node) in members {
            if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
                let why = format!("a name in `{section}` has 1 to {MAX_NAME} bytes and no control characters");
                unusable(found, key.span, &why, "give it a short name");
            }
            let Some(entries) = node.as_map() else { continue };
            check_labels(found, entries);
            let bytes = entries.get("bytes").filter(|_| section == "tenants");
            if let Some(bytes) = bytes.filter(|node| node.as_text().is_some_and(|text| size(text).is_none())) {
                unusable(
                    found,
                    bytes.span,
                    "`bytes` is not a size",
                    "give a number of bytes, `512KiB`, `8MiB` or `10GiB`",
                );
            }
        }
    }
}

/// Maximum length of the name of a queue or tenant, in bytes.
const MAX_NAME: usize = 128;

fn check_labels(found: &mut Findings<'_>, queue: &Entries<'_>) {
    for (label, key, _) in queue.get("per_label").and_then(Node::as_map).into_iter().flat_map(Entries::iter) {
        if label.split_once('=').is_none_or(|(key, _)| key.is_empty()) || label.contains('\0') {
            unusable(found, key.span, &format!("`{label}` is not a label"), "write it as `KEY=VALUE`");
        }
    }
}

fn unusable(found: &mut Findings<'_>, at: Span, why: &str, hint: &str) {
    found.push(values::unusable_configuration(found.file, at, why, Some(hint)));
}

/// Settings that cannot be applied to a fleet, each as an error at its place: folders that match nothing, and values of
/// `engine.blobs` that `check_blobs` refuses. Other commands do not need them, so [`crate::config::read`] does not
/// report these errors.
pub fn not_to_apply(
    file: &std::sync::Arc<SourceFile>,
    check_blobs: &dyn Fn(&str) -> Result<(), String>,
) -> Vec<Diagnostic> {
    let root = yaml::parse(file).0;
    let Some(entries) = root.as_ref().and_then(Node::as_map) else { return Vec::new() };
    let blobs = entries.get("engine").and_then(Node::as_map).and_then(|engine| engine.get("blobs"));
    let of_blobs = blobs.into_iter().filter_map(|node| {
        let why = check_blobs(node.as_text()?).err()?;
        let hint = "give `s3://bucket/prefix?region=REGION&endpoint=URL`, `file:///dir` or `database`";
        let message = format!("`engine.blobs` cannot be used: {why}");
        Some(values::unusable_configuration(file, node.span, &message, Some(hint)))
    });
    let queues = entries.get("queues").and_then(Node::as_map).into_iter().flat_map(Entries::iter);
    let allowed = queues.filter_map(|(_, _, queue)| queue.as_map()?.get("allow")?.as_map()?.get("folders")?.as_seq());
    let of_folders = allowed.flatten().filter_map(|node| {
        let folder = node.as_text().filter(|folder| !is_whole(folder))?;
        let message = format!("`allow.folders` has `{folder}`, which is not an absolute path and has no effect");
        let hint = "use the absolute path on the workers, such as `/data`";
        Some(values::unusable_configuration(file, node.span, &message, Some(hint)))
    });
    of_blobs.chain(of_folders).collect()
}

/// True if a folder is an absolute path of any system without `..`.
fn is_whole(folder: &str) -> bool {
    let is_of_windows = folder.as_bytes().get(1..3).is_some_and(|rest| rest == b":\\" || rest == b":/");
    let is_absolute = folder.starts_with('/') || folder.starts_with("\\\\") || is_of_windows;
    is_absolute && folder.split(['/', '\\']).all(|part| part != "..")
}

/// Settings in an app's own configuration file that only the user's may have, each as an error at its place.
pub fn not_of_app(file: &std::sync::Arc<SourceFile>) -> Vec<Diagnostic> {
    let root = yaml::parse(file).0;
    let Some(entries) = root.as_ref().and_then(Node::as_map) else { return Vec::new() };
    let of = |(name, why): (&str, &str)| {
        let (key, _) = entries.entry(name)?;
        let message = format!("an app cannot set `{name}`: {why}");
        let hint = "move it to your own configuration, or to a file for `--config`";
        Some(values::unusable_configuration(file, key.span, &message, Some(hint)))
    };
    OF_USER.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (crate::config::Config, Vec<String>) {
        let (config, found) = crate::config::read(&SourceFile::new("config.yaml", text));
        (config, found.into_iter().map(|diagnostic| diagnostic.message).collect())
    }

    #[test]
    fn queues_and_tenants_are_read_as_written() {
        let (config, found) = parse(
            "queues:\n  default: {}\n  batch: {priority: -1, limit: 50, per_tenant: 5, per_app: 10, \
             per_label: {\"gpu=a100\": 2}, untrusted: true, allow: {network: false, yolo: true, folders: [/data]}}\n\
             tenants: {acme: {live: 20, queued: 1000, records_per_day: 1000000, bytes: 10GiB, cost_usd_per_day: 50}}\n",
        );
        assert_eq!(found, [""; 0]);
        let queues = config.queues.expect("queues");
        assert_eq!(queues["default"], Queue::default());
        let batch = &queues["batch"];
        assert_eq!(
            (batch.priority, batch.limit, batch.per_tenant, batch.per_app),
            (Some(-1), Some(50), Some(5), Some(10))
        );
        assert_eq!((batch.per_label["gpu=a100"], batch.untrusted), (2, Some(true)));
        let allow =
            Allow { network: Some(false), unsandboxed: None, yolo: Some(true), folders: vec!["/data".to_owned()] };
        assert_eq!(batch.allow, allow);
        let acme = &config.tenants.expect("tenants")["acme"];
        assert_eq!((acme.live, acme.queued, acme.records_per_day), (Some(20), Some(1000), Some(1_000_000)));
        assert_eq!((acme.bytes, acme.cost_usd_per_day), (Some(10 << 30), Some(50.0)));
        assert_eq!((parse("{}\n").0.queues, parse("{}\n").0.tenants), (None, None));
    }

    #[test]
    fn what_no_fleet_can_keep_is_an_error() {
        for (text, part) in [
            ("queues: {a: {per_label: {gpu: 2}}}\n", "`gpu` is not a label"),
            ("queues: {a: {limits: 2}}\n", "limits"),
            ("queues: {a: {limit: -1}}\n", "limit"),
            ("queues: {a: {per_tenant: 0}}\n", "per_tenant"),
            ("queues: {\"a\\u0007\": {}}\n", "control characters"),
            ("tenants: {a: {bytes: 10GB}}\n", "`bytes` is not a size"),
            ("tenants: {a: {live: many}}\n", "live"),
        ] {
            let found = parse(text).1;
            assert!(matches!(&found[..], [one] if one.contains(part)), "{text}: {found:?}");
        }
        assert_eq!(parse("tenants: {a: {bytes: 4096}}\n").0.tenants.map(|all| all["a"].bytes), Some(Some(4096)));
    }

    /// K-54: a folder that matches nothing is refused; errors of the rules have their place.
    #[test]
    fn what_cannot_be_applied_has_its_place() {
        let text = "engine: {blobs: x}\nqueues:\n  a: {allow: {folders: [/data, data]}}\n  b:\n    allow:\n      folders:\n        - ~/data\n        - /a/../b\n        - 'C:\\data'\n";
        let file = SourceFile::new("config.yaml", text);
        let check = |text: &str| if text == "x" { Err("it is x".to_owned()) } else { Ok(()) };
        let found = not_to_apply(&file, &check);
        let places: Vec<_> = found.iter().map(|one| one.position().expect("a place").0).collect();
        assert_eq!(places, [1, 3, 7, 8]);
        assert!(found[0].message.contains("`engine.blobs` cannot be used: it is x"), "{}", found[0].message);
        assert!(found[1].message.contains("`data`"), "{}", found[1].message);
        assert!(found.iter().all(Diagnostic::is_error));
        assert_eq!(parse(text).1, [""; 0], "other commands need neither");
        assert_eq!(not_to_apply(&SourceFile::new("config.yaml", "engine: {blobs: y}\n"), &check), []);
    }

    /// cluster §6: an app cannot set the rules of a fleet.
    #[test]
    fn an_app_sets_no_rules_of_a_fleet() {
        let text = "agent: {}\nqueues: {a: {}}\ntenants: {b: {}}\nengine: {url: x}\n";
        let found = not_of_app(&SourceFile::new("etude.yaml", text));
        let places: Vec<_> = found.iter().map(Diagnostic::position).collect();
        assert_eq!(places, [Some((4, 1)), Some((2, 1)), Some((3, 1))]);
        assert!(found.iter().all(Diagnostic::is_error) && found[1].message.contains("an app cannot set `queues`"));
        assert_eq!(not_of_app(&SourceFile::new("etude.yaml", "agent: {}\n")), []);
    }
}

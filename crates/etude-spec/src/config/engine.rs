//! `engine`: the database that machines share, and the leases of workers.

use super::fleet::size;
use crate::check::Findings;
use crate::diagnose::values;
use crate::duration::long_of_node;
use crate::yaml::{Entries, Node, integer, text};

/// Minimum length of a lease beyond three beats, in milliseconds.
const MARGIN_MS: u64 = 1_000;

/// Engine settings of a fleet. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    /// URL of the database; may hold `${env:NAME}`.
    pub url: Option<String>,
    /// Length of a lease after a beat.
    pub lease_ms: u64,
    /// Interval between two beats.
    pub beat_ms: u64,
    /// Rest of a lease after the worker's connection has closed.
    pub grace_ms: u64,
    /// Interval between two polls of the queue.
    pub poll_ms: u64,
    /// Maximum wait for a database that is down.
    pub patience_ms: u64,
    /// Number of consecutive worker deaths after which a run fails; 0 means no limit.
    pub max_crashes: u32,
    /// Size of the local cache of large values, in bytes.
    pub cache_bytes: u64,
    /// Location of large values: a URL, or `database`. May hold `${env:NAME}`.
    pub blobs: Option<String>,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            url: None,
            lease_ms: 15_000,
            beat_ms: 3_000,
            grace_ms: 3_000,
            poll_ms: 500,
            patience_ms: 60_000,
            max_crashes: 3,
            cache_bytes: 10 << 30,
            blobs: None,
        }
    }
}

/// Reads `engine` of a configuration file, whose types have been checked. `None` without `engine`.
pub(super) fn read(root: &Entries<'_>) -> Option<EngineSettings> {
    let entries = root.get("engine").and_then(Node::as_map)?;
    let defaults = EngineSettings::default();
    let ms = |field: &str, default: u64| entries.get(field).and_then(|node| long_of_node(node).ok()).unwrap_or(default);
    let max_crashes = integer(entries, "max_crashes").and_then(|count| u32::try_from(count).ok());
    Some(EngineSettings {
        url: text(entries, "url").map(|url| url.text.to_owned()),
        lease_ms: ms("lease", defaults.lease_ms),
        beat_ms: ms("beat", defaults.beat_ms),
        grace_ms: ms("grace", defaults.grace_ms),
        poll_ms: ms("poll", defaults.poll_ms),
        patience_ms: ms("patience", defaults.patience_ms),
        max_crashes: max_crashes.unwrap_or(defaults.max_crashes),
        cache_bytes: cache(entries).unwrap_or(defaults.cache_bytes),
        blobs: text(entries, "blobs").map(|url| url.text.to_owned()),
    })
}

/// Value of `cache`, in bytes.
fn cache(entries: &Entries<'_>) -> Option<u64> {
    let number = integer(entries, "cache").and_then(|bytes| u64::try_from(bytes).ok());
    number.or_else(|| entries.get("cache").and_then(Node::as_text).and_then(size))
}

/// Reports faults that the field tables do not express.
pub(super) fn check(found: &mut Findings<'_>, root: &Entries<'_>) {
    let (Some(settings), Some((key, node))) = (read(root), root.entry("engine")) else { return };
    let place = |field: &str| node.as_map().and_then(|entries| entries.get(field)).map_or(key.span, |node| node.span);
    for (field, ms) in [("beat", settings.beat_ms), ("poll", settings.poll_ms)] {
        if ms == 0 {
            let why = format!("`engine.{field}` is 0; it must be at least 1 ms");
            found.push(values::unusable_configuration(found.file, place(field), &why, Some("give at least `1ms`")));
        }
    }
    if let Some(entries) = node.as_map().filter(|entries| entries.get("cache").is_some() && cache(entries).is_none()) {
        let hint = "give a number of bytes, `512KiB`, `8MiB` or `10GiB`";
        let at = entries.get("cache").map_or(key.span, |node| node.span);
        found.push(values::unusable_configuration(found.file, at, "`engine.cache` is not a size", Some(hint)));
    }
    let least = settings.beat_ms.saturating_mul(3).saturating_add(MARGIN_MS).max(settings.grace_ms.saturating_add(1));
    if settings.lease_ms < least {
        let why = format!(
            "`engine.lease` is {} ms; the minimum for this `beat` and `grace` is {least} ms",
            settings.lease_ms
        );
        let hint = "raise `lease`, or lower `beat` or `grace`";
        found.push(values::unusable_configuration(found.file, place("lease"), &why, Some(hint)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceFile;

    fn parse(text: &str) -> (Option<EngineSettings>, Vec<String>) {
        let (config, found) = crate::config::read(&SourceFile::new("config.yaml", text));
        (config.engine, found.into_iter().map(|diagnostic| diagnostic.message).collect())
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        assert_eq!(parse("{}\n"), (None, Vec::new()));
        let text = "engine: {url: \"${env:X}\", lease: 6s, beat: 1s, grace: 2s, poll: 100ms, patience: 10s, max_crashes: 0, \
             cache: 1MiB, blobs: \"file:///b\"}\n";
        let expected = EngineSettings {
            url: Some("${env:X}".to_owned()),
            lease_ms: 6_000,
            beat_ms: 1_000,
            grace_ms: 2_000,
            poll_ms: 100,
            patience_ms: 10_000,
            max_crashes: 0,
            cache_bytes: 1 << 20,
            blobs: Some("file:///b".to_owned()),
        };
        assert_eq!(parse(text), (Some(expected), Vec::new()));
        assert_eq!(parse("engine: {url: x}\n").0.map(|engine| engine.lease_ms), Some(15_000));
    }

    /// cluster: a lease is at least three beats plus a second, and more than the grace.
    #[test]
    fn a_lease_has_room_for_its_beats() {
        for (text, least) in [
            ("engine: {lease: 9s}\n", "10000"),
            ("engine: {lease: 3999ms, beat: 1s}\n", "4000"),
            ("engine: {lease: 20s, grace: 20s}\n", "20001"),
        ] {
            let found = parse(text).1;
            assert!(matches!(&found[..], [one] if one.contains(least)), "{text}: {found:?}");
        }
        assert_eq!(parse("engine: {lease: 4s, beat: 1s}\n").1, Vec::<String>::new());
        assert_eq!(parse("engine: {beat: 0s}\n").1.len(), 1);
        assert_eq!(parse("engine: {lese: 4s}\n").1.len(), 1);
        assert_eq!(parse("engine: {cache: much}\n").1, ["`engine.cache` is not a size"]);
        assert_eq!(parse("engine: {cache: 4096}\n").0.map(|engine| engine.cache_bytes), Some(4096));
    }
}

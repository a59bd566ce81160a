//! Schedules of an app.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Broken, Entry, Target, template};
use crate::diagnose::{automation as diagnose, values};
use crate::diagnostic::Diagnostic;
use crate::input::{InputDecl, InputProblem};
use crate::schedule::{Cron, MIN_INTERVAL_MS, Timing, zone};
use crate::source::{SourceFile, Span};
use crate::yaml::text;

/// Default of `catch_up_within`: a day, in milliseconds.
const CATCH_UP_WITHIN_MS: u64 = 86_400_000;

/// A schedule, as written in the file.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// The key under `schedules`: `[A-Za-z0-9._-]{1,64}`.
    pub name: String,
    /// Pipeline or stage machine to run; `None` if it is missing.
    pub target: Option<Target>,
    /// The pattern as written.
    pub cron: Option<String>,
    /// The interval, in milliseconds.
    pub every_ms: Option<u64>,
    /// The zone as written.
    pub timezone: Option<String>,
    /// Times of the ticks; `None` if they are invalid.
    pub timing: Option<Timing>,
    /// Input of the runs, with references to the tick.
    pub input: Map<String, Value>,
    /// Handling of a tick during an earlier run.
    pub overlap: Overlap,
    /// Missed ticks that run later.
    pub catch_up: CatchUp,
    /// Maximum age of a missed tick, in milliseconds.
    pub catch_up_within_ms: u64,
    /// Maximum delay of a tick, in milliseconds.
    pub jitter_ms: u64,
    /// Errors of the schedule. A schedule with errors does not tick.
    pub broken: Vec<Diagnostic>,
    file: Arc<SourceFile>,
    /// Span of the input, or of the name without one.
    input_at: Span,
    /// Span for diagnostics of the whole schedule.
    at: Span,
}

etude_core::words! {
    /// Handling of a tick during an earlier run of its schedule.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Overlap {
        /// The tick is skipped.
        #[default]
        Skip = "skip",
        /// The tick waits; at most one does.
        Queue = "queue",
        /// The tick cancels the earlier runs.
        Cancel = "cancel",
        /// The tick runs beside them.
        Allow = "allow",
    }
}

etude_core::words! {
    /// Selection of the missed ticks that run later.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum CatchUp {
        /// None of them.
        None = "none",
        /// The newest one.
        #[default]
        Last = "last",
        /// All of them, within bounds.
        All = "all",
    }
}

impl Schedule {
    /// The timing as one text: two timings are equal if their texts are.
    pub fn pattern(&self) -> String {
        match (&self.cron, self.every_ms) {
            (Some(cron), _) => format!("cron {} {cron}", self.timezone.as_deref().unwrap_or_default()),
            (None, every) => format!("every {}", every.unwrap_or_default()),
        }
    }
}

impl Schedule {
    /// Checks the input against the parameters of the target. Each tick has a time and a date, so one tick stands for
    /// all.
    pub fn misfits(&self, declared: &InputDecl) -> Vec<Diagnostic> {
        let lookup = |reference: &str| match reference {
            "tick.at" => Some("\"1970-01-01T00:00:00.000Z\"".to_owned()),
            "tick.date" => Some("\"1970-01-01\"".to_owned()),
            _ => None,
        };
        // Any other reference is an error of its own.
        let Ok(filled) = template::fill(&self.input, &lookup) else { return Vec::new() };
        let problems = declared.coerce(&[], Some(&filled)).err().unwrap_or_default();
        let misfit = |problem: &InputProblem| {
            diagnose::misfit(&self.file, self.input_at, &self.name, &problem.message, problem.hint.clone())
        };
        problems.iter().map(misfit).collect()
    }

    /// Error of a schedule whose target cannot be prepared, for example because its configuration is unreadable.
    pub fn unready(&self, why: &str) -> Diagnostic {
        diagnose::unready(&self.file, self.at, &self.name, why)
    }
}

impl Broken for Schedule {
    fn set_broken(&mut self, errors: Vec<Diagnostic>) {
        self.broken = errors;
    }
}

pub(super) fn read(entry: &mut Entry<'_, '_>) -> Schedule {
    let target = entry.target();
    let is_known = |reference: &str| matches!(reference, "tick.at" | "tick.date");
    let input = entry.input(is_known, "`{{tick.at}}` and `{{tick.date}}`").unwrap_or_default();
    let timing = timing(entry);
    Schedule {
        name: entry.name.to_owned(),
        target,
        cron: entry.word("cron").map(str::to_owned),
        every_ms: entry.duration("every"),
        timezone: entry.word("timezone").map(str::to_owned),
        timing,
        input,
        overlap: entry.word("overlap").and_then(Overlap::from_word).unwrap_or_default(),
        catch_up: entry.word("catch_up").and_then(CatchUp::from_word).unwrap_or_default(),
        catch_up_within_ms: entry.duration("catch_up_within").unwrap_or(CATCH_UP_WITHIN_MS),
        jitter_ms: entry.duration("jitter").unwrap_or(0),
        broken: Vec::new(),
        file: Arc::clone(entry.found.file),
        input_at: entry.entries.entry("input").map_or(entry.at, |(key, _)| key.span),
        at: entry.at,
    }
}

/// Reads `cron` with `timezone`, or `every`.
fn timing(entry: &mut Entry<'_, '_>) -> Option<Timing> {
    let file = entry.found.file;
    let (cron, zone_name) = (text(entry.entries, "cron"), text(entry.entries, "timezone"));
    if let Some((key, _)) = entry.entries.entry("every") {
        if cron.is_some() {
            let message = "`cron` and `every` exclude each other".to_owned();
            entry
                .found
                .push(values::contradiction(file, key.span, message, "the second pattern", "remove one of them"));
            return None;
        }
        let interval = entry.duration("every")?;
        if interval < MIN_INTERVAL_MS {
            entry.found.push(diagnose::interval_too_short(file, entry.entries.get("every")?.span));
            return None;
        }
        return Some(Timing::Every(interval));
    }
    let Some(cron) = cron else {
        if entry.entries.get("cron").is_none() {
            entry.found.push(diagnose::no_pattern(file, entry.at, entry.name));
        }
        return None;
    };
    let pattern = Cron::parse(cron.text).map_err(|error| {
        entry.found.push(diagnose::bad_cron(file, cron.at, cron.text, &error.to_string()));
    });
    let Some(name) = zone_name else {
        if entry.entries.get("timezone").is_none() {
            entry.found.push(diagnose::no_zone(file, cron.at));
        }
        return None;
    };
    let Some(zone) = zone(name.text) else {
        entry.found.push(diagnose::unknown_zone(file, name.at, name.text));
        return None;
    };
    Some(Timing::Cron(pattern.ok()?, zone))
}

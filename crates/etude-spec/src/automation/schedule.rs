//! One schedule.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Broken, Entry, Target, template};
use crate::diagnose::{automation as diagnose, values};
use crate::diagnostic::Diagnostic;
use crate::input::{InputDecl, InputProblem};
use crate::schedule::{Cron, MIN_INTERVAL_MS, Timing, zone};
use crate::source::{SourceFile, Span};
use crate::yaml::text;

/// The default of `catch_up_within`: a day, in milliseconds.
const CATCH_UP_WITHIN_MS: u64 = 86_400_000;

/// One schedule, as the file has it.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// The key under `schedules`: `[A-Za-z0-9._-]{1,64}`.
    pub name: String,
    /// What it runs; `None` if that is missing.
    pub target: Option<Target>,
    /// The pattern as written.
    pub cron: Option<String>,
    /// The interval in milliseconds.
    pub every_ms: Option<u64>,
    /// The zone as written.
    pub timezone: Option<String>,
    /// When it ticks; `None` if that cannot be read.
    pub timing: Option<Timing>,
    /// The input of its runs, with references to the tick.
    pub input: Map<String, Value>,
    /// What happens while an earlier run has not ended.
    pub overlap: Overlap,
    /// Which missed ticks run later.
    pub catch_up: CatchUp,
    /// How old a missed tick may be, in milliseconds.
    pub catch_up_within_ms: u64,
    /// The largest delay of a tick, in milliseconds.
    pub jitter_ms: u64,
    /// Its errors. A schedule with errors does not tick.
    pub broken: Vec<Diagnostic>,
    file: Arc<SourceFile>,
    /// Where its input stands, or its name if it has none.
    input_at: Span,
    /// Where diagnostics of the whole schedule point to.
    at: Span,
}

etude_core::words! {
    /// What a tick does while an earlier run of its schedule has not ended.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Overlap {
        /// It is skipped.
        #[default]
        Skip = "skip",
        /// It waits; at most one does.
        Queue = "queue",
        /// It cancels the earlier runs.
        Cancel = "cancel",
        /// It runs beside them.
        Allow = "allow",
    }
}

etude_core::words! {
    /// Which of the ticks that no server took run later.
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
    /// When it ticks, as one text: another text is another pattern.
    pub fn pattern(&self) -> String {
        match (&self.cron, self.every_ms) {
            (Some(cron), _) => format!("cron {} {cron}", self.timezone.as_deref().unwrap_or_default()),
            (None, every) => format!("every {}", every.unwrap_or_default()),
        }
    }
}

impl Schedule {
    /// The errors of its input as that of what it runs. Each tick has a time and a date, so one stands for all.
    pub fn misfits(&self, declared: &InputDecl) -> Vec<Diagnostic> {
        let lookup = |reference: &str| match reference {
            "tick.at" => Some("\"1970-01-01T00:00:00.000Z\"".to_owned()),
            "tick.date" => Some("\"1970-01-01\"".to_owned()),
            _ => None,
        };
        // A reference to something else is an error of its own.
        let Ok(filled) = template::fill(&self.input, &lookup) else { return Vec::new() };
        let problems = declared.coerce(&[], Some(&filled)).err().unwrap_or_default();
        let misfit = |problem: &InputProblem| {
            diagnose::misfit(&self.file, self.input_at, &self.name, &problem.message, problem.hint.clone())
        };
        problems.iter().map(misfit).collect()
    }

    /// The error of a schedule whose target cannot be made ready, such as one whose configuration cannot be read.
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

/// `cron` with `timezone`, or `every`.
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

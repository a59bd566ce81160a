//! `etude doctor`: checks the requirements of runs, one finding a line, each with its fix.

mod files;
mod models;

#[cfg(test)]
mod tests;
mod unix;

use serde_json::{Value, json};

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::render::commands;
use crate::render::text::harmless;
use crate::stdout;

etude_core::words! {
    /// Severity of a finding.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Level {
        /// No fault.
        Ok = "ok",
        /// No fault, but something could be better.
        Note = "note",
        /// Some runs can fail because of it.
        Warning = "warning",
        /// The app here cannot run because of it.
        Error = "error",
    }
}

impl Level {
    const fn mark(self) -> char {
        match self {
            Self::Ok => '✓',
            Self::Note => '·',
            Self::Warning => '!',
            Self::Error => '✗',
        }
    }
}

/// The result of one check.
#[derive(Debug)]
struct Finding {
    check: String,
    level: Level,
    message: String,
    /// Suggested remedy.
    fix: Option<String>,
}

impl Finding {
    fn new(check: impl Into<String>, level: Level, message: impl Into<String>) -> Self {
        Self { check: check.into(), level, message: message.into(), fix: None }
    }

    fn ok(check: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, message)
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(commands::complete(&fix.into()));
        self
    }

    fn json(&self) -> Value {
        json!({"check": self.check, "status": self.level.word(), "message": self.message, "fix": self.fix})
    }

    fn line(&self, width: usize) -> String {
        let one_line = |text: &str| harmless(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        let fix = self.fix.as_deref().map(|fix| format!("; fix: {}", one_line(fix))).unwrap_or_default();
        format!("{} {:<width$}  {}{fix}\n", self.level.mark(), self.check, one_line(&self.message))
    }
}

pub(crate) fn doctor(context: &Context, args: &args::Doctor) -> Exit {
    let app = files::App::open(context);
    let mut findings = vec![version()];
    findings.extend(files::app(&app));
    findings.extend(files::configuration(context, &app));
    findings.extend(models::findings(context, &app, args.call));
    findings.extend(files::journal(context));
    findings.extend(files::interpreters());
    findings.push(sandbox());
    findings.extend(files::completions());
    let is_usable = findings.iter().all(|finding| finding.level < Level::Error);
    if context.is_json() {
        let findings: Vec<Value> = findings.iter().map(Finding::json).collect();
        stdout::json(&json!({"usable": is_usable, "version": args::VERSION, "findings": findings}));
    } else {
        show(context, &findings);
    }
    if is_usable { Exit::Done } else { Exit::Environment }
}

/// A line for each finding that is shown. A fault with the fix of an earlier line refers to that line.
fn lines(findings: &[Finding], is_shown: impl Fn(&Finding) -> bool) -> String {
    let width = findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (at, finding) in findings.iter().enumerate().filter(|(_, finding)| is_shown(finding)) {
        let is_same = |earlier: &&Finding| {
            finding.fix.is_some()
                && earlier.fix == finding.fix
                && earlier.message == finding.message
                && is_shown(earlier)
        };
        text.push_str(&match findings[..at].iter().find(is_same) {
            Some(earlier) => {
                format!("{} {:<width$}  the same as `{}`\n", finding.level.mark(), finding.check, earlier.check)
            }
            None => finding.line(width),
        });
    }
    text
}

/// Prints the findings; with `--quiet` only warnings and errors.
fn show(context: &Context, findings: &[Finding]) {
    let is_shown = |finding: &Finding| !context.global.quiet || finding.level >= Level::Warning;
    stdout::text(&lines(findings, is_shown));
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    if !context.global.quiet && errors + warnings > 0 {
        let of = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        crate::render::say!("\n{}, {}", of(errors, "error"), of(warnings, "warning"));
    }
}

fn version() -> Finding {
    let place = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    Finding::ok("etude", format!("{} on {place}", args::VERSION))
}

/// Checks whether steps can be confined.
fn sandbox() -> Finding {
    match etude_process::sandbox::support() {
        Ok(support) => Finding::ok("sandbox", support.to_string()),
        Err(why) => Finding::new("sandbox", Level::Note, format!("not available: {why}"))
            .fix("run steps with `sandbox` on Linux 5.13 or later with Landlock"),
    }
}

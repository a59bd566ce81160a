//! `etude check`: every definition error of the app, at once.

use etude::cascade::{Project, Setup};
use etude::spec::{App, Diagnostic, Severity, did_you_mean, render};
use serde_json::{Value, json};

use crate::args;
use crate::context::{Context, Problem};
use crate::exit::Exit;
use crate::stdout;

pub(crate) fn check(context: &Context, args: &args::Check) -> Exit {
    let disk = match context.disk() {
        Ok(disk) => disk,
        Err(problem) => return context.report(None, &problem),
    };
    let app = App::new(&disk);
    let names: Vec<&str> = args.names.iter().map(String::as_str).collect();
    let known: Vec<&str> = app.discovery().all().collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let problem = Problem::usage(format!("there is no pipeline `{unknown}`"));
        let hint = did_you_mean(unknown, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        return context.report(None, &hint.into_iter().fold(problem, Problem::hint));
    }
    let report = app.check(&names);
    let tools = if names.is_empty() { etude::spec::tool::load(&disk).1 } else { Vec::new() };
    // An app with a main skill has a search path with chains; both are checked with everything else.
    let setup = Setup { start: disk.root().to_owned(), dir: Some(disk.root().to_owned()), ..Setup::default() };
    let project = Project::open_marked(setup).filter(|_| names.is_empty());
    let chains = project.map(|project| project.check()).unwrap_or_default();
    let mut diagnostics: Vec<&Diagnostic> = report.diagnostics.iter().chain(&tools).chain(&chains).collect();
    if args.portable {
        diagnostics.extend(&report.extensions);
    }
    let count = |severity| diagnostics.iter().filter(|d| d.severity == severity).count();
    let errors = count(Severity::Error);
    if context.is_json() {
        let list: Vec<Value> = diagnostics.iter().map(|d| render::json(d)).collect();
        stdout::json(&json!({ "diagnostics": list }));
    } else {
        for diagnostic in &diagnostics {
            anstream::eprintln!("{}\n", render::text(diagnostic, context.colors()));
        }
        if !context.global.quiet {
            let sound = report.checked - report.broken.len();
            anstream::eprintln!("{}", summary(errors, count(Severity::Warning), &report.broken, sound, &diagnostics));
        }
    }
    if errors > 0 { Exit::Definition } else { Exit::Done }
}

fn summary(errors: usize, warnings: usize, broken: &[String], sound: usize, all: &[&Diagnostic]) -> String {
    let counted = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let mut text = if errors == 0 {
        format!("{} fine", counted(sound, "pipeline") + if sound == 1 { " is" } else { " are" })
    } else {
        let names: Vec<String> = broken.iter().take(5).map(|name| format!("`{name}`")).collect();
        let more = if broken.len() > 5 { format!(" and {} more", broken.len() - 5) } else { String::new() };
        let place = if names.is_empty() { String::new() } else { format!(" in {}{more}", names.join(", ")) };
        let rest = match sound {
            0 => String::new(),
            1 => "; 1 other pipeline is fine".to_owned(),
            many => format!("; {many} other pipelines are fine"),
        };
        format!("{}{place}{rest}", counted(errors, "error"))
    };
    if warnings > 0 {
        text.push_str(&format!("; {}", counted(warnings, "warning")));
    }
    if let Some(first) = all.iter().find(|d| d.is_error()) {
        text.push_str(&format!(". More: etude explain {}", first.code.as_str()));
    }
    text
}

//! Outgoing notices of an app.

use super::{Broken, Entry};
use crate::diagnose::automation as diagnose;
use crate::diagnostic::Diagnostic;
use crate::glob;
use crate::yaml::{boolean, text, texts};

/// An outgoing notice, as written in the file.
#[derive(Debug, Clone)]
pub struct Notice {
    /// Name of the notice in lists of its deliveries: `[A-Za-z0-9._-]{1,64}`.
    pub name: String,
    /// URL of the receiver, or one `${env:NAME}` that holds all of it.
    pub url: String,
    /// Event types that the notice reports.
    pub on: Vec<String>,
    /// Key of the signature; may hold `${env:NAME}`.
    pub secret: String,
    /// Globs of the pipelines and stage machines that the notice reports; empty means all.
    pub pipelines: Vec<String>,
    /// True if the receiver may have a private address.
    pub allows_private: bool,
    /// Errors of the notice. A notice with errors is not sent.
    pub broken: Vec<Diagnostic>,
}

impl Notice {
    /// True if the notice reports runs of the pipeline or stage machine `name`.
    pub fn covers(&self, name: &str) -> bool {
        let fits =
            |text: &String| glob::build(text, |glob| glob).is_ok_and(|glob| glob.compile_matcher().is_match(name));
        self.pipelines.is_empty() || self.pipelines.iter().any(fits)
    }
}

impl Broken for Notice {
    fn set_broken(&mut self, errors: Vec<Diagnostic>) {
        self.broken = errors;
    }
}

pub(super) fn read(entry: &mut Entry<'_, '_>) -> Notice {
    let allows_private = boolean(entry.entries, "allow_private").unwrap_or(false);
    if let Some(url) = text(entry.entries, "url") {
        let is_http = url.text.starts_with("http://");
        let is_safe = url.text.starts_with("https://") || is_http && allows_private || url.text.starts_with("${env:");
        if !is_safe {
            entry.found.push(diagnose::receiver(entry.found.file, url.at, is_http));
        }
        // A key of the environment must not reach a host that only the app's file names.
        let is_whole = url.text.starts_with("${env:") && url.text.find('}') == Some(url.text.len() - 1);
        if url.text.contains("${env:") && !is_whole {
            entry.found.push(diagnose::variable_in_receiver(entry.found.file, url.at));
        }
    }
    let word = |field: &str| entry.word(field).unwrap_or_default().to_owned();
    Notice {
        name: entry.name.to_owned(),
        url: word("url"),
        on: texts(entry.entries, "on"),
        secret: word("secret"),
        pipelines: texts(entry.entries, "pipelines"),
        allows_private,
        broken: Vec::new(),
    }
}

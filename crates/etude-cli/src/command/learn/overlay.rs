//! Overlay of a candidate over the app, so that it is checked before it is written (L-12).

use std::collections::BTreeMap;

use etude_spec::App;
use etude_spec::source::{Entry, FileKind, ReadFailure, Sources};

/// Files of an app, with those of one pipeline over them.
pub(super) struct Overlay<'o> {
    app: &'o dyn Sources,
    /// Path prefix `pipelines/NAME/`.
    dir: String,
    name: &'o str,
    files: &'o BTreeMap<String, String>,
}

impl<'o> Overlay<'o> {
    pub(super) fn new(app: &'o dyn Sources, name: &'o str, files: &'o BTreeMap<String, String>) -> Self {
        Self { app, dir: format!("{}/{name}/", etude_spec::discover::PIPELINES), name, files }
    }

    /// Errors that `etude check` would report.
    pub(super) fn errors(&self) -> Vec<String> {
        let report = App::new(self).check(&[self.name]);
        report.diagnostics.iter().filter(|found| found.is_error()).map(|found| found.message.clone()).collect()
    }

    fn own<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(self.dir.as_str())
    }
}

impl Sources for Overlay<'_> {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadFailure> {
        let Some(own) = self.own(path) else { return self.app.read(path, limit) };
        let text = self.files.get(own).ok_or(ReadFailure::Missing)?;
        let len = text.len() as u64;
        if len > limit { Err(ReadFailure::TooLarge { len }) } else { Ok(text.clone().into_bytes()) }
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure> {
        let slashed = format!("{dir}/");
        if let Some(below) = self.own(&slashed) {
            let names = self.files.keys().filter_map(|path| path.strip_prefix(below));
            let mut entries: Vec<Entry> = names
                .map(|rest| match rest.split_once('/') {
                    Some((name, _)) => Entry { name: name.to_owned(), kind: FileKind::Dir },
                    None => Entry { name: rest.to_owned(), kind: FileKind::File { executable: false } },
                })
                .collect();
            entries.dedup();
            return Ok(entries);
        }
        let mut entries = match self.app.list(dir) {
            Err(ReadFailure::Missing) if dir == etude_spec::discover::PIPELINES => Vec::new(),
            other => other?,
        };
        if dir == etude_spec::discover::PIPELINES && !entries.iter().any(|entry| entry.name == self.name) {
            entries.push(Entry { name: self.name.to_owned(), kind: FileKind::Dir });
        }
        Ok(entries)
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        let slashed = format!("{path}/");
        if path == etude_spec::discover::PIPELINES || slashed == self.dir {
            return Ok(FileKind::Dir);
        }
        let Some(own) = self.own(path) else { return self.app.kind(path) };
        if self.files.contains_key(own) {
            return Ok(FileKind::File { executable: false });
        }
        let is_dir = self.files.keys().any(|file| file.strip_prefix(own).is_some_and(|rest| rest.starts_with('/')));
        if is_dir { Ok(FileKind::Dir) } else { Err(ReadFailure::Missing) }
    }
}

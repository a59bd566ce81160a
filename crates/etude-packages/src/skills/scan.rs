//! The bounded search of directories for skills (C-2.6).

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use etude_files::regular;
use etude_spec::Diagnostic;
use etude_spec::frontmatter::{Head, Scan, scan};
use etude_spec::skill::{self, Profile, SKILL_FILE, claude, findings};

use super::{Compat, Entry, Scope};

/// Maximum depth of a skill below its root.
const MAX_DEPTH: usize = 6;

/// Maximum number of searched directories per root, not counting skills.
const MAX_DIRECTORIES: usize = 2_000;

/// Directories that are not searched.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// Number of bytes to read of a file at first: most frontmatter is shorter.
const FIRST_READ: usize = 4 * 1024;

/// Searches one root after the other. A directory that is reachable in several ways counts once.
pub(super) struct Scanner {
    compat: Compat,
    seen: BTreeSet<PathBuf>,
    found: Vec<Entry>,
    dangling: Vec<PathBuf>,
    diagnostics: Vec<Diagnostic>,
}

/// A directory to search.
struct Place {
    /// Path with the links that led to it.
    path: PathBuf,
    /// Path without links.
    real: PathBuf,
    depth: usize,
}

impl Scanner {
    pub(super) fn new(compat: Compat) -> Self {
        Self { compat, seen: BTreeSet::new(), found: Vec::new(), dangling: Vec::new(), diagnostics: Vec::new() }
    }

    pub(super) fn scan(&mut self, root: &Path, scope: Scope) {
        let real = match fs::canonicalize(root) {
            Ok(real) => real,
            Err(error) => {
                // A link without a target is there for its author.
                if error.kind() != io::ErrorKind::NotFound && error.kind() != io::ErrorKind::NotADirectory
                    || fs::symlink_metadata(root).is_ok()
                {
                    self.unreadable(root, &error);
                }
                return;
            }
        };
        let mut queue = VecDeque::from([Place { path: root.to_owned(), real, depth: 0 }]);
        // Links come last: if their target lies here as well, it is listed under its real path.
        let mut links = VecDeque::new();
        let (mut looked_at, mut too_deep) = (0, None);
        while let Some(place) = queue.pop_front().or_else(|| self.follow(&mut links)) {
            if !self.seen.insert(place.real.clone()) || place.depth > 0 && self.skill(&place, scope) {
                continue;
            }
            looked_at += 1;
            if looked_at > MAX_DIRECTORIES {
                self.diagnostics.push(findings::too_many(&root.display().to_string(), MAX_DIRECTORIES));
                break;
            }
            let children = self.children(&place);
            if place.depth == MAX_DEPTH {
                too_deep = too_deep.or_else(|| children.first().map(|(name, _)| place.path.join(name)));
                continue;
            }
            for (name, is_link) in children {
                let child =
                    Place { path: place.path.join(&name), real: place.real.join(&name), depth: place.depth + 1 };
                if is_link { links.push_back(child) } else { queue.push_back(child) }
            }
        }
        if let Some(first) = too_deep {
            let (root, first) = (root.display().to_string(), first.display().to_string());
            self.diagnostics.push(findings::too_deep(&root, MAX_DEPTH, &first));
        }
    }

    /// The next link that leads to a directory.
    fn follow(&self, links: &mut VecDeque<Place>) -> Option<Place> {
        while let Some(link) = links.pop_front() {
            if let Ok(real) = fs::canonicalize(&link.path)
                && real.is_dir()
            {
                return Some(Place { real, ..link });
            }
        }
        None
    }

    /// Names of the directories and links in `place`, sorted. The second value is true for links.
    fn children(&mut self, place: &Place) -> Vec<(std::ffi::OsString, bool)> {
        let mut children = Vec::new();
        let entries = match fs::read_dir(&place.path) {
            Ok(entries) => entries,
            Err(error) => {
                self.unreadable(&place.path, &error);
                return children;
            }
        };
        for entry in entries.flatten() {
            let (name, Ok(kind)) = (entry.file_name(), entry.file_type()) else { continue };
            if place.depth > 0 && kind.is_file() && name != SKILL_FILE && name.eq_ignore_ascii_case(SKILL_FILE) {
                self.diagnostics.push(findings::file_case(&entry.path().display().to_string()));
            } else if kind.is_symlink() && name == SKILL_FILE && place.depth > 0 {
                // The link could not be opened.
                self.dangling.push(entry.path());
            } else if (kind.is_dir() || kind.is_symlink()) && !SKIPPED.iter().any(|skipped| name == *skipped) {
                children.push((name, kind.is_symlink()));
            }
        }
        children.sort_unstable();
        children
    }

    fn unreadable(&mut self, dir: &Path, error: &io::Error) {
        self.diagnostics.push(findings::unreadable_root(&dir.display().to_string(), &error.to_string()));
    }

    /// Reads the skill in `place`; false if it does not contain one.
    fn skill(&mut self, place: &Place, scope: Scope) -> bool {
        let location = place.path.join(SKILL_FILE);
        let shown = location.display().to_string();
        let (head, mut file) = match read_head(&location) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
            Err(error) => {
                self.diagnostics.push(findings::unreadable(&shown, &error.to_string()));
                return true;
            }
        };
        let directory = place.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut reading = skill::read(&head, directory, Profile::Lenient);
        // Without its lists of tools, a skill could do more than its author allows.
        let has_unread_tools = reading.diagnostics.iter().any(|fault| {
            fault.is_error() && matches!(fault.path.as_deref(), Some("allowed-tools" | "disallowed-tools"))
        });
        if reading.skill.is_none() && self.compat == Compat::ClaudeCode && !has_unread_tools {
            reading.skill = bodily(&head, &mut file, directory);
        }
        self.diagnostics
            .extend(reading.diagnostics.into_iter().filter(|fault| fault.severity < etude_spec::Severity::Note));
        if let Some(skill) = reading.skill {
            let directory = place.path.clone();
            self.found.push(Entry { skill, scope, directory, location, shadows: Vec::new() });
        }
        true
    }

    pub(super) fn finish(mut self) -> (Vec<Entry>, Vec<Diagnostic>) {
        if let Some(first) = self.dangling.first() {
            self.diagnostics.push(findings::dangling(&first.display().to_string(), self.dangling.len()));
        }
        (self.found, self.diagnostics)
    }
}

/// Claude Code loads a skill by its body if its frontmatter is not usable (C-3.1).
fn bodily(head: &Head, file: &mut File, directory: &str) -> Option<skill::Skill> {
    let mut bytes = Vec::new();
    io::Seek::seek(file, io::SeekFrom::Start(head.body as u64)).ok()?;
    file.take(FIRST_READ as u64).read_to_end(&mut bytes).ok()?;
    let description = claude::first_paragraph(&String::from_utf8_lossy(&bytes))?;
    Some(skill::Skill { name: skill::normalized(directory), description, ..skill::Skill::default() })
}

/// True if `skill` was read from this text, with or without frontmatter.
pub(super) fn is_read_from(skill: &skill::Skill, bytes: &[u8], directory: &Path) -> bool {
    let Some(name) = directory.file_name().and_then(|name| name.to_str()) else { return false };
    let head = Head::parse("", bytes);
    match skill::read(&head, name, Profile::Lenient).skill {
        Some(read) => read == *skill,
        None => {
            let body = bytes.get(head.body..).unwrap_or_default();
            let body = String::from_utf8_lossy(&body[..body.len().min(FIRST_READ)]);
            claude::first_paragraph(&body).is_some_and(|description| description == skill.description)
        }
    }
}

/// Reads the frontmatter of a regular file, without its body. Also returns the open file.
///
/// # Errors
/// The file cannot be read, or is not a regular file.
pub fn read_head(path: &Path) -> io::Result<(Head, File)> {
    let mut file = regular::open(path)?;
    let meta = file.metadata()?;
    let shown = path.display().to_string();
    let mut bytes = Vec::with_capacity(FIRST_READ.min(usize::try_from(meta.len()).unwrap_or(FIRST_READ)) + 1);
    loop {
        let wanted = (bytes.len() * 4).max(FIRST_READ) - bytes.len();
        let got = file.by_ref().take(wanted as u64).read_to_end(&mut bytes)?;
        if let Scan::Done(head) = scan(&shown, &bytes, got < wanted) {
            return Ok((head, file));
        }
    }
}

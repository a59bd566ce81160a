//! Discovery of skills: path entries, roots, and names (D-9).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use globset::{GlobSet, GlobSetBuilder};
use indexmap::IndexMap;
use serde_json::Value;

use crate::cascade::compile::Skills;
use crate::cascade::library;
use crate::cascade::own_faults::Checks;
use crate::cascade::parallel;
use crate::cascade::skill::{MODULES, SUFFIX, Skill};
use crate::diagnose::applications::too_many;
use crate::diagnose::skills::file_case;
use crate::diagnose::{cascade as diagnose, files};
use crate::diagnostic::Diagnostic;
use crate::glob;
use crate::skill::SKILL_FILE;
use crate::source::{Entry, FileKind, ReadFailure, SourceFile, Sources};

/// Maximum size of a skill file, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Maximum depth of the search below a root.
const MAX_DEPTH: usize = 12;

/// Maximum number of directories below a root: links can multiply directories.
const MAX_DIRECTORIES: usize = 10_000;

/// An entry of a search path (D-9.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathEntry {
    /// A directory; `external`: a separate app or package with its own authority.
    Dir {
        /// The path as written; a relative one begins at the working directory.
        dir: String,
        /// True if nothing outside the directory is consulted for its skills.
        external: bool,
    },
    /// Name of directories that are skipped below a root.
    Ignore(String),
}

impl PathEntry {
    /// Reads an entry of `paths`; `None` if it is invalid.
    pub fn read(value: &Value) -> Option<Self> {
        let dir = |dir: &str, external| Self::Dir { dir: dir.to_owned(), external };
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        match value {
            Value::String(text) => Some(dir(text, false)),
            Value::Object(_) => text("internal")
                .map(|text| dir(text, false))
                .or_else(|| text("external").map(|text| dir(text, true)))
                .or_else(|| text("ignore").map(|text| Self::Ignore(text.to_owned()))),
            _ => None,
        }
    }

    /// Reads the entries of a merged `paths`.
    pub fn list(value: Option<&Value>) -> Vec<Self> {
        match value {
            Some(Value::Array(items)) => items.iter().filter_map(Self::read).collect(),
            Some(value) => Self::read(value).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// The initial search path: the working directory, the library, and the ignored directories.
    pub fn bootstrap() -> Vec<Self> {
        let ignored = ["dist", "node_modules", ".git", ".cache"].map(|name| Self::Ignore(name.to_owned()));
        let dirs = [
            Self::Dir { dir: ".".to_owned(), external: false },
            Self::Dir { dir: library::LIBRARY.to_owned(), external: true },
        ];
        dirs.into_iter().chain(ignored).collect()
    }
}

/// Access to the files below absolute directories, implemented by the caller.
pub trait Roots {
    /// Opens the files below `dir`; `None` if there is no such directory.
    fn open(&self, dir: &str) -> Option<Arc<dyn Sources + Send + Sync>>;

    /// Returns the `frontmatter` export of a JavaScript module.
    ///
    /// # Errors
    /// The reason why the frontmatter is unknown.
    fn module(&self, path: &str) -> Result<Value, String>;
}

/// One directory with its skills.
#[derive(Debug, Clone)]
pub struct Root {
    /// Absolute path of the directory.
    pub dir: String,
    /// True for a separate app or package.
    pub external: bool,
    /// Skills of the directory by name, in the order of discovery.
    pub skills: Names<Arc<Skill>>,
}

/// A search path with all its skills.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// The project's directory, absolute.
    pub cwd: String,
    /// The directories, in order.
    pub roots: Vec<Root>,
    /// Faults of the files.
    pub diagnostics: Vec<Diagnostic>,
    /// The project's main skill.
    pub main: Option<Arc<Skill>>,
    programmatic: IndexMap<String, Arc<Skill>>,
    /// Main skills by their directory.
    mains: BTreeMap<Arc<str>, Arc<Skill>>,
}

/// Cache of reads, so that another search of the same directories reads nothing again.
#[derive(Debug, Default)]
pub struct Cache {
    /// Files by their absolute path.
    files: Names<Read>,
    /// Directory listings, by the root and the path in it: the root decides which links lead outside.
    dirs: BTreeMap<(String, String), Rc<[Entry]>>,
    /// True if skills are checked while their files are read.
    checks: bool,
}

impl Cache {
    /// A cache for a search whose skills are all checked afterwards: what they declare themselves is checked while it is
    /// read, by all threads that read.
    pub fn checking() -> Self {
        Self { checks: true, ..Self::default() }
    }
}

/// A map by names or paths, for thousands of entries.
type Names<T> = IndexMap<String, T, foldhash::fast::RandomState>;

impl Catalog {
    /// Searches the directories of `entries`; relative ones begin at `cwd`.
    pub fn search(roots: &dyn Roots, cwd: &str, entries: &[PathEntry], cache: &mut Cache) -> Self {
        let mut dirs: Vec<(String, bool)> = Vec::new();
        let mut globs = GlobSetBuilder::new();
        for entry in entries {
            match entry {
                PathEntry::Dir { dir, external } => {
                    let dir = absolute(cwd, dir);
                    if !dirs.iter().any(|(known, _)| *known == dir) {
                        dirs.push((dir, *external));
                    }
                }
                PathEntry::Ignore(pattern) => drop(glob::build(pattern, |glob| glob).map(|glob| globs.add(glob))),
            }
        }
        let ignored = globs.build().unwrap_or_default();
        let mut catalog = Self { cwd: cwd.to_owned(), ..Self::default() };
        for (dir, external) in &dirs {
            let Some(sources) = roots.open(dir) else { continue };
            // An external directory is isolated: it is searched only as a root of its own.
            let apart = dirs.iter().filter(|(other, is_external)| *is_external && other != dir);
            let apart = apart.map(|(other, _)| other.clone()).collect();
            let mut walk = Walk {
                roots,
                sources: &*sources,
                dir,
                ignored: &ignored,
                apart,
                cwd,
                files: Vec::new(),
                found: Names::default(),
                faults: Vec::new(),
                looked_at: 0,
                cache,
            };
            walk.below("", 0);
            if walk.looked_at > MAX_DIRECTORIES {
                walk.faults.push(too_many(shown(dir, cwd), MAX_DIRECTORIES));
            }
            walk.read_all();
            let (skills, faults) = (walk.found, walk.faults);
            catalog.diagnostics.extend(faults);
            catalog.roots.push(Root { dir: dir.clone(), external: *external, skills });
        }
        for skill in catalog.roots.iter().flat_map(|root| root.skills.values()).filter(|skill| skill.is_main()) {
            catalog.mains.entry(Arc::clone(&skill.dir)).or_insert_with(|| Arc::clone(skill));
        }
        catalog.diagnostics.dedup();
        catalog
    }

    /// Registers a tool without a file; it takes precedence over all others (D-9.1).
    pub fn register(&mut self, skill: Skill) {
        self.programmatic.insert(skill.name.clone(), Arc::new(skill));
    }

    /// True if no directory was searched.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Takes over the registered tools of another catalog.
    pub fn take_registered(&mut self, other: &Self) {
        self.programmatic.clone_from(&other.programmatic);
    }

    /// All tools that can be found by name, registered ones first, without duplicate names.
    pub fn list(&self) -> Vec<Arc<Skill>> {
        let mut all: IndexMap<&str, &Arc<Skill>, foldhash::fast::RandomState> = IndexMap::default();
        let found = self.roots.iter().flat_map(|root| root.skills.values());
        for skill in self.programmatic.values().chain(found) {
            all.entry(&skill.name).or_insert(skill);
        }
        all.into_values().map(Arc::clone).collect()
    }

    fn root_of(&self, skill: &Skill) -> Option<&Root> {
        let holds = |root: &&Root| root.skills.get(&skill.name).is_some_and(|found| found.dir == skill.dir);
        self.roots.iter().find(holds)
    }
}

impl Skills for Catalog {
    fn find(&self, name: &str) -> Option<Arc<Skill>> {
        let found = || self.roots.iter().find_map(|root| root.skills.get(name));
        self.programmatic.get(name).or_else(found).cloned()
    }

    fn authority(&self, skill: &Skill) -> Option<Arc<Skill>> {
        if skill.dir.is_empty() {
            return self.main.clone();
        }
        if library::holds(&skill.dir) {
            return self.find(library::DEFAULT);
        }
        if skill.is_main() {
            return None;
        }
        let limit = match self.root_of(skill) {
            Some(root) if root.external || !is_below(&skill.dir, &self.cwd) => root.dir.as_str(),
            _ => self.cwd.as_str(),
        };
        let mut dir = &*skill.dir;
        loop {
            if let Some(main) = self.mains.get(dir) {
                return Some(Arc::clone(main));
            }
            if dir == limit || !is_below(dir, limit) {
                return None;
            }
            dir = dir.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
    }

    fn names(&self) -> Vec<String> {
        self.list().iter().map(|skill| skill.name.clone()).collect()
    }
}

fn is_below(dir: &str, limit: &str) -> bool {
    dir.strip_prefix(limit).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Makes `path` absolute with `base`, without `.` and `..`.
pub fn absolute(base: &str, path: &str) -> String {
    if library::holds(path) {
        return path.to_owned();
    }
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{base}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if base == library::LIBRARY && !path.starts_with('/') { parts.join("/") } else { format!("/{}", parts.join("/")) }
}

/// A file found by the walk.
struct Met {
    /// Absolute path of its directory.
    dir: Arc<str>,
    /// Absolute path of the file.
    whole: String,
    /// Offset in `whole` at which the path within the root begins.
    inner: usize,
}

impl Met {
    /// Path of the file within the root.
    fn path(&self) -> &str {
        &self.whole[self.inner..]
    }
}

struct Walk<'a> {
    roots: &'a dyn Roots,
    sources: &'a dyn Sources,
    dir: &'a str,
    ignored: &'a GlobSet,
    apart: Vec<String>,
    cwd: &'a str,
    files: Vec<Met>,
    found: Names<Arc<Skill>>,
    faults: Vec<Diagnostic>,
    /// Number of directories listed so far.
    looked_at: usize,
    cache: &'a mut Cache,
}

impl Walk<'_> {
    fn below(&mut self, inner: &str, depth: usize) {
        self.looked_at += 1;
        if self.looked_at > MAX_DIRECTORIES {
            return;
        }
        let Some(entries) = self.entries(inner) else { return };
        let dir: Arc<str> = if inner.is_empty() { self.dir.into() } else { [self.dir, inner].join("/").into() };
        let root = self.dir.len() + 1;
        for entry in &*entries {
            let whole = || [&dir, entry.name.as_str()].join("/");
            match entry.kind {
                FileKind::File { .. } if is_skill_file(&entry.name) => {
                    self.files.push(Met { dir: Arc::clone(&dir), whole: whole(), inner: root });
                }
                FileKind::File { .. } if !inner.is_empty() && entry.name.eq_ignore_ascii_case(SKILL_FILE) => {
                    self.faults.push(file_case(shown(&whole(), self.cwd)));
                }
                FileKind::Dir if depth < MAX_DEPTH => {
                    let whole = whole();
                    if !self.is_apart(&entry.name, &whole[root..], &whole) {
                        self.below(&whole[root..], depth + 1);
                    }
                }
                _ => {}
            }
        }
    }

    /// Lists a directory, files before directories, so that skills nearer to the root win.
    fn entries(&mut self, inner: &str) -> Option<Rc<[Entry]>> {
        let key = (self.dir.to_owned(), inner.to_owned());
        if let Some(known) = self.cache.dirs.get(&key) {
            return Some(Rc::clone(known));
        }
        let mut entries = self.sources.list(inner).ok()?;
        entries.sort_unstable_by(|a, b| (a.kind == FileKind::Dir, &a.name).cmp(&(b.kind == FileKind::Dir, &b.name)));
        let entries: Rc<[Entry]> = entries.into();
        self.cache.dirs.insert(key, Rc::clone(&entries));
        Some(entries)
    }

    fn is_apart(&self, name: &str, path: &str, whole: &str) -> bool {
        self.ignored.is_match(name) || self.ignored.is_match(path) || self.apart.iter().any(|dir| dir == whole)
    }

    /// Reads the files that are not cached, with several threads if there are many, and keeps their skills in order.
    fn read_all(&mut self) {
        let files = std::mem::take(&mut self.files);
        let known: Vec<Option<usize>> = files.iter().map(|met| self.cache.files.get_index_of(&met.whole)).collect();
        let is_unread = |(met, known): &(&Met, &Option<usize>)| known.is_none() && !is_module(&met.whole);
        let unread: Vec<&Met> = files.iter().zip(&known).filter(is_unread).map(|(met, _)| met).collect();
        let mut read =
            Reader { sources: self.sources, cwd: self.cwd, checks: self.cache.checks }.all(&unread).into_iter();
        self.found.reserve(files.len());
        for (met, known) in files.into_iter().zip(known) {
            let at = match known {
                Some(at) => at,
                None if is_module(&met.whole) => {
                    let module = self.module(&met.whole, &met.dir);
                    self.cache.files.insert_full(met.whole, module).0
                }
                None => self.cache.files.insert_full(met.whole, read.next().expect("what was not known was read")).0,
            };
            let Some((_, (skills, faults))) = self.cache.files.get_index(at) else { continue };
            self.faults.extend(faults.iter().cloned());
            for skill in skills {
                self.found.entry(skill.name.clone()).or_insert_with(|| Arc::clone(skill));
            }
        }
    }

    fn module(&self, whole: &str, dir: &Arc<str>) -> Read {
        let file = SourceFile::new(shown(whole, self.cwd), "");
        match self.roots.module(whole) {
            Ok(frontmatter) => (vec![Arc::new(Skill::module(file, dir, &frontmatter))], Vec::new()),
            Err(why) => (Vec::new(), vec![diagnose::module(&file, &why)]),
        }
    }
}

/// Skills of a file, with its diagnostics.
pub type Read = (Vec<Arc<Skill>>, Vec<Diagnostic>);

/// Minimum number of files that several threads read.
const MANY: usize = 64;

/// Reader of the Markdown files of one root.
#[derive(Clone, Copy)]
struct Reader<'a> {
    sources: &'a dyn Sources,
    cwd: &'a str,
    checks: bool,
}

impl Reader<'_> {
    fn all(self, files: &[&Met]) -> Vec<Read> {
        parallel::parts(files, MANY, |part| {
            let mut checks = self.checks.then(Checks::default);
            part.iter().map(|met| self.file(met, checks.as_mut())).collect()
        })
    }

    fn file(&self, met: &Met, checks: Option<&mut Checks>) -> Read {
        match text(self.sources, met.path(), shown(&met.whole, self.cwd)) {
            Ok(file) => {
                let (skills, faults) = Skill::read_all_checked(&file, &met.dir, checks);
                // Not collected in place, because that would keep the allocation of the skills for the pointers to
                // them.
                let mut shared = Vec::with_capacity(skills.len());
                shared.extend(skills.into_iter().map(|skill| Arc::new(library::native(skill))));
                (shared, faults)
            }
            Err(fault) => (Vec::new(), vec![*fault]),
        }
    }
}

/// Path relative to the working directory, for messages.
fn shown<'p>(whole: &'p str, cwd: &str) -> &'p str {
    whole.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/')).unwrap_or(whole)
}

fn is_module(path: &str) -> bool {
    MODULES.iter().any(|suffix| path.ends_with(suffix))
}

fn is_skill_file(name: &str) -> bool {
    name == SKILL_FILE
        || [SUFFIX].iter().chain(MODULES).any(|suffix| name.len() > suffix.len() && name.ends_with(suffix))
}

/// Text of a file; `shown` is its path in messages.
pub(super) fn text(sources: &dyn Sources, path: &str, shown: &str) -> Result<Arc<SourceFile>, Box<Diagnostic>> {
    let bytes = sources.read(path, MAX_SIZE).map_err(|failure| {
        Box::new(match failure {
            ReadFailure::TooLarge { len } => files::too_large(shown, len, MAX_SIZE),
            ReadFailure::Outside => files::unreadable(shown, "a link leads out of the directory"),
            ReadFailure::Other(why) => files::unreadable(shown, &why),
            ReadFailure::Missing | ReadFailure::WrongKind => files::unreadable(shown, "it does not exist"),
        })
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(SourceFile::new(shown, text)),
        Err(error) => Err(Box::new(files::not_utf8(shown, error.as_bytes()))),
    }
}

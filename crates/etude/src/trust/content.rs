//! The content of packages and skills as hashes: what an approval is for (C-1.11).

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use etude_spec::application::StatePaths;
use sha2::{Digest, Sha256};

/// How many files are looked at: more are no package that anybody could have looked at either.
const MOST_FILES: usize = 100_000;

/// Two hashes over the content of a package or skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// What only its author changes: of a package all but `app/`.
    pub contract: String,
    /// What its own commands may change: `app/` without its state. Empty for a skill.
    pub payload: String,
}

impl Content {
    /// Both as one: `sha256:…`.
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.contract.as_bytes());
        hasher.update([0]);
        hasher.update(self.payload.as_bytes());
        hex(hasher)
    }
}

/// The content of a package, without its state: what is below `app/state`, `app/data` and the globs `state_paths`.
///
/// # Errors
/// It cannot be read.
pub fn of_package(root: &Path, state_paths: &[String]) -> io::Result<Content> {
    let state = StatePaths::new(state_paths);
    let is_state = |path: &str| state.holds(path);
    let mut walk = Walk::new(root, &is_state);
    let contract = ["APP.md", "skills", "schemas"];
    let mut hasher = Sha256::new();
    contract.iter().try_for_each(|part| walk.add(part, &mut hasher))?;
    let mut payload = Sha256::new();
    walk.add("app", &mut payload)?;
    Ok(Content { contract: hex(hasher), payload: hex(payload) })
}

/// The content of everything below `root`.
///
/// # Errors
/// It cannot be read.
pub fn of_tree(root: &Path) -> io::Result<Content> {
    let mut hasher = Sha256::new();
    Walk::new(root, &|_| false).add("", &mut hasher)?;
    Ok(Content { contract: hex(hasher), payload: String::new() })
}

fn hex(hasher: Sha256) -> String {
    let digits: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

struct Walk<'w> {
    root: &'w Path,
    is_left_out: &'w dyn Fn(&str) -> bool,
    files: usize,
    buffer: Vec<u8>,
}

impl<'w> Walk<'w> {
    fn new(root: &'w Path, is_left_out: &'w dyn Fn(&str) -> bool) -> Self {
        Self { root, is_left_out, files: 0, buffer: vec![0; 64 * 1024] }
    }

    /// Adds `path` with everything below it, in the order of names. What is not there adds nothing.
    fn add(&mut self, path: &str, hasher: &mut Sha256) -> io::Result<()> {
        if !path.is_empty() && (self.is_left_out)(path) {
            return Ok(());
        }
        self.files += 1;
        if self.files > MOST_FILES {
            return Err(io::Error::other(format!("it has more than {MOST_FILES} files")));
        }
        let place = self.root.join(path);
        let meta = match fs::symlink_metadata(&place) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if meta.is_dir() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&place)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort_unstable();
            for name in names.iter().filter(|name| *name != ".git") {
                let child = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                self.add(&child, hasher)?;
            }
        } else if meta.is_symlink() {
            // Where a link leads is its content; what lies there may belong to somebody else.
            let target = fs::read_link(&place)?;
            field(hasher, b"link", path.as_bytes());
            field(hasher, b"", target.to_string_lossy().as_bytes());
        } else if meta.is_file() {
            field(hasher, b"file", path.as_bytes());
            hasher.update(meta.len().to_le_bytes());
            self.read(&place, hasher)?;
        }
        Ok(())
    }

    fn read(&mut self, place: &Path, hasher: &mut Sha256) -> io::Result<()> {
        let mut file = File::open(place)?;
        loop {
            match file.read(&mut self.buffer)? {
                0 => return Ok(()),
                got => hasher.update(&self.buffer[..got]),
            }
        }
    }
}

/// A field with its length, so that no two sequences of fields look alike.
fn field(hasher: &mut Sha256, tag: &[u8], bytes: &[u8]) {
    hasher.update(tag);
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

//! Files of a skill or package, by name (C-2.7). None of them is opened.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use etude_spec::skill::catalog::MAX_RESOURCES;

/// Directories whose files are not listed.
const SKIPPED: [&str; 4] = [".git", "node_modules", "__pycache__", ".venv"];

/// Maximum number of directory entries that are examined.
const MAX_ENTRIES: usize = 5_000;

/// The regular files below `dir` that `is_wanted` accepts, as sorted relative paths with `/`. The second value is true if there
/// are more.
pub(crate) fn resources(dir: &Path, is_wanted: &dyn Fn(&str) -> bool) -> (Vec<String>, bool) {
    let (mut found, mut looked_at, mut more) = (Vec::new(), 0, false);
    let mut queue = VecDeque::from([(dir.to_owned(), String::new())]);
    while let Some((place, prefix)) = queue.pop_front() {
        for entry in std::fs::read_dir(&place).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > MAX_ENTRIES {
                queue.clear();
                more = true;
                break;
            }
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{prefix}{name}");
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                queue.push_back((entry.path(), format!("{path}/")));
            } else if is_wanted(&path) && (kind.is_file() || kind.is_symlink() && leads_to_file(&entry.path())) {
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    more |= found.len() > MAX_RESOURCES;
    found.truncate(MAX_RESOURCES);
    (found, more)
}

fn leads_to_file(link: &PathBuf) -> bool {
    std::fs::metadata(link).is_ok_and(|meta| meta.is_file())
}

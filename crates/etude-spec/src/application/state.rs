//! State paths of a package: files that change without an approval (C-1.11).

use globset::{Glob, GlobSet, GlobSetBuilder};

/// State paths of every package.
const USUAL: [&str; 2] = ["app/state", "app/data"];

/// State paths of a package: `app/state`, `app/data` and the globs of `metadata.statePaths`.
#[derive(Debug, Clone)]
pub struct StatePaths {
    set: GlobSet,
    directories: Vec<String>,
}

impl StatePaths {
    /// Builds the set from the usual paths and `declared`, each with everything below it. An invalid glob, or one
    /// outside `app/`, is ignored.
    pub fn new(declared: &[String]) -> Self {
        let mut set = GlobSetBuilder::new();
        let bases = declared.iter().filter_map(|pattern| base(pattern));
        for base in USUAL.iter().map(|path| (*path).to_owned()).chain(bases) {
            for pattern in [format!("{base}/**"), base] {
                if let Ok(glob) = build(&pattern) {
                    set.add(glob);
                }
            }
        }
        let is_directory = |pattern: &&String| pattern.ends_with('/') || pattern.ends_with("/**");
        let named = declared.iter().filter(is_directory).filter_map(|pattern| base(pattern));
        let is_plain = |base: &String| !base.contains(['*', '?', '[', '{', '\\']);
        let directories = USUAL.iter().map(|path| (*path).to_owned()).chain(named.filter(is_plain)).collect();
        Self { set: set.build().unwrap_or_default(), directories }
    }

    /// State directories with a known name: the usual ones, and those of globs such as `app/cache/**`.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        self.directories.iter().map(String::as_str)
    }

    /// True if the file or directory at `path`, relative to the package, is state.
    pub fn holds(&self, path: &str) -> bool {
        self.set.is_match(path)
    }
}

/// Glob of a state path without the `/**` at its end: `app/cache` for `app/cache/**`. `None` for an invalid glob, one
/// that leads out of `app/`, or one that selects all of it. If code counted as state, it could change without an
/// approval.
pub(super) fn base(pattern: &str) -> Option<String> {
    let path = crate::source::join("", pattern)?;
    let mut base = path.trim_end_matches('/');
    while let Some(rest) = base.strip_suffix("/**") {
        base = rest;
    }
    let below = base.strip_prefix("app/")?;
    let selects_some = below.split('/').any(|part| part.bytes().any(|byte| byte != b'*'));
    (selects_some && build(base).is_ok()).then(|| base.to_owned())
}

fn build(pattern: &str) -> Result<Glob, String> {
    crate::glob::build(pattern, |glob| glob.literal_separator(true).empty_alternates(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(declared: &[&str]) -> StatePaths {
        StatePaths::new(&declared.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>())
    }

    /// C-1.11: state paths are globs below `app/`; the name of a directory covers everything in it.
    #[test]
    fn state_paths_are_globs_below_app() {
        let usual = state(&[]);
        assert!(usual.holds("app/state") && usual.holds("app/data/a/b") && !usual.holds("app/cache/a"));
        for pattern in ["app/cache/**", "app/cache", "app/cache/", "./app/cache", "app/{cache,tmp}/**", "app/c*"] {
            let state = state(&[pattern]);
            assert!(state.holds("app/cache") && state.holds("app/cache/a/b.bin"), "{pattern}");
            assert!(!state.holds("app/main.py") && !state.holds("app/x/cache"), "{pattern}");
        }
        let state = state(&["app/*/log.txt", "app/**/*.db"]);
        assert!(state.holds("app/x/log.txt") && state.holds("app/a/b/c.db") && state.holds("app/a.db"));
        assert!(!state.holds("app/x/y/log.txt") && !state.holds("app/x/log.txt2"));
    }

    /// C-1.11: no pattern reaches the contract, the skills, or all of the code.
    #[test]
    fn state_paths_leave_contract_and_code_alone() {
        for pattern in ["app", "app/**", "app/*", "app/**/*", "skills/**", "**", "../app/x", "/app/x", "app/[", ""] {
            assert_eq!(base(pattern), None, "{pattern}");
            let state = state(&[pattern]);
            assert!(!state.holds("app/main.py") && !state.holds("skills/x/SKILL.md") && !state.holds("APP.md"));
        }
    }
}

//! Walking through folders as a person who works there would: without what `.gitignore` excludes, in a fixed order.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};

use crate::builtin::Stop;
use crate::confine::Place;
use crate::tool::ToolError;

/// Most files and directories that one call looks at.
const MOST: usize = 1_000_000;

/// Calls `visit` for everything below `start` until it says false. Symbolic links are shown and not followed.
pub(super) fn walk(
    start: &Place,
    depth: Option<usize>,
    ignore: bool,
    stop: &Stop,
    mut visit: impl FnMut(&DirEntry) -> Result<bool, ToolError>,
) -> Result<(), ToolError> {
    let mut walk = WalkBuilder::new(start.real());
    walk.standard_filters(false).follow_links(false).max_depth(depth).require_git(false);
    // What the user ignores everywhere is not known to this crate, and would make runs differ between machines.
    walk.git_ignore(ignore).ignore(ignore).parents(ignore).git_exclude(ignore).git_global(false);
    walk.filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
    walk.sort_by_file_name(std::cmp::Ord::cmp);
    for (seen, entry) in walk.build().enumerate() {
        stop.check()?;
        if seen > MOST {
            let message = format!("there are more than {MOST} files; give a narrower `path`");
            return Err(ToolError::failed(message));
        }
        // What cannot be read is as if it were not there: permissions differ inside large trees.
        let Ok(entry) = entry else { continue };
        if entry.depth() > 0 && !visit(&entry)? {
            break;
        }
    }
    Ok(())
}

/// A pattern for paths below the start of a walk. Without a slash it holds at any depth, as in `.gitignore`.
pub(super) fn pattern(glob: &str) -> Result<GlobMatcher, ToolError> {
    let glob = glob.strip_prefix("./").unwrap_or(glob);
    let anywhere = if glob.contains('/') { glob.to_owned() } else { format!("**/{glob}") };
    let invalid = |error: globset::Error| {
        ToolError::terminal("InputInvalid", format!("`{glob}` is not a glob pattern: {}", error.kind()))
    };
    let built = GlobBuilder::new(&anywhere).literal_separator(true).empty_alternates(true).build().map_err(invalid)?;
    Ok(built.compile_matcher())
}

/// The part of a path below the start of a walk.
pub(super) fn below<'a>(start: &Place, path: &'a Path) -> &'a Path {
    path.strip_prefix(start.real()).unwrap_or(path)
}

/// True for regular files. Links are not followed, also not by looking at what they lead to.
pub(super) fn is_file(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_file())
}

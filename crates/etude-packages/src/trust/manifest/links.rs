//! Links that approved content may contain: those with a target inside it.

use std::path::{Component, Path};

use super::is_version_control;

/// Checks the `target` of the link at `path`. `..` is accepted only at the beginning of a target, where it is relative to real
/// directories. So no chain of accepted links leads to the outside.
pub(super) fn check(path: &Path, target: &Path) -> Result<(), String> {
    let outside = || format!("is a symbolic link to `{}`, outside the package", target.display());
    let mut place = path.parent().map(Path::to_owned).unwrap_or_default();
    let mut is_below = false;
    for part in target.components() {
        match part {
            Component::Normal(name) => {
                is_below = true;
                place.push(name);
            }
            Component::ParentDir if is_below => {
                return Err(format!(
                    "is a symbolic link to `{}`: `..` after a name can leave the package",
                    target.display()
                ));
            }
            Component::ParentDir if place.pop() => {}
            Component::CurDir => {}
            _ => return Err(outside()),
        }
    }
    if is_version_control(&place) {
        return Err(format!("is a symbolic link to `{}`, and approvals do not cover `.git`", target.display()));
    }
    Ok(())
}

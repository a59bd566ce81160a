//! Unix other than Linux: nothing keeps a process in a sandbox.

use crate::process::sandbox::wire::Rules;

/// From this version on Landlock keeps signals inside.
pub(in crate::process::sandbox) const SIGNALS: u32 = 6;

/// The version of Landlock's interface.
pub(in crate::process::sandbox) fn landlock() -> Result<u32, String> {
    Err("sandboxes need Linux 6.2 or newer".to_owned())
}

/// Takes rights from this process.
pub(in crate::process::sandbox) fn restrict(_rules: &Rules) -> Result<(), String> {
    landlock().map(drop)
}

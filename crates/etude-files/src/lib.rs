//! File access for untrusted paths and for private files. Files that others have named are opened beneath a directory
//! with links resolved once ([`beneath`]), and as regular files of a bounded size ([`regular`]). The user's own files
//! are for their owner alone ([`private`]), and replaced as a whole ([`whole`]). [`shared`] recognizes directories that
//! other users can write to. [`socket`] shortens paths of sockets.
//! Internal to `etude`.

pub mod beneath;
pub mod private;
pub mod regular;
pub mod shared;
pub mod socket;
pub mod whole;

/// The directory of `path`; for a single name, the working directory.
fn parent(path: &std::path::Path) -> &std::path::Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."))
}

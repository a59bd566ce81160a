//! Files as their owner and their reader need them. Those that others have named: opened beneath a directory with links
//! resolved once ([`beneath`]), and as regular files of a bounded size ([`regular`]). Those of the user's: for their owner
//! alone ([`private`]), and replaced as a whole ([`whole`]). And directories that are shared with other users ([`shared`]).
//! Internal to `etude`.

pub mod beneath;
pub mod private;
pub mod regular;
pub mod shared;
pub mod whole;

/// The directory of `path`; that of a single name is the working directory.
fn parent(path: &std::path::Path) -> &std::path::Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."))
}

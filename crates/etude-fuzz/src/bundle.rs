//! Several files in one input: the main file, then further files, each after a line `=== PATH`.

use etude_spec::source::MemorySources;

/// Prefix of the line that names the next file.
const MARK: &str = "=== ";

/// The files of an input, the main one under `main`. Paths are those of an app: separated by `/`, without `..`.
pub(crate) fn files<'t>(text: &'t str, main: &'t str) -> Vec<(&'t str, &'t str)> {
    let mut found = Vec::new();
    let (mut path, mut from, mut at) = (main, 0, 0);
    for line in text.split_inclusive('\n') {
        if let Some(next) = line.strip_prefix(MARK).map(str::trim).filter(|path| is_plain(path)) {
            found.push((path, &text[from..at]));
            (path, from) = (next, at + line.len());
        }
        at += line.len();
    }
    found.push((path, &text[from..]));
    found
}

fn is_plain(path: &str) -> bool {
    path.len() < 200 && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// The files of an input, as sources of an app.
pub(crate) fn sources(text: &str, main: &str) -> MemorySources {
    files(text, main).into_iter().fold(MemorySources::new(), |sources, (path, content)| sources.with(path, content))
}

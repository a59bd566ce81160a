//! Checks of documents: links resolve, decisions are numbered, each code has a page, and nothing is specific to one machine.

mod decisions;
mod map;
mod walk;

use std::collections::BTreeMap;

use crate::rust::line_of;
use crate::tree::{Tree, Violation};

pub use decisions::decisions;
pub use map::map;
pub use walk::walk;

/// Hosts of package registries, in pieces, so that this file does not name them.
const HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("proxy.golang", ".org"),
    concat!("rubygems", ".org"),
];

/// Home directories of machines, in pieces as well.
const PLACES: &[&str] = &[concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];

/// Checks that every relative link of every document leads to a file or directory. Material of examples and tests is ignored.
pub fn links(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".md").filter(|(path, _)| !is_material(path)) {
        let prose = prose(text);
        for (offset, target) in targets(&prose) {
            let is_elsewhere = target.contains("://") || target.starts_with("mailto:") || target.starts_with('#');
            if is_elsewhere || resolve(path, target).is_some_and(|place| tree.has(&place)) {
                continue;
            }
            found.push(Violation::at(path, line_of(&prose, offset), format!("the link `{target}` leads nowhere")));
        }
    }
    found
}

/// True for documents that are the material of an example or test, rather than documents of this project.
fn is_material(path: &str) -> bool {
    let is_example = path.starts_with("examples/") && path.split('/').count() > 3;
    is_example || path.split('/').any(|part| ["tests", "testdata", "benches"].contains(&part))
}

/// The text with code blanked.
fn prose(text: &str) -> String {
    let (mut out, mut in_fence) = (String::new(), false);
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        in_fence ^= is_fence;
        if is_fence || in_fence {
            out.extend(line.chars().map(|c| if c == '\n' { c } else { ' ' }));
            continue;
        }
        let mut in_code = false;
        out.extend(line.chars().map(|c| {
            in_code ^= c == '`';
            if in_code && c != '\n' { ' ' } else { c }
        }));
    }
    out
}

/// Targets of inline links and of link definitions.
fn targets(prose: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, _) in prose.match_indices("](") {
        let rest = &prose[at + 2..];
        if let Some(end) = rest.find([')', '\n']) {
            found.push((at, rest[..end].split_whitespace().next().unwrap_or_default()));
        }
    }
    for (at, _) in prose.match_indices("]: ") {
        let is_definition = prose[..at].rsplit('\n').next().is_some_and(|start| start.trim_start().starts_with('['));
        if is_definition {
            found.push((at, prose[at + 3..].split_whitespace().next().unwrap_or_default()));
        }
    }
    found
}

/// Path to which a link in the document `from` leads; `None` if it is outside the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let target = target.split('#').next().unwrap_or_default();
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Documents that are read as a whole, with their maximum number of lines.
const LENGTHS: &[(&str, usize)] = &[("README.md", 200), ("ARCHITECTURE.md", 360), ("AGENTS.md", 120)];

/// Checks that documents that are read as a whole stay short.
pub fn lengths(tree: &Tree) -> Vec<Violation> {
    let too_long = |(path, most): &(&str, usize)| {
        let lines = tree.text(path)?.lines().count();
        (lines > *most).then(|| Violation::of(path, format!("{lines} lines; at most {most}, so that it is read whole")))
    };
    LENGTHS.iter().filter_map(too_long).collect()
}

/// Checks that every code of the product has a page `docs/errors/CODE.md`, and every page a code. Without any pages, nothing is
/// required.
pub fn pages(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    if !tree.has_below("docs/errors") {
        return found;
    }
    let codes = codes(tree);
    for (code, (path, line)) in &codes {
        let page = format!("docs/errors/{code}.md");
        match tree.text(&page) {
            None => found.push(Violation::at(path, *line, format!("`{code}` has no page `{page}`"))),
            Some(text) => {
                let title = text.lines().next().unwrap_or_default();
                if !title.starts_with(&format!("# {code}")) || title.len() < code.len() + 5 {
                    found.push(Violation::at(&page, 1, format!("a page begins with code and title: `# {code}: …`")));
                }
                if !text.lines().any(|line| line.starts_with("## ")) {
                    found.push(Violation::of(&page, "a page says under headings what the cause is and what to do"));
                }
            }
        }
    }
    for path in tree.paths().filter(|path| path.starts_with("docs/errors/")) {
        let name = path.trim_start_matches("docs/errors/").trim_end_matches(".md");
        if is_code(name) && !codes.contains_key(name) {
            found.push(Violation::of(path, format!("nothing in the product has the code `{name}`")));
        }
    }
    found
}

/// All codes in the product's sources, with one location each.
fn codes(tree: &Tree) -> BTreeMap<String, (String, usize)> {
    let mut codes = BTreeMap::new();
    for source in tree.sources().iter().filter(|source| source.package() != "xtask") {
        for literal in source.literals.iter().filter(|literal| is_code(&literal.text)) {
            let place = (source.path.clone(), line_of(&source.text, literal.offset));
            codes.entry(literal.text.clone()).or_insert(place);
        }
    }
    codes
}

fn is_code(text: &str) -> bool {
    text.len() == 5 && text.starts_with(['P', 'R', 'E', 'B']) && text[1..].bytes().all(|byte| byte.is_ascii_digit())
}

/// Checks that no file names a package registry's host or a path on a particular machine. (Lock files are cargo's.)
pub fn machine_matters(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !path.ends_with("Cargo.lock")) {
        for host in HOSTS {
            for (offset, _) in text.match_indices(host) {
                found.push(Violation::at(path, line_of(text, offset), "names the host of a package registry"));
            }
        }
        for place in PLACES {
            for (offset, _) in text.match_indices(place).filter(|(at, _)| begins_path(text, *at)) {
                let what = format!("names a path of one machine (`{place}…`); take a made-up one, such as `/srv/app`");
                found.push(Violation::at(path, line_of(text, offset), what));
            }
        }
    }
    found
}

/// True if no text before the slash makes it part of a longer path.
fn begins_path(text: &str, at: usize) -> bool {
    !text[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~}/".contains(c))
}

#[cfg(test)]
mod tests;

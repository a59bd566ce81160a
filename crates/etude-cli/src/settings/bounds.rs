//! Limits of the user's `agent.sandbox` for that of an app, which may be narrower but never wider.

use std::path::{Path, PathBuf};

use etude_core::effect::Sandbox;

use super::Layer;
use crate::paths;

/// Effective sandbox for programs of agents, and the rights that the app requests beyond the user's.
pub(super) fn sandbox(layers: &[Layer], app: &Path) -> (Option<Sandbox>, Vec<String>) {
    let of = |layer: &Layer| layer.config.agent.sandbox.clone();
    let nearest = layers.iter().find_map(of);
    let bound = layers.iter().filter(|layer| !layer.is_of_app).find_map(of);
    match (nearest, bound) {
        (Some(asked), Some(bound)) => narrowed(&asked, &bound, app),
        (nearest, _) => (nearest, Vec::new()),
    }
}

/// Requested sandbox limited by the bound, and the rights left out.
fn narrowed(asked: &Sandbox, bound: &Sandbox, app: &Path) -> (Option<Sandbox>, Vec<String>) {
    if asked == bound {
        return (Some(bound.clone()), Vec::new());
    }
    // Tools reach the app in any case.
    let writable: Vec<PathBuf> = real(&bound.write, app).chain(app.canonicalize()).collect();
    let readable: Vec<PathBuf> = real(&bound.read, app).chain(writable.iter().cloned()).collect();
    let mut beyond = Vec::new();
    let mut within = |right: &str, paths: &[String], bounds: &[PathBuf]| -> Vec<String> {
        let kept = |path: &String| {
            // Links are resolved: the target is checked, and is opened later.
            let found = place(path, app).canonicalize().ok();
            let found = found.filter(|found| bounds.iter().any(|bound| found.starts_with(bound)));
            let found = found.and_then(|found| found.to_str().map(str::to_owned));
            if found.is_none() {
                beyond.push(format!("{right}: {path}"));
            }
            found
        };
        paths.iter().filter_map(kept).collect()
    };
    let read = within("read", &asked.read, &readable);
    let write = within("write", &asked.write, &writable);
    if asked.network && !bound.network {
        beyond.push("network: true".to_owned());
    }
    (Some(Sandbox { network: asked.network && bound.network, read, write }), beyond)
}

/// Paths with links resolved. A missing path grants nothing.
fn real<'a>(texts: &'a [String], app: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    texts.iter().filter_map(|text| place(text, app).canonicalize().ok())
}

/// Expands a path of a sandbox: `~/` is the home, others are relative to the app.
fn place(path: &str, app: &Path) -> PathBuf {
    match (path.strip_prefix("~/"), paths::home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => app.join(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SECURITY.md, "The author of a repository": an app narrows the sandbox of its user, and neither a name nor a link widens
    /// it.
    #[test]
    fn an_app_does_not_widen_the_sandbox_of_its_user() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("it is there");
        for made in ["app/data", "notes/app", "other"] {
            std::fs::create_dir_all(root.join(made)).expect("made");
        }
        std::os::unix::fs::symlink(root.join("other"), root.join("app/link")).expect("linked");
        let text = |path: &str| root.join(path).display().to_string();
        let app = root.join("app");
        let bound = Sandbox { network: false, read: Vec::new(), write: vec![text("notes")] };
        let asked = Sandbox {
            network: true,
            read: vec!["data".to_owned(), text("notes/app"), "/".to_owned(), text("notes/../other")],
            write: vec![text("notes/app"), "link".to_owned(), "..".to_owned(), text("missing")],
        };
        let (sandbox, beyond) = narrowed(&asked, &bound, &app);
        let kept =
            Sandbox { network: false, read: vec![text("app/data"), text("notes/app")], write: vec![text("notes/app")] };
        assert_eq!(sandbox, Some(kept));
        let left_out = [
            "read: /".to_owned(),
            format!("read: {}", text("notes/../other")),
            "write: link".to_owned(),
            "write: ..".to_owned(),
            format!("write: {}", text("missing")),
            "network: true".to_owned(),
        ];
        assert_eq!(beyond, left_out);
    }
}

//! Pipelines and machines named by the path of their directory or definition, as shells complete them.

use std::borrow::Cow;
use std::path::{Component, Path};

use etude_core::shell;
use etude_spec::discover::{PIPELINE_FILE, PIPELINES};
use etude_spec::stage_machine::{MACHINE_FILE, MACHINES};

use crate::problem::Problem;

/// Name of the pipeline or machine that `word` names in the app at `root`: the word itself, unless it is a path to a directory
/// or a definition.
///
/// # Errors
/// The path leads to a definition outside of the app. A definition of the same name in this app must not be taken instead.
pub(crate) fn name<'a>(root: &Path, word: &'a str) -> Result<Cow<'a, str>, Problem> {
    let is_path = word.contains('/') || word.contains(std::path::MAIN_SEPARATOR);
    let Some(place) = is_path.then(|| Path::new(word).canonicalize().ok()).flatten() else {
        return Ok(Cow::Borrowed(word));
    };
    let Some((app, name)) = definition(&place) else { return Ok(Cow::Borrowed(word)) };
    if root.canonicalize().is_ok_and(|root| root == app) {
        return Ok(Cow::Owned(name.to_owned()));
    }
    let at = shell::word(&app.display().to_string());
    Err(Problem::usage(format!("`{word}` is not in the app `{}`", root.display()))
        .hint(format!("select its app with `-C {at}`, then name `{name}`")))
}

/// App and name of the definition at `place`, a directory or a file.
fn definition(place: &Path) -> Option<(&Path, &str)> {
    let file = place.file_name()?;
    let (dir, is_file) = match file.to_str() {
        Some(PIPELINE_FILE | MACHINE_FILE) => (place.parent()?, true),
        _ => (place, false),
    };
    let Some(Component::Normal(name)) = dir.components().next_back() else { return None };
    let kind = dir.parent()?.file_name()?;
    let is_definition = match kind.to_str()? {
        PIPELINES => !is_file || file == PIPELINE_FILE,
        MACHINES => !is_file || file == MACHINE_FILE,
        _ => false,
    };
    is_definition.then_some((dir.parent()?.parent()?, name.to_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli: a path names a definition of its own app, never one of the same name in another app.
    #[test]
    fn paths_name_definitions_of_the_app() {
        let dir = tempfile::tempdir().expect("a directory");
        for app in ["one", "two"] {
            for (kind, file) in [("pipelines", PIPELINE_FILE), ("machines", MACHINE_FILE)] {
                let place = dir.path().join(app).join(kind).join("p");
                std::fs::create_dir_all(&place).expect("a directory can be made");
                std::fs::write(place.join(file), "x").expect("written");
            }
        }
        let root = dir.path().join("one");
        let named = |path: &str| name(&root, &dir.path().join(path).display().to_string()).map(Cow::into_owned);
        for path in
            ["one/pipelines/p", "one/pipelines/p/", "one/pipelines/p/pipeline.yaml", "one/machines/p/machine.yaml"]
        {
            assert_eq!(named(path).expect("it is of the app"), "p", "{path}");
        }
        let problem = named("two/pipelines/p").expect_err("it is another app's");
        assert!(problem.failures[0].message.contains("is not in the app"), "{problem:?}");
        for word in ["p", "pipelines/q", "one/pipelines/q/pipeline.yaml", "a/b"] {
            assert_eq!(name(&root, word).expect("a word"), word);
        }
    }
}

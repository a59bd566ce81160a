//! Steps of type `application`, checked against the packages that are installed.

use crate::application::Contract;
use crate::check::Findings;
use crate::diagnose::applications as diagnose;
use crate::yaml::Text;

/// Packages that steps of type `application` find on this machine (C-1.7).
#[derive(Debug, Clone, Default)]
pub struct Packages {
    /// Contracts of the packages without errors.
    pub sound: Vec<Contract>,
    /// Slugs of the packages with errors.
    pub broken: Vec<String>,
}

/// Warns of a step whose package or command is not declared on this machine. Another machine may have the package.
pub(super) fn check(
    found: &mut Findings<'_>,
    (slug, command): (Option<Text<'_>>, Option<Text<'_>>),
    packages: &Packages,
) {
    let Some(slug) = slug else { return };
    if packages.broken.iter().any(|broken| broken == slug.text) {
        return found.push(diagnose::broken_package(found.file, slug.at, slug.text));
    }
    let Some(contract) = packages.sound.iter().find(|contract| contract.slug == slug.text) else {
        let sound = packages.sound.iter().map(|contract| contract.slug.as_str());
        let known: Vec<&str> = sound.chain(packages.broken.iter().map(String::as_str)).collect();
        return found.push(diagnose::unknown_package(found.file, slug.at, slug.text, &known));
    };
    let Some(command) = command else { return };
    let words: Vec<String> = command.text.split_whitespace().map(str::to_owned).collect();
    if contract.command(&words).is_none() {
        let known: Vec<&str> = contract.commands.iter().map(String::as_str).collect();
        found.push(diagnose::undeclared_command(found.file, command.at, (slug.text, command.text), &known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::App;
    use crate::source::MemorySources;

    fn findings(slug: &str, command: &str) -> Vec<(String, Option<String>)> {
        let step = format!("{{name: a, type: application, application: {slug}, command: {command}}}");
        let text = format!("name: p\ndescription: d\nsteps: [{step}]\n");
        let sources = MemorySources::new().with("pipelines/p/pipeline.yaml", text);
        let contract = Contract {
            slug: "tool-shed".to_owned(),
            commands: vec!["box list".to_owned(), "wipe".to_owned()],
            ..Contract::default()
        };
        let packages = Packages { sound: vec![contract], broken: vec!["torn".to_owned()] };
        let app = App::new(&sources).with_packages(packages);
        let report = app.check(&[]);
        assert!(report.diagnostics.iter().all(|fault| !fault.is_error()), "{:?}", report.diagnostics);
        report.diagnostics.into_iter().map(|fault| (fault.message, fault.hint)).collect()
    }

    /// a misspelled package or command is found before a run, with the name that was probably meant.
    #[test]
    fn a_misspelled_package_or_command_is_found() {
        let said = |text: &str, hint: &str| vec![(text.to_owned(), Some(hint.to_owned()))];
        assert_eq!(findings("tool-shed", "box list"), []);
        assert_eq!(findings("tool-shed", "wipe all"), []);
        assert_eq!(findings("tool-shad", "wipe"), said("there is no package `tool-shad`", "did you mean `tool-shed`?"));
        assert_eq!(
            findings("tool-shed", "wype"),
            said("package `tool-shed` does not declare the command `wype`", "did you mean `wipe`?")
        );
        assert_eq!(
            findings("torn", "wipe"),
            said("package `torn` has errors, so the step cannot run", "list all errors: etude apps check")
        );
    }
}

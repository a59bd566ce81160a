//! Files that a run needs and that its bundle lacks: a push refuses them, so that no run fails on its worker.

use std::collections::BTreeSet;
use std::path::PathBuf;

use etude::Disk;
use etude::definition::{self, Configuration};
use etude_core::plan::StepKind;
use etude_runs::target::Target;
use etude_spec::discover::{PIPELINE_FILE, PIPELINES};
use etude_spec::skill::SKILL_FILE;
use etude_spec::source::{Entry, FileKind, ReadFailure, Sources};
use etude_spec::stage_machine::{MACHINE_FILE, MACHINES, Machines, Rules};
use etude_spec::{App, Code, Diagnostic};
use etude_tools::bundle::Bundle;

use super::refused;
use crate::paths;
use crate::problem::Problem;

/// Refuses a bundle without a file that a sound definition of its app names: that of `target`, or any.
pub(crate) fn check(disk: &Disk, bundle: &Bundle, target: Option<&Target>) -> Result<(), Problem> {
    let Ok(root) = disk.root().canonicalize() else { return Ok(()) };
    let packed = Packed { disk, root, paths: bundle.entries().iter().map(|entry| entry.path.as_str()).collect() };
    let fault = match target {
        Some(Target::Pipeline(name)) => of_pipelines(&packed, Some(name)),
        Some(Target::Machine(name)) => of_machines(&packed, Some(name)),
        Some(Target::Skill(_)) => of_skill(&packed),
        None => of_pipelines(&packed, None).or_else(|| of_machines(&packed, None)).or_else(|| of_skill(&packed)),
    };
    let fault = fault.or_else(|| has_agents(disk, target).then(|| of_tools(&packed)).flatten());
    let Some(fault) = fault else { return Ok(()) };
    Err(Problem::usage(format!("a file that the app needs is left out of its bundle: {fault}"))
        .hint("a bundle has neither `.env` nor files that `.gitignore` excludes: include the file with a line `!/PATH` in `.gitignore`"))
}

/// Refuses an archive without a file that one of its definitions or tools names. Nothing shows if the app had the file.
pub(crate) fn check_archive(bundle: &Bundle) -> Result<(), Problem> {
    let scratch = paths::scratch("push").map_err(Problem::environment)?;
    let dir = scratch.path().join("app");
    bundle.unpack_for_now(&dir).map_err(|error| refused(&error))?;
    let disk =
        Disk::open(&dir).map_err(|error| Problem::environment(format!("the archive cannot be read: {error}")))?;
    let (app, machines) = (App::new(&disk), Machines::new(&disk, Rules::default()));
    let names: Vec<&str> = machines.names().iter().map(String::as_str).collect();
    let of_machines = machines.check(&names).diagnostics;
    let names: Vec<&str> = app.discovery().all().collect();
    let of_definitions = app.check(&names).diagnostics.into_iter().chain(of_machines).filter(Diagnostic::is_error);
    // A tool without its program fails at every call, although its description is sound.
    let of_tools = etude_spec::tool::load(&disk).1;
    let is_of_file = |found: &Diagnostic| matches!(found.code, Code::MissingFile | Code::MissingScript);
    let Some(fault) = of_definitions.chain(of_tools).find(is_of_file) else { return Ok(()) };
    let message = format!("a file that the app needs is not in the archive: {}: {}", fault.file.path(), fault.message);
    Err(Problem::usage(message).hint("add the file to the archive, or push the directory: etude push DIR"))
}

/// The first fault of the pipelines, or of one with the constructor and destructor, that only the bundle has.
fn of_pipelines(packed: &Packed<'_>, name: Option<&str>) -> Option<String> {
    let (here, there) = (App::new(packed.disk), App::new(packed));
    let is_other = |own: &str| here.discovery().pipelines.iter().any(|other| other == own);
    let names: Vec<&str> =
        here.discovery().all().filter(|own| name.is_none_or(|name| name == *own || !is_other(own))).collect();
    let is_absent = |name: &&str| packed.hides(&format!("{PIPELINES}/{name}/{PIPELINE_FILE}"));
    match names.iter().copied().find(is_absent) {
        _ if names.is_empty() => None,
        Some(name) => Some(format!("`{PIPELINES}/{name}/{PIPELINE_FILE}`")),
        None => added(&there.check(&names).diagnostics, || here.check(&names).diagnostics),
    }
}

/// The first fault of the machines, or of one, that only the bundle has.
fn of_machines(packed: &Packed<'_>, name: Option<&str>) -> Option<String> {
    let (here, there) = (Machines::new(packed.disk, Rules::default()), Machines::new(packed, Rules::default()));
    let names: Vec<&str> =
        here.names().iter().map(String::as_str).filter(|own| name.is_none_or(|name| name == *own)).collect();
    let is_absent = |name: &&str| packed.hides(&format!("{MACHINES}/{name}/{MACHINE_FILE}"));
    match names.iter().copied().find(is_absent) {
        _ if names.is_empty() => None,
        Some(name) => Some(format!("`{MACHINES}/{name}/{MACHINE_FILE}`")),
        None => added(&there.check(&names).diagnostics, || here.check(&names).diagnostics),
    }
}

fn of_skill(packed: &Packed<'_>) -> Option<String> {
    packed.hides(SKILL_FILE).then(|| format!("`{SKILL_FILE}`"))
}

/// True if runs of `target` may call the tools of the app.
fn has_agents(disk: &Disk, target: Option<&Target>) -> bool {
    let Some(Target::Pipeline(name)) = target else { return true };
    let Ok(definition) = definition::load(disk, name, &Configuration::default()) else { return false };
    let calls = |kind: &StepKind| matches!(kind, StepKind::Skill(_) | StepKind::Machine(_) | StepKind::Tool(_));
    definition.plan.fallback.is_some() || definition.plan.steps().any(|step| calls(&step.kind))
}

/// The first file of a tool that is left out: an agent would not have the tool, or each of its calls would fail.
fn of_tools(packed: &Packed<'_>) -> Option<String> {
    let (tools, _) = etude_spec::tool::load(packed.disk);
    let files = tools.iter().flat_map(|tool| {
        let words = etude_spec::command::words(&tool.command);
        let own = words.into_iter().map(|word| word.strip_prefix("./").unwrap_or(word).to_owned());
        std::iter::once(tool.file.clone()).chain(own).map(|file| (tool.name.clone(), file)).collect::<Vec<_>>()
    });
    let mut hidden = files.filter(|(_, file)| packed.hides(file));
    hidden.next().map(|(name, file)| format!("`{file}` of the tool `{name}`"))
}

/// The first error of the bundle that the app here does not have.
fn added(there: &[Diagnostic], here: impl FnOnce() -> Vec<Diagnostic>) -> Option<String> {
    let shown = |error: &Diagnostic| format!("{}: {}", error.file.path(), error.message);
    let errors: Vec<String> = there.iter().filter(|found| found.is_error()).map(shown).collect();
    if errors.is_empty() {
        return None;
    }
    let known: Vec<String> = here().iter().map(shown).collect();
    errors.into_iter().find(|error| !known.contains(error))
}

/// The files of an app that are in its bundle.
struct Packed<'a> {
    disk: &'a Disk,
    /// Directory of the app, without links.
    root: PathBuf,
    paths: BTreeSet<&'a str>,
}

impl Packed<'_> {
    /// True if the path is a file of the app that is left out. A file behind a link is packed under its own path.
    fn hides(&self, path: &str) -> bool {
        if self.paths.contains(path) {
            return false;
        }
        let place = self.root.join(path).canonicalize().ok().filter(|place| place.is_file());
        let own = place.as_deref().and_then(|place| place.strip_prefix(&self.root).ok()?.to_str());
        own.is_some_and(|own| !self.paths.contains(own.replace('\\', "/").as_str()))
    }
}

impl Sources for Packed<'_> {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadFailure> {
        if self.hides(path) { Err(ReadFailure::Missing) } else { self.disk.read(path, limit) }
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure> {
        let mut entries = self.disk.list(dir)?;
        let path = |name: &str| if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
        entries.retain(|entry| !matches!(entry.kind, FileKind::File { .. }) || !self.hides(&path(&entry.name)));
        Ok(entries)
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        if self.hides(path) { Err(ReadFailure::Missing) } else { self.disk.kind(path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of a push of an app with these files, or the message of its refusal.
    fn checked(files: &[(&str, &str)], target: Option<&Target>) -> Result<(), String> {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let place = dir.path().join(path);
            std::fs::create_dir_all(place.parent().expect("a parent")).expect("made");
            std::fs::write(place, text).expect("written");
        }
        let bundle = Bundle::pack(dir.path()).expect("a bundle");
        let disk = Disk::open(dir.path()).expect("an app");
        check(&disk, &bundle, target).map_err(|problem| problem.message())
    }

    /// K-52: an archive is checked like a directory: a run of it would fail on its worker without a file that its app names.
    #[test]
    fn an_archive_without_a_needed_file_is_refused() {
        let pushed = |left_out: &str| {
            let dir = tempfile::tempdir().expect("a directory");
            let files = [
                ("pipelines/p/pipeline.yaml", SCRIPT),
                ("pipelines/p/steps/a.sh", "echo\n"),
                ("tools/peek.yaml", "name: peek\ndescription: d\ncommand: python3 lib/peek.py --all\n"),
                ("lib/peek.py", "print(1)\n"),
            ];
            for (path, text) in files.iter().filter(|(path, _)| *path != left_out) {
                let place = dir.path().join(path);
                std::fs::create_dir_all(place.parent().expect("a parent")).expect("made");
                std::fs::write(place, text).expect("written");
            }
            let packed = Bundle::pack(dir.path()).expect("a bundle");
            let archive = Bundle::read(packed.bytes().to_vec()).expect("an archive");
            check_archive(&archive).map_err(|problem| problem.message())
        };
        assert_eq!(pushed("none"), Ok(()));
        for (left_out, named) in [("pipelines/p/steps/a.sh", "steps/a.sh"), ("lib/peek.py", "lib/peek.py")] {
            let why = pushed(left_out).expect_err(left_out);
            assert!(why.contains(named), "{why}");
        }
    }

    const SCRIPT: &str = "name: p\ndescription: d\nsteps:\n  - {name: a, type: code, command: \"sh steps/a.sh\"}\n";

    /// Cluster section 6: files that `.gitignore` excludes are left out. A step that needs one is refused here, not by a worker.
    #[test]
    fn a_push_without_a_needed_file_is_refused() {
        let app = |ignored| {
            [
                ("pipelines/p/pipeline.yaml", SCRIPT),
                ("pipelines/p/steps/a.sh", "echo\n"),
                (
                    "pipelines/other/pipeline.yaml",
                    "name: other\ndescription: d\nsteps:\n  - {name: a, type: code, command: \"true\"}\n",
                ),
                ("SKILL.md", "---\nname: s\ndescription: d\n---\n"),
                (".gitignore", ignored),
            ]
        };
        let (p, other) = (Target::Pipeline("p".to_owned()), Target::Pipeline("other".to_owned()));
        assert_eq!(checked(&app("out/\n"), None), Ok(()));
        for (ignored, named) in [
            ("*.sh\n", "steps/a.sh"),
            ("pipelines/p/pipeline.yaml\n", "p/pipeline.yaml"),
            ("pipelines/p/\n", "p/pipeline.yaml"),
            ("pipelines/\n", "pipeline.yaml"),
            ("SKILL.md\n", "`SKILL.md`"),
        ] {
            let why = checked(&app(ignored), None).expect_err(ignored);
            assert!(why.contains(named), "{ignored}: {why}");
        }
        assert!(checked(&app("*.sh\n"), Some(&p)).is_err());
        assert_eq!(checked(&app("*.sh\n"), Some(&other)), Ok(()));
        assert!(checked(&app("SKILL.md\n"), Some(&Target::Skill(String::new()))).is_err());
    }

    /// Cluster section 6, L-43: a tool of the app, or its program, is not left out of a bundle whose runs may call it.
    #[test]
    fn a_push_without_a_tool_is_refused() {
        let app = |ignored| {
            [
                ("SKILL.md", "---\nname: s\ndescription: d\n---\n"),
                (
                    "pipelines/plain/pipeline.yaml",
                    "name: plain\ndescription: d\nsteps:\n  - {name: a, type: code, command: \"true\"}\n",
                ),
                (
                    "pipelines/agent/pipeline.yaml",
                    "name: agent\ndescription: d\nsteps:\n  - {name: a, type: skill, skill: tidy, request: go}\n",
                ),
                ("skills/tidy/SKILL.md", "---\nname: tidy\ndescription: d\n---\nTidy up.\n"),
                ("tools/peek.yaml", "name: peek\ndescription: d\ncommand: python3 lib/peek.py --all\n"),
                ("lib/peek.py", "print(1)\n"),
                ("lib/other.py", "print(1)\n"),
                (".gitignore", ignored),
            ]
        };
        let named = |name: &str| Target::Pipeline(name.to_owned());
        for (ignored, file) in
            [("lib/\n", "`lib/peek.py` of the tool `peek`"), ("peek.yaml\n", "`tools/peek.yaml` of the tool")]
        {
            for target in [None, Some(named("agent")), Some(Target::Skill(String::new()))] {
                let why = checked(&app(ignored), target.as_ref()).expect_err(ignored);
                assert!(why.contains(file), "{ignored}: {why}");
            }
            assert_eq!(checked(&app(ignored), Some(&named("plain"))), Ok(()));
        }
        assert_eq!(checked(&app("other.py\n"), None), Ok(()));
    }

    /// A definition that is at fault without a bundle is refused when it runs; a file that an earlier step makes is not missing.
    #[test]
    fn only_faults_of_the_bundle_are_refused() {
        let broken = [
            ("pipelines/p/pipeline.yaml", "name: p\ndescription: d\nsteps: 1\n"),
            ("pipelines/p/x.log", "x"),
            (".gitignore", "*.log\n"),
        ];
        assert_eq!(checked(&broken, None), Ok(()));
        let made = "name: p\ndescription: d\nsteps:\n  - {name: a, type: code, command: \"cp in.txt out.log\"}\n  - {name: b, type: code, command: \"cat out.log\"}\n";
        let made = [
            ("pipelines/p/pipeline.yaml", made),
            ("pipelines/p/in.txt", "x"),
            ("pipelines/p/out.log", "x"),
            (".gitignore", "*.log\n"),
        ];
        assert_eq!(checked(&made, None), Ok(()));
    }
}

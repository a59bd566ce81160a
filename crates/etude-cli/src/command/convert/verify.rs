//! Verification of drafts (L-85). Each draft becomes a pipeline of a scratch app, which is checked and runs its cases. The step
//! runs in a sandbox without network (L-92).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use etude::Disk;
use etude_convert::case::Case;
use etude_convert::compile::{self, Compiled, File, Source, Stdout};
use etude_convert::draft::Draft;
use etude_convert::test_file::{self, Completion};
use etude_spec::{App, Diagnostic};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::step::Facts;
use crate::args::{Format, Global, Purpose};
use crate::command::test;
use crate::context::Context;
use crate::problem::{Problem, Refused};

/// Numbers of cases of a conversion by result.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    succeeded: usize,
    failed: usize,
    /// Cases that do not show the completion of the model.
    skipped: usize,
}

/// Result of the verification of a draft.
enum Verdict {
    /// A valid pipeline, the files of its tests, and the counts of its cases.
    Sound(Box<Compiled>, Vec<File>, Counts),
    /// The faults, and the counts of the cases.
    Unsound(Vec<String>, Counts),
}

/// Verifies all drafts. The document lists the sound pipelines with their files, and the faults of the others.
pub(super) fn verify(context: &Context, facts: &Facts) -> Result<Value, Problem> {
    let scratch = Scratch::new(facts)?;
    let source = Source { skill: &facts.skill, labels: &facts.labels, cases: &facts.cases };
    // The requirements of a pipeline decide which cases belong to it.
    let first: Vec<Result<Compiled, Vec<String>>> =
        facts.drafts.iter().map(|draft| compile::compile(source, draft, &[], Stdout::Suggested)).collect();
    let sound: Vec<Compiled> = first.iter().filter_map(|compiled| compiled.as_ref().ok().cloned()).collect();
    let assigned = test_file::assign(&facts.cases, &sound);
    let (mut pipelines, mut left_out, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut counts = Counts::default();
    for (draft, compiled) in facts.drafts.iter().zip(first) {
        let verdict = match compiled {
            Err(faults) => Verdict::Unsound(faults, Counts::default()),
            Ok(compiled) => {
                let at = sound.iter().position(|other| other.name == compiled.name);
                let cases = facts.cases.iter().zip(&assigned).filter(|(_, of)| **of == at && at.is_some());
                let own: Vec<&Case> = cases.map(|(case, _)| case).collect();
                attempt(&scratch, source, draft, &own)?
            }
        };
        let of_draft = match verdict {
            Verdict::Sound(compiled, tests, of_draft) => {
                pipelines.push(sound_json(&compiled, &tests, of_draft.succeeded));
                of_draft
            }
            Verdict::Unsound(faults, of_draft) => {
                left_out.push(json!({"pipeline": draft.name, "reason": faults.join("; ")}));
                errors.extend(faults);
                of_draft
            }
        };
        counts.succeeded += of_draft.succeeded;
        counts.failed += of_draft.failed;
        counts.skipped += of_draft.skipped;
    }
    context.say_more(|| errors.join("\n"));
    Ok(json!({
        "errors": errors.join("\n"), "pipelines": pipelines, "left_out": left_out,
        "cases": {"passed": counts.succeeded, "failed": counts.failed, "skipped": counts.skipped},
    }))
}

/// The files of a case that succeeded, or its faults.
type Tried = Result<Vec<File>, Vec<String>>;

/// Tries the forms of stdout in order. The first form with which all cases succeed is used.
fn attempt(scratch: &Scratch, source: Source<'_>, draft: &Draft, own: &[&Case]) -> Result<Verdict, Problem> {
    let mut tried: Vec<Vec<File>> = Vec::new();
    let mut first = None;
    for stdout in Stdout::ALL {
        let compiled = match compile::compile(source, draft, own, stdout) {
            Ok(compiled) => compiled,
            Err(faults) => return Ok(Verdict::Unsound(faults, Counts::default())),
        };
        if tried.contains(&compiled.files) {
            continue;
        }
        tried.push(compiled.files.clone());
        match scratch.verdict(&compiled, own)? {
            sound @ Verdict::Sound(..) => return Ok(sound),
            unsound @ Verdict::Unsound(..) => first = first.or(Some(unsound)),
        }
    }
    Ok(first.unwrap_or(Verdict::Unsound(Vec::new(), Counts::default())))
}

fn sound_json(compiled: &Compiled, tests: &[File], cases: usize) -> Value {
    let files = compiled.files.iter().chain(tests).map(|file| json!({"path": file.path, "text": file.text}));
    let steps = |of: &BTreeMap<u32, String>| -> Value { of.iter().map(|(id, step)| json!([id, step])).collect() };
    json!({
        "name": compiled.name, "description": compiled.description, "words": compiled.words, "cases": cases, "files": files.collect::<Vec<_>>(),
        "enforced": steps(&compiled.enforced), "asked": steps(&compiled.asked),
    })
}

/// Directory with the app in which pipelines are tried.
struct Scratch {
    dir: TempDir,
    /// Context without the user's configuration, on which no test may depend.
    context: Context,
}

impl Scratch {
    fn new(facts: &Facts) -> Result<Self, Problem> {
        let dir = crate::paths::scratch("convert").map_err(Problem::environment)?;
        let (config, app) = (dir.path().join("config.yaml"), dir.path().join("app"));
        let made =
            fs::create_dir(&app).and_then(|()| fs::write(&config, "{}\n")).and_then(|()| facts.snapshot.copy(&app));
        made.map_err(|e| broken(dir.path(), &e))?;
        let global = Global {
            app: Some(app),
            server: None,
            engine: None,
            config: Some(config),
            format: Format::Human,
            quiet: true,
            verbose: 0,
            no_color: true,
        };
        Ok(Self { context: Context::new(global, false, Purpose::Run), dir })
    }

    fn app(&self) -> PathBuf {
        self.dir.path().join("app")
    }

    /// Checks a pipeline and runs its cases.
    fn verdict(&self, compiled: &Compiled, own: &[&Case]) -> Result<Verdict, Problem> {
        drop(fs::remove_dir_all(self.app().join("pipelines").join(&compiled.name)));
        self.put(&compiled.files)?;
        let disk = Disk::open(&self.app()).map_err(|e| broken(self.dir.path(), &e))?;
        let report = App::new(&disk).check(&[compiled.name.as_str()]);
        let faults: Vec<String> = report.diagnostics.iter().filter(|d| d.is_error()).map(fault).collect();
        if !faults.is_empty() {
            return Ok(Verdict::Unsound(faults, Counts::default()));
        }
        let (mut tests, mut counts, mut faults) = (Vec::new(), Counts::default(), Vec::new());
        for case in own {
            match self.case(&disk, compiled, case)? {
                None => counts.skipped += 1,
                Some(Ok(files)) => {
                    counts.succeeded += 1;
                    tests.extend(files);
                }
                Some(Err(found)) => {
                    counts.failed += 1;
                    let place = format!("pipeline `{}`, case `{}`", compiled.name, case.name);
                    faults.extend(found.iter().map(|fault| format!("{place}: {fault}")));
                }
            }
        }
        Ok(match faults.is_empty() {
            true => Verdict::Sound(Box::new(compiled.clone()), tests, counts),
            false => Verdict::Unsound(faults, counts),
        })
    }

    /// Runs a case as a test, with its completion recorded. Returns its files or its faults; `None` if it shows no completion.
    fn case(&self, disk: &Disk, compiled: &Compiled, case: &Case) -> Result<Option<Tried>, Problem> {
        let (name, file) = (test_file::name(case, compiled), test_file::file(case, compiled));
        drop(fs::remove_dir_all(self.app().join("tests/recordings").join(&name)));
        self.put(std::slice::from_ref(&file))?;
        let recorded = match test_file::completion(case, compiled) {
            Completion::Unknown => return Ok(None),
            Completion::None => Vec::new(),
            Completion::Known(value) => {
                let path = self.dir.path().join("completion.json");
                fs::write(&path, value.to_string()).map_err(|e| broken(&path, &e))?;
                let faults = self.run(disk, &name, Some(&path))?;
                if !faults.is_empty() {
                    return Ok(Some(Err(faults)));
                }
                self.recordings(&name)?
            }
        };
        // The written test must succeed from its recordings alone, as it will run later.
        let faults = self.run(disk, &name, None)?;
        Ok(Some(if faults.is_empty() { Ok(std::iter::once(file).chain(recorded).collect()) } else { Err(faults) }))
    }

    fn run(&self, disk: &Disk, name: &str, completion: Option<&Path>) -> Result<Vec<String>, Problem> {
        test::faults_of(&self.context, disk, name, &self.dir.path().join("run"), completion).map_err(|refused| {
            match refused {
                Refused::Problem(problem) => problem,
                Refused::Invalid(diagnostics, _) => {
                    Problem::environment(diagnostics.first().map(fault).unwrap_or_default())
                }
            }
        })
    }

    /// Reads the recordings of a test.
    fn recordings(&self, name: &str) -> Result<Vec<File>, Problem> {
        let dir = self.app().join("tests/recordings").join(name);
        let entries = fs::read_dir(&dir).map_err(|e| broken(&dir, &e))?;
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        let file = |file: &String| {
            let text = fs::read_to_string(dir.join(file)).map_err(|e| broken(&dir, &e))?;
            Ok(File { path: format!("tests/recordings/{name}/{file}"), text })
        };
        names.iter().map(file).collect()
    }

    fn put(&self, files: &[File]) -> Result<(), Problem> {
        for file in files {
            let place = self.app().join(&file.path);
            let parent = place.parent().unwrap_or(self.dir.path());
            fs::create_dir_all(parent).and_then(|()| fs::write(&place, &file.text)).map_err(|e| broken(&place, &e))?;
        }
        Ok(())
    }
}

fn fault(diagnostic: &Diagnostic) -> String {
    format!("{}: {}", diagnostic.file.path(), diagnostic.message)
}

fn broken(path: &Path, error: &std::io::Error) -> Problem {
    Problem::environment(format!("`{}` cannot be used: {error}", path.display()))
}

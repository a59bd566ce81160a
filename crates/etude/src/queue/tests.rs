use etude_process::blob::FileBlobs;
use etude_runtime::memory::MemoryEngine;
use std::sync::Arc;

use super::*;
use crate::Disk;
use crate::app::App;
use crate::definition::Configuration;

/// A-7.1, K-54: skill mode declares no input and takes its request unchanged. The target keeps its name, whatever the app's
/// directory is called where the run is driven.
#[test]
fn a_run_in_skill_mode_is_accepted_with_its_request() {
    let dir = tempfile::tempdir().expect("a directory");
    let load = |app: &str, name: &str| {
        let app = dir.path().join(app);
        std::fs::create_dir_all(&app).expect("it is made");
        std::fs::write(app.join("SKILL.md"), "Be brief.\n").expect("it is written");
        let app = App::new(Disk::open(&app).expect("an app"), Configuration::default());
        app.load(&Target::Skill(name.to_owned())).expect("a definition")
    };
    let definition = load("helper", "");
    let engine = MemoryEngine::new(Arc::new(FileBlobs::new(dir.path().join("blobs"), false)));
    let request = || Request::new(Json::trusted(r#"{"request":"do it"}"#), String::new());
    let submitted = submission(&engine, &definition, request(), Terms::default(), 0).expect("it fits");
    assert_eq!(submitted.run.target, definition.target.to_string());
    let header = Header::parse(&submitted.run.header, &*engine.blobs()).expect("a header");
    assert_eq!(&*header.request.input.text().expect("text"), r#"{"request":"do it"}"#);
    let elsewhere = load("unpacked", "helper");
    let names = |definition: &Definition| definition.plan.steps().map(|step| step.name.clone()).collect::<Vec<_>>();
    assert_eq!((elsewhere.target.clone(), names(&elsewhere)), (definition.target.clone(), names(&definition)));
}

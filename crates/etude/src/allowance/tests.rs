use super::*;

fn folders(folders: &[&str]) -> Allow {
    Allow { folders: folders.iter().map(|folder| (*folder).to_owned()).collect(), ..Allow::default() }
}

/// K-54: a denied grant is reported with the member of the rules that would allow it.
#[test]
fn grants_need_a_queue_that_allows_them() {
    let none = Granted::default();
    let yolo = Granted { yolo: true, ..Granted::default() };
    let member = |granted: &Granted, allow: &Allow| denied_grant(granted, allow).map(|denied| denied.member);
    assert_eq!(member(&none, &Allow::default()), None);
    assert_eq!(member(&yolo, &Allow::default()), Some("allow.yolo"));
    assert_eq!(member(&yolo, &Allow { yolo: true, ..Allow::default() }), None);
    let read = |folder: &str| Granted { read: vec![folder.into()], ..Granted::default() };
    for folder in ["/data", "/data/in", "/data/"] {
        assert_eq!(member(&read(folder), &folders(&["/data"])), None, "{folder}");
    }
    for folder in ["/", "/database", "/data/../etc", "data", "in"] {
        assert_eq!(member(&read(folder), &folders(&["/data", "in"])), Some("allow.folders"), "{folder}");
    }
    let write = Granted { write: vec!["/data".into()], ..Granted::default() };
    let denied = denied_grant(&write, &Allow::default()).expect("it is denied");
    assert_eq!(denied.what, "`--write /data`");
}

/// K-54: on the worker, a link out of an allowed folder is not allowed.
#[test]
fn a_link_out_of_an_allowed_folder_grants_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let real = dir.path().canonicalize().expect("it is there");
    let (data, secret) = (real.join("data"), real.join("secret"));
    for folder in [&data, &secret] {
        std::fs::create_dir(folder).expect("it is made");
    }
    std::os::unix::fs::symlink(&secret, data.join("link")).expect("a link");
    std::fs::create_dir(data.join("in")).expect("it is made");
    let granted = |folder: PathBuf| Granted { read: vec![folder.clone()], write: vec![folder], yolo: true };
    let allow = folders(&[data.to_str().expect("UTF-8")]);
    let kept = allowed(granted(data.join("in")), &allow);
    assert_eq!(kept, Granted { read: vec![data.join("in")], write: vec![data.join("in")], yolo: false });
    assert_eq!(allowed(granted(data.join("link")), &allow), Granted::default());
    assert_eq!(allowed(granted(data.join("nowhere")), &allow), Granted::default());
}

/// K-54: the steps of pipelines that an agent may call count like the agent, whatever its sandbox.
#[test]
fn a_pipeline_that_an_agent_may_call_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
        std::fs::write(path, text).expect("it is written");
    };
    put("SKILL.md", "Be brief.\n");
    let load = || {
        let app = crate::app::App::open(dir.path()).expect("an app");
        app.load(&etude_runs::target::Target::Skill(String::new())).expect("a definition")
    };
    let kept = Sandbox::default();
    let allow = Allow { unsandboxed: false, ..Allow::default() };
    let rules = QueueRules { allow, ..QueueRules::default() };
    assert_eq!(denied_step(&load(), Some(&kept), &rules), None);
    assert_eq!(denied_step(&load(), None, &rules).map(|denied| denied.member), Some("allow.unsandboxed"));
    let steps = "[{name: a, type: code, command: \"echo 1\"}]";
    put("pipelines/back/pipeline.yaml", &format!("name: back\ndescription: d\ntriggers: [back]\nsteps: {steps}\n"));
    put("pipelines/back/learn.yaml", "learn: 1\nstate: active\nfamily: back\n");
    let denied = denied_step(&load(), Some(&kept), &rules).expect("it is denied");
    assert_eq!((denied.member, denied.what.as_str()), ("allow.unsandboxed", "step `a`"));
}

/// K-54, K-55: the remedy names what the app lacks, and only parts that the step has.
#[test]
fn a_denied_step_has_a_remedy_that_fits_it() {
    let load = |files: &[(&str, &str)]| {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
            std::fs::write(path, text).expect("it is written");
        }
        let app = crate::app::App::open(dir.path()).expect("an app");
        let target = match files[0].0 {
            "SKILL.md" => etude_runs::target::Target::Skill(String::new()),
            _ => etude_runs::target::Target::Pipeline("p".to_owned()),
        };
        app.load(&target).expect("a definition")
    };
    let step = |step: &str| {
        let text = format!("name: p\ndescription: d\nsteps: [{{name: a, {step}}}]\n");
        load(&[("pipelines/p/pipeline.yaml", &text), ("pipelines/p/steps/v.sh", "exit 0\n")])
    };
    let closed = |network, unsandboxed| QueueRules {
        allow: Allow { network, unsandboxed, ..Allow::default() },
        ..QueueRules::default()
    };
    let untrusted = QueueRules { is_untrusted: true, ..QueueRules::default() };
    let remedy = |definition: &Definition, agents: Option<&Sandbox>, rules: &QueueRules| {
        denied_step(definition, agents, rules).expect("it is denied").remedy
    };
    let open = step("type: code, command: \"echo 1\"");
    let network = step("type: code, command: \"echo 1\", sandbox: {network: true}");
    let out = step("type: code, command: \"echo 1\", sandbox: {read: [/etc]}");
    let validated = step("type: llm, prompt: x, validate: steps/v.sh");
    let agent = load(&[("SKILL.md", "Be brief.\n")]);
    let kept = Sandbox { network: true, ..Sandbox::default() };
    assert_eq!(remedy(&open, None, &closed(false, true)), Some("give the step a `sandbox` without `network`"));
    assert_eq!(remedy(&open, None, &closed(true, false)), Some("give the step a `sandbox`"));
    assert_eq!(remedy(&open, None, &untrusted), Some("give the step a `sandbox`"));
    assert_eq!(remedy(&network, None, &closed(false, true)), Some("remove `network` from the step's `sandbox`"));
    assert!(remedy(&out, None, &untrusted).is_some_and(|remedy| remedy.contains("in the app")));
    assert_eq!(remedy(&validated, None, &closed(false, true)), None);
    for rules in [closed(false, true), closed(true, false)] {
        assert!(remedy(&agent, None, &rules).is_some_and(|remedy| remedy.contains("give agents a sandbox")));
    }
    assert!(remedy(&agent, Some(&kept), &closed(false, true)).is_some_and(|remedy| remedy.contains("agent.sandbox")));
    assert_eq!(remedy(&agent, Some(&kept), &untrusted), None);
}

use std::fs;

use super::*;
use crate::approve::{Grants, approve};
use crate::trust::Store;

/// A home directory and a project, in one temporary directory.
struct World {
    root: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("home")).expect("a directory");
        fs::create_dir_all(root.path().join("app")).expect("a directory");
        Self { root }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().canonicalize().expect("it is there").join(path)
    }

    fn skill(&self, path: &str, fields: &str, body: &str) -> PathBuf {
        let dir = self.path(path);
        fs::create_dir_all(&dir).expect("a directory");
        let name = dir.file_name().expect("a name").to_string_lossy().into_owned();
        fs::write(dir.join("SKILL.md"), format!("---\nname: {name}\ndescription: About {name}.\n{fields}---\n{body}"))
            .expect("a file");
        dir
    }

    fn catalog(&self, compat: Compat) -> SkillCatalog {
        let (start, home) = (self.path("app"), self.path("home"));
        SkillCatalog::discover(&Places { start: &start, home: Some(&home), compat })
    }

    fn approvals(&self) -> Approvals {
        Store::new(&self.path("state")).approvals().expect("read")
    }
}

fn names<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<&'a str> {
    entries.map(|entry| entry.skill.name.as_str()).collect()
}

/// C-2.6: the project's skill comes first and names the one that it hides; Claude Code reverses the order.
#[test]
fn the_nearer_skill_wins_and_names_the_other() {
    let world = World::new();
    let user = world.skill("home/.claude/skills/tidy", "", "user");
    let project = world.skill("app/.agents/skills/tidy", "", "project");
    let catalog = world.catalog(Compat::Spec);
    let found = catalog.find("tidy").expect("found");
    assert_eq!((&found.directory, &found.shadows), (&project, &vec![user.join("SKILL.md")]));
    assert_eq!(catalog.diagnostics()[0].name, Some("SK_SHADOWED"));
    assert_eq!(world.catalog(Compat::ClaudeCode).find("tidy").expect("found").directory, user);
}

/// an agent does not see the skill that it follows, however that was found.
#[test]
fn an_agent_sees_other_skills_than_its_own() {
    let world = World::new();
    let own = world.skill("home/.agents/skills/own", "", "x");
    world.skill("home/.agents/skills/other", "", "x");
    let (catalog, nothing) = (world.catalog(Compat::Spec), world.approvals());
    assert_eq!(names(catalog.visible_to_agents(&nothing)), ["other", "own"]);
    for way in [own.clone(), own.join("../own")] {
        assert_eq!(names(catalog.without(&way).visible_to_agents(&nothing)), ["other"], "{}", way.display());
    }
}

/// C-0.4: agents see the user's own skills and trusted ones of a project; people see all.
#[test]
fn agents_see_trusted_skills_only() {
    let world = World::new();
    world.skill("home/.agents/skills/own", "", "x");
    world.skill("home/.agents/skills/mine", "disable-model-invocation: yes\n", "x");
    world.skill("app/.agents/skills/found", "", "x");
    let catalog = world.catalog(Compat::Spec);
    assert_eq!(names(catalog.entries()), ["found", "mine", "own"]);
    let nothing = world.approvals();
    assert_eq!(names(catalog.visible_to_agents(&nothing)), ["own"]);
    let as_agent =
        |trust| catalog.activate("found", &Request { invoker: Invoker::Agent, ..Request::new(trust) }).map(|_| ());
    assert!(matches!(as_agent(&nothing), Err(ActivationError::Unknown { known, .. }) if known == ["own"]));
    let grants = Grants { activation: true, execution: false };
    approve(&Store::new(&world.path("state")), &world.path("app"), grants, "ada").expect("trusted");
    let trust = world.approvals();
    assert_eq!(names(catalog.visible_to_agents(&trust)), ["found", "own"]);
    as_agent(&trust).expect("trusted now");
    let mine = catalog.activate("mine", &Request { invoker: Invoker::Agent, ..Request::new(&trust) });
    assert!(matches!(mine, Err(ActivationError::PeopleOnly(_))));
}

/// C-2.7: an activation reads the current file, names its resources, and opens none of them.
#[test]
fn an_activation_is_body_directory_and_names() {
    let world = World::new();
    let dir = world.skill("home/.agents/skills/tidy", "", "\nOld.\n");
    let (catalog, trust) = (world.catalog(Compat::Spec), world.approvals());
    fs::create_dir_all(dir.join("references")).expect("a directory");
    fs::write(dir.join("references/R.md"), "CONTENT").expect("a file");
    world.skill("home/.agents/skills/tidy", "allowed-tools: Read\n", "New: $0 !`touch x`\n");
    let found = catalog.activate("tidy", &Request::new(&trust)).expect("activated");
    assert_eq!(
        (found.body.as_str(), found.resources.as_slice()),
        ("New: $0 !`touch x`\n", &["references/R.md".to_owned()][..])
    );
    assert_eq!(found.allowed_tools.as_deref(), Some(&["Read".to_owned()][..]));
    assert!(!found.text().contains("CONTENT"));
}

/// C-2.6: a search is bounded and skips some directories.
#[test]
fn a_search_is_bounded() {
    let world = World::new();
    world.skill("home/.agents/skills/group/near", "", "x");
    world.skill("home/.agents/skills/1/2/3/4/5/six", "", "x");
    world.skill("home/.agents/skills/1/2/3/4/5/6/seven", "", "x");
    world.skill("home/.agents/skills/node_modules/module", "", "x");
    let catalog = world.catalog(Compat::Spec);
    assert_eq!(names(catalog.entries()), ["near", "six"]);
    assert_eq!(catalog.diagnostics()[0].name, Some("SK_TOO_DEEP"));
}

/// C-3.1: Claude Code loads a skill by its body if its frontmatter is not usable.
#[test]
fn claude_code_describes_a_skill_by_its_first_paragraph() {
    let world = World::new();
    let dir = world.path("home/.claude/skills/plain");
    fs::create_dir_all(&dir).expect("a directory");
    fs::write(dir.join("SKILL.md"), "# Title\n\nDo this.\n").expect("a file");
    assert!(world.catalog(Compat::Spec).find("plain").is_none());
    assert_eq!(world.catalog(Compat::ClaudeCode).find("plain").expect("found").skill.description, "Do this.");
}

/// C-2.6: skills that are not read are reported with their reason, also by the name that was asked for.
#[test]
fn unread_skills_are_reported() {
    let world = World::new();
    for (dir, file) in [("lower", "skill.md"), ("mixed", "Skill.md"), ("docs", "README.md")] {
        let dir = world.path(&format!("app/.agents/skills/{dir}"));
        fs::create_dir_all(&dir).expect("a directory");
        fs::write(dir.join(file), "---\nname: x\ndescription: d\n---\n").expect("a file");
    }
    fs::create_dir_all(world.path("app/.claude")).expect("a directory");
    fs::write(world.path("app/.claude/skills"), "x").expect("a file");
    let catalog = world.catalog(Compat::Spec);
    let found: Vec<_> = catalog.diagnostics().iter().map(|fault| (fault.code.as_str(), fault.is_error())).collect();
    assert_eq!(found, [("P1207", false), ("P1207", false), ("P0101", false)], "{:?}", catalog.diagnostics());
    let of_name = |name| catalog.diagnostics_of(name).map(|fault| fault.message.clone()).collect::<Vec<_>>();
    assert!(of_name("mixed")[0].contains("mixed/Skill.md"), "{:?}", of_name("mixed"));
    assert_eq!((of_name("lower").len(), of_name("docs").len()), (1, 0));
}

/// C-3.1, X-3: Claude Code's reading by the body does not lose the restriction of a skill.
#[test]
fn a_skill_with_unread_tools_is_not_read_by_its_body() {
    let world = World::new();
    world.skill("app/.agents/skills/tidy", "disallowed-tools: {Bash: x}\n", "Tidy up.\n");
    for compat in [Compat::Spec, Compat::ClaudeCode] {
        let catalog = world.catalog(compat);
        assert!(catalog.find("tidy").is_none());
        assert!(catalog.diagnostics_of("tidy").any(Diagnostic::is_error));
    }
}

//! Files of an app's middleware: they belong to the definition of every run that passes it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use etude_spec::cascade::skill::SkillHandler;
use etude_spec::cascade::{Compiler, LIBRARY, Skill, Skills};
use etude_spec::command;
use serde_json::Map;

use crate::project::Project;

/// Files of the skills in the app's chain, with the scripts that they name, relative to the app's directory. Files elsewhere do
/// not belong to the app and are not pinned.
pub fn files(project: &Project) -> Vec<String> {
    let compiler = Compiler::new(&project.catalog, &project.scope);
    let (mut files, mut seen) = (BTreeSet::new(), BTreeSet::new());
    // The called tool has no file of its own; its chain is that of any tool of the app.
    let anything = Arc::new(Skill::programmatic("anything", "", Map::new()));
    let mut open = vec![anything];
    while let Some(skill) = open.pop() {
        if !seen.insert(skill.name.clone()) {
            continue;
        }
        add(&skill, &project.dir, &mut files);
        if let Some(compiled) = compiler.compile(&skill).0 {
            let needed = compiled.chain.iter().chain(&compiled.hooks).chain(&compiled.levels);
            open.extend(needed.filter_map(|name| project.catalog.find(name)));
        }
    }
    files.into_iter().collect()
}

/// Adds the file of a skill, and the files beside it that its command names.
fn add(skill: &Skill, app: &Path, files: &mut BTreeSet<String>) {
    if skill.dir.is_empty() || skill.dir.starts_with(LIBRARY) {
        return;
    }
    let dir = Path::new(&*skill.dir);
    let mut names: Vec<String> =
        skill.uri().as_deref().and_then(|uri| uri.rsplit('/').next()).map(str::to_owned).into_iter().collect();
    match &skill.body {
        SkillHandler::Command(command) => names.extend(command::words(command).into_iter().map(str::to_owned)),
        SkillHandler::Prompt | SkillHandler::Module | SkillHandler::BuiltinTool => {}
    }
    for name in names {
        let whole = dir.join(&name);
        let Ok(whole) = whole.canonicalize() else { continue };
        if let Some(inner) = whole.strip_prefix(app).ok().and_then(Path::to_str).filter(|_| whole.is_file()) {
            files.insert(inner.replace('\\', "/"));
        }
    }
}

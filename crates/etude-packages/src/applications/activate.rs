//! Activation: the contract of a package with the selected skills (C-1.10).

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

use etude_spec::Diagnostic;
use etude_spec::application::{APP_FILE, Body, StatePaths, findings};
use etude_spec::skill::findings::unreadable;
use etude_spec::xml::escaped;

use super::package::{skill_in, warning};
use super::{Access, Package};
use crate::skills::{Invoker, body_in, resources, text_of};

/// An activated package.
#[derive(Debug, Clone)]
pub struct Activated {
    /// The slug, by which programs call commands.
    pub slug: String,
    /// Version of the contract, as written.
    pub version: String,
    /// Directory of the package: paths in the contract are relative to it.
    pub root: String,
    /// Body of the `APP.md`, byte for byte.
    pub contract: String,
    /// The selected skills.
    pub skills: Vec<ActivatedSkill>,
    /// Names of its other files. Their contents are not read.
    pub resources: Vec<String>,
    /// True if more files exist than `resources` names.
    pub has_more: bool,
    /// Warnings about the contract and its skills that did not stop the activation.
    pub diagnostics: Vec<Diagnostic>,
}

/// A skill of an activated package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivatedSkill {
    /// Short name of the skill in the package.
    pub short_name: String,
    /// Path of the `SKILL.md`, relative to the package.
    pub path: String,
    /// Text of the skill without the frontmatter.
    pub body: String,
}

impl Activated {
    /// The package as an agent gets it. A second activation with the same text adds nothing. A compaction finds the text by its
    /// tags and keeps it while the package is in use (C-1.17).
    pub fn text(&self) -> String {
        let mut out =
            format!("<application_content slug=\"{}\" root=\"{}\">\n", escaped(&self.slug), escaped(&self.root));
        out.push_str("This contract is authoritative: where a skill differs, the contract applies.\n\n");
        out.push_str(self.contract.trim());
        for skill in &self.skills {
            let _ = write!(
                out,
                "\n\n<application_skill name=\"{}\">\n{}\n</application_skill>",
                escaped(&skill.short_name),
                skill.body.trim()
            );
        }
        if !self.resources.is_empty() {
            out.push_str("\n\n<application_resources>\n");
            for file in &self.resources {
                let _ = writeln!(out, "  <file>{}</file>", escaped(file));
            }
            if self.has_more {
                out.push_str("  <!-- and more: list the directory to see all -->\n");
            }
            out.push_str("</application_resources>");
        }
        out.push_str("\n</application_content>");
        out
    }
}

/// Activates a package for `invoker` with the `selected` skills; `None` selects all listed ones. `access` is the user's
/// permission; if it depends on the content, the returned texts are those that were hashed. Skills that the format says to skip
/// are left out with a finding (C-2.4). For an agent, skills that opt out of models are left out as well (C-3.6).
///
/// # Errors
/// The contract cannot be read or has changed since the approval, or a selected skill is not listed.
pub fn activate(
    package: &Package,
    access: &Access,
    invoker: Invoker,
    selected: Option<&[String]>,
) -> Result<Activated, String> {
    let approved = match &access.content {
        None => None,
        Some(expected) => match package.approved() {
            Ok((found, content)) if content == *expected => Some(found),
            _ => return Err(format!("the package `{}` has changed since it was approved", package.contract.slug)),
        },
    };
    let text = |file: &Path| match &approved {
        None => text_of(file).map(Cow::Owned),
        Some(found) => {
            let inside = file.strip_prefix(&package.root).ok().and_then(|path| found.text(path));
            inside.map(Cow::Borrowed).ok_or_else(|| "it is not part of the approved package".to_owned())
        }
    };
    let contract = text(&package.root.join(APP_FILE)).and_then(|text| body_in(&package.file(), &text));
    let contract = contract.map_err(|why| format!("the contract cannot be read: {why}"))?;
    let listed = &package.contract.skills;
    let wanted = selected.unwrap_or(listed);
    if let Some(unknown) = wanted.iter().find(|name| !listed.contains(name)) {
        let (slug, known) = (&package.contract.slug, listed.join(", "));
        return Err(format!("the package `{slug}` lists no skill `{unknown}`; it lists: {known}"));
    }
    let mut diagnostics: Vec<Diagnostic> = package.diagnostics.clone();
    let (mut skills, mut left_out) = (Vec::new(), Vec::new());
    for name in wanted {
        // The search for packages has already reported an unresolved skill.
        let Some(file) = package.skill_file(name) else { continue };
        let path = format!("skills/{name}/SKILL.md");
        let found = match text(&file).map(|text| given(&file, &text, name, invoker)) {
            Ok(Ok(body)) => {
                skills.push(ActivatedSkill { short_name: name.clone(), path, body });
                continue;
            }
            Ok(Err(found)) => found,
            Err(why) => vec![warning(unreadable(&file.display().to_string(), &why))],
        };
        let is_new = |fault: &Diagnostic| !diagnostics.contains(fault);
        diagnostics.extend(found.into_iter().filter(is_new).collect::<Vec<_>>());
        left_out.push(path);
    }
    if package.contract.is_scheduling_supported && Body(&contract).scheduling(&package.contract.commands).is_none() {
        diagnostics.push(findings::scheduling_undocumented(&package.file()));
    }
    // State changes with every command. If it were listed, a second activation would differ and be kept as a copy (C-1.17).
    let state = StatePaths::new(&package.contract.state_paths());
    let is_shown = |path: &str| {
        path != APP_FILE
            && !state.holds(path)
            && !skills.iter().map(|skill| &skill.path).chain(&left_out).any(|given| given == path)
    };
    let (resources, has_more) = resources(&package.root, &is_shown);
    Ok(Activated {
        slug: package.contract.slug.clone(),
        version: package.contract.version.clone(),
        root: package.root.display().to_string(),
        contract,
        skills,
        resources,
        has_more,
        diagnostics,
    })
}

/// The body of a skill for `invoker`.
///
/// # Errors
/// The skill is left out. The findings say why; they are empty if the skill opts out of models.
fn given(file: &Path, text: &[u8], name: &str, invoker: Invoker) -> Result<String, Vec<Diagnostic>> {
    let skill = skill_in(file, text, name)?;
    if invoker == Invoker::Agent && skill.extensions.disable_model_invocation {
        return Err(Vec::new());
    }
    let shown = file.display().to_string();
    body_in(&shown, text).map_err(|why| vec![warning(unreadable(&shown, &why))])
}

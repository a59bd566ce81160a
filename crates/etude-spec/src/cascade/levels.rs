//! Levels of a tool: the skills whose metadata it gets, nearest first (D-4.3).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;

use crate::cascade::compile::Skills;
use crate::cascade::library::DEFAULT;
use crate::cascade::skill::Skill;
use crate::cascade::strategy::{MissingInherit, Strategy};
use crate::diagnose::cascade as diagnose;
use crate::diagnostic::Diagnostic;

/// Word for the authority in `$inherit`.
const AUTHORITY: &str = "$authority";

/// Maximum number of skills that a skill inherits from, without `default`.
const MAX_LENGTH: usize = 128;

/// Linearizations by skill name: the skill and everything that it inherits, except `default`.
pub type Lines = BTreeMap<String, Rc<[Arc<Skill>]>>;

/// Levels of `tool`: itself, its parents linearized by C3, and `default` unless it opted out.
///
/// # Errors
/// A missing parent, a loop, a parent order that cannot be satisfied, or more than `MAX_LENGTH` levels.
pub fn resolve(
    skills: &dyn Skills,
    tool: &Arc<Skill>,
    strategy: &Strategy,
    lines: &mut Lines,
) -> Result<Vec<Arc<Skill>>, Box<Diagnostic>> {
    if opts_out(tool) {
        return Ok(vec![Arc::clone(tool)]);
    }
    let mut walk = Walk { skills, strategy, tool, stack: Vec::new(), lines };
    let mut levels = walk.line(tool)?;
    if tool.name != DEFAULT {
        levels.extend(skills.find(DEFAULT));
    }
    Ok(levels)
}

/// True for `$inherit: false`: the tool leaves the standard pipeline.
fn opts_out(skill: &Skill) -> bool {
    skill.metadata().get("$inherit") == Some(&Value::Bool(false))
}

struct Walk<'a> {
    skills: &'a dyn Skills,
    strategy: &'a Strategy,
    /// Tool whose levels are collected.
    tool: &'a Skill,
    stack: Vec<String>,
    lines: &'a mut Lines,
}

impl Walk<'_> {
    /// Linearization of a parent; many tools share it.
    fn linearize(&mut self, skill: &Arc<Skill>) -> Result<Rc<[Arc<Skill>]>, Box<Diagnostic>> {
        if let Some(known) = self.lines.get(&skill.name) {
            return Ok(Rc::clone(known));
        }
        let line: Rc<[Arc<Skill>]> = self.line(skill)?.into();
        self.lines.insert(skill.name.clone(), Rc::clone(&line));
        Ok(line)
    }

    fn line(&mut self, skill: &Arc<Skill>) -> Result<Vec<Arc<Skill>>, Box<Diagnostic>> {
        let parents = self.parents(skill)?;
        // Cached lines are not walked again, so the depth of the walk alone sets no bound.
        if self.stack.len() > MAX_LENGTH || parents.len() > MAX_LENGTH {
            return Err(self.too_many());
        }
        self.stack.push(skill.name.clone());
        let mut lists = Vec::new();
        for (parent, pointer) in &parents {
            if self.stack.contains(&parent.name) {
                let way: Vec<&str> = self.stack.iter().chain([&parent.name]).map(String::as_str).collect();
                return Err(Box::new(diagnose::inherit_cycle(&skill.file, skill.place(pointer), &way)));
            }
            lists.push(self.linearize(parent)?.to_vec());
        }
        let mut all = vec![Arc::clone(skill)];
        if lists.len() > 1 {
            lists.push(parents.into_iter().map(|(parent, _)| parent).collect());
            let inconsistent = || diagnose::inconsistent_inherit(&skill.file, skill.place("/$inherit"), &skill.name);
            all.extend(merge(lists).ok_or_else(|| Box::new(inconsistent()))?);
        } else {
            // The line of a single parent is the result of C3.
            all.extend(lists.pop().unwrap_or_default());
        }
        self.stack.pop();
        if all.len() > MAX_LENGTH + 1 {
            return Err(self.too_many());
        }
        Ok(all)
    }

    fn too_many(&self) -> Box<Diagnostic> {
        let tool = self.tool;
        Box::new(diagnose::too_many_parents(&tool.file, tool.place("/$inherit"), &tool.name, MAX_LENGTH))
    }

    /// Parents as written, each with its place. The authority is inserted, and `default` is left out.
    fn parents(&self, skill: &Arc<Skill>) -> Result<Vec<(Arc<Skill>, String)>, Box<Diagnostic>> {
        let authority = || {
            let found = self.skills.authority(skill);
            found.filter(|found| found.name != skill.name && found.name != DEFAULT)
        };
        let names: Vec<(String, String)> = match skill.metadata().get("$inherit") {
            Some(Value::Bool(false)) => return Ok(Vec::new()),
            None if self.strategy.missing_inherit == MissingInherit::DefaultOnly => return Ok(Vec::new()),
            None if skill.name == DEFAULT => return Ok(Vec::new()),
            None => return Ok(authority().map(|found| (found, "/$inherit".to_owned())).into_iter().collect()),
            Some(Value::String(name)) => vec![(name.clone(), "/$inherit".to_owned())],
            Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
                let text = |item: &Value| item.as_str().unwrap_or_default().to_owned();
                items.iter().enumerate().map(|(at, item)| (text(item), format!("/$inherit/{at}"))).collect()
            }
            Some(_) => {
                let (at, shape) = (skill.place("/$inherit"), "a name, a list of names, or false");
                return Err(Box::new(diagnose::annotation(&skill.file, at, &skill.name, "$inherit", shape)));
            }
        };
        let mut parents: Vec<(Arc<Skill>, String)> = Vec::new();
        for (name, pointer) in names {
            let parent = match name.as_str() {
                DEFAULT => None,
                AUTHORITY => authority(),
                _ => match self.skills.find(&name) {
                    Some(parent) => Some(parent),
                    None => {
                        let known = self.skills.names();
                        let at = skill.place(&pointer);
                        return Err(Box::new(diagnose::unknown_parent(&skill.file, at, &name, &known)));
                    }
                },
            };
            parents.extend(parent.map(|parent| (parent, pointer)));
        }
        Ok(parents)
    }
}

/// The C3 merge: repeatedly takes the first head that is in no tail.
fn merge(mut lists: Vec<Vec<Arc<Skill>>>) -> Option<Vec<Arc<Skill>>> {
    let mut out = Vec::new();
    loop {
        lists.retain(|list| !list.is_empty());
        if lists.is_empty() {
            return Some(out);
        }
        let is_free = |head: &Arc<Skill>| {
            let has = |list: &Vec<Arc<Skill>>| list[1..].iter().any(|other| other.name == head.name);
            !lists.iter().any(has)
        };
        let next = Arc::clone(lists.iter().map(|list| &list[0]).find(|head| is_free(head))?);
        for list in &mut lists {
            if list[0].name == next.name {
                list.remove(0);
            }
        }
        out.push(next);
    }
}

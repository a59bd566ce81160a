//! Skill steps: work that only an agent can do. Each step follows a skill of its own, which has the statements of the step
//! and nothing else of the path (L-88).

use std::collections::BTreeSet;

use etude_spec::skill::{APP_ROOT, SKILL_FILE};
use serde_json::{Value, json};

use super::{File, Pipeline};
use crate::statement::Statement;
use crate::yaml;

impl Pipeline<'_> {
    pub(super) fn agent(
        &mut self,
        name: &str,
        statements: &[&Statement],
        (rules, required): (&[&Statement], &BTreeSet<String>),
    ) -> Value {
        let skill = self.free_skill();
        let text = self.skill(&skill, statements, rules);
        self.files.push(File { path: format!("{APP_ROOT}/{skill}/{SKILL_FILE}"), text });
        let mut request = "{{run.request}}".to_owned();
        self.add_facts(&mut request, required);
        json!({"name": name, "type": "skill", "skill": skill, "request": request})
    }

    /// Skill name that the app does not use. It ends with a number, so that no other pipeline makes the same one.
    fn free_skill(&mut self) -> String {
        loop {
            self.skills += 1;
            let name = format!("{}-{}", self.draft.skills, self.skills);
            if !self.source.skill.has_skill(&name) {
                return name;
            }
        }
    }

    /// Text of `SKILL.md`: the statements as they are, with the tools of the skill. Agents do not activate the skill by
    /// themselves.
    fn skill(&self, name: &str, statements: &[&Statement], rules: &[&Statement]) -> String {
        let source = self.source.skill;
        let ids: Vec<String> = statements.iter().map(|statement| statement.id.to_string()).collect();
        let description =
            format!("A part of the pipeline {}: statements {} of SKILL.md", self.draft.name, ids.join(", "));
        let mut head = json!({"name": name, "description": description, "disable-model-invocation": true});
        if let Some(allowed) = &source.allowed {
            head["allowed-tools"] = json!(allowed);
        }
        let mut text = format!(
            "---\n{}---\nDo what these statements of `{SKILL_FILE}` say, and nothing else of it: other steps do the rest.\n",
            yaml::text(&head)
        );
        add_list(&mut text, statements);
        if !rules.is_empty() {
            text.push_str("\nKeep these rules:\n");
            add_list(&mut text, rules);
        }
        text
    }
}

fn add_list(text: &mut String, statements: &[&Statement]) {
    for statement in statements {
        text.push_str(&format!("\n- {}", statement.text));
    }
    text.push('\n');
}

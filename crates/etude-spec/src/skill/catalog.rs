//! Skills as text for agents: the catalog (C-2.5) and an activation (C-2.7).

use std::fmt::Write;

use crate::xml::escaped;

/// One skill of the catalog.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    /// The name by which an agent activates the skill.
    pub name: &'a str,
    /// The text by which an agent chooses the skill.
    pub description: &'a str,
    /// Absolute path of its `SKILL.md`.
    pub location: &'a str,
}

/// Formats the catalog as XML; `None` without skills, because then agents receive nothing at all.
pub fn xml<'a>(skills: impl IntoIterator<Item = Listed<'a>>) -> Option<String> {
    let mut out = String::from("<available_skills>\n");
    let start = out.len();
    for skill in skills {
        out.push_str("  <skill>\n");
        for (tag, text) in [("name", skill.name), ("description", skill.description), ("location", skill.location)] {
            let _ = writeln!(out, "    <{tag}>{}</{tag}>", escaped(text));
        }
        out.push_str("  </skill>\n");
    }
    if out.len() == start {
        return None;
    }
    out.push_str("</available_skills>\n");
    Some(out)
}

/// Maximum number of resources in an activation.
pub const MAX_RESOURCES: usize = 200;

/// Formats an activated skill for an agent: the body, the skill's directory and its files. With `more`, the text says
/// that there are further files.
pub fn activation(name: &str, body: &str, directory: &str, resources: &[String], more: bool) -> String {
    let mut out = format!("<skill_content name=\"{}\">\n{}\n\n", escaped(name), body.trim());
    let _ = writeln!(out, "Skill directory: {directory}");
    out.push_str("Relative paths in this skill are relative to the skill directory.\n");
    if !resources.is_empty() {
        out.push_str("\n<skill_resources>\n");
        for file in resources {
            let _ = writeln!(out, "  <file>{}</file>", escaped(file));
        }
        if more {
            out.push_str("  <!-- and more: list the directory to see all -->\n");
        }
        out.push_str("</skill_resources>\n");
    }
    out.push_str("</skill_content>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-2.5: every value is escaped, including the location; characters that XML cannot express are left out.
    #[test]
    fn nothing_in_a_value_is_markup() {
        let listed =
            Listed { name: "a", description: "<x> & \"y\" ]]> \u{7}\u{1b}[31m", location: "/r&d/<s>/SKILL.md" };
        let text = xml([listed]).unwrap();
        assert!(text.contains("<description>&lt;x&gt; &amp; &quot;y&quot; ]]&gt; [31m</description>"), "{text}");
        assert!(text.contains("<location>/r&amp;d/&lt;s&gt;/SKILL.md</location>"), "{text}");
    }

    /// C-2.5: without skills there is no catalog.
    #[test]
    fn no_skills_are_no_catalog() {
        assert_eq!(xml([]), None);
    }

    /// C-2.7: an activation has the body, the directory and the names of the resources.
    #[test]
    fn an_activation_names_what_there_is() {
        let text = activation("tidy", "\nDo it.\n", "/s/tidy", &["a & b.md".into()], true);
        assert!(text.starts_with("<skill_content name=\"tidy\">\nDo it.\n\nSkill directory: /s/tidy\n"), "{text}");
        assert!(text.contains("<file>a &amp; b.md</file>") && text.contains("and more"), "{text}");
        assert!(text.ends_with("</skill_content>"));
    }
}

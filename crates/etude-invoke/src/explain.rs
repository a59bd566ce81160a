//! A compiled skill as a document.

use etude_spec::cascade::{Compiled, LIBRARY};
use serde_json::{Value, json};

/// `{"name", "levels", "merged", "order", "chain", "static"}`.
pub fn json(compiled: &Compiled) -> Value {
    json!({
        "name": compiled.skill.name,
        "levels": compiled.levels,
        "merged": compiled.merged,
        "order": compiled.order.json(),
        "chain": compiled.chain,
        "static": compiled.statics,
    })
}

/// The document without paths of this machine: `${library}` replaces the library, and `${cwd}` the project's directory `dir`.
pub fn portable(value: &Value, dir: &str) -> Value {
    match value {
        Value::String(text) => Value::from(portable_text(text, dir)),
        Value::Array(items) => items.iter().map(|item| portable(item, dir)).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, member)| (portable_text(key, dir), portable(member, dir))).collect()
        }
        other => other.clone(),
    }
}

fn portable_text(text: &str, dir: &str) -> String {
    text.replace(dir, "${cwd}").replace(LIBRARY, "${library}")
}

/// The document as readable text.
pub fn text(compiled: &Compiled) -> String {
    let list = |names: &[String]| if names.is_empty() { "(empty)".to_owned() } else { names.join(", ") };
    let mut out = format!("{}\n", compiled.skill.name);
    if !compiled.skill.description.is_empty() {
        out.push_str(&format!("  {}\n", compiled.skill.description));
    }
    out.push_str(&format!("\nlevels  {}\n", compiled.levels.join(" > ")));
    out.push_str(&format!("chain   {}\n", list(&compiled.chain)));
    if !compiled.statics.is_empty() {
        out.push_str(&format!("static  {}\n", compiled.statics.join(", ")));
    }
    out.push_str("\nmerged\n");
    for (key, value) in &compiled.merged {
        out.push_str(&format!("  {key}: {value}\n"));
    }
    out
}

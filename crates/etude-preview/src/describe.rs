//! Steps in words: their references, and conditions, values and commands as people read them.

use etude_core::condition::Condition;
use etude_core::effect::Command;
use etude_core::plan::{Binding, MachineInput, Step, StepKind};
use etude_core::shell;
use etude_core::template::{Reference, Scope, Template};

/// All references of a step, in the order of its fields. The children of a group are not included.
pub fn references(step: &Step) -> Vec<&Reference> {
    let mut found = Vec::new();
    if let Some(each) = &step.for_each {
        of_binding(&each.items, &mut found);
    }
    if let Some(when) = &step.when {
        of_condition(when, &mut found);
    }
    if let Some(require) = &step.require {
        of_condition(&require.condition, &mut found);
    }
    if let Some(key) = step.cache.as_ref().and_then(|cache| cache.key.as_ref()) {
        of_template(key, &mut found);
    }
    match &step.kind {
        StepKind::Code(code) => code.env.iter().for_each(|(_, value)| of_template(value, &mut found)),
        StepKind::Llm(llm) => {
            for template in llm.system.iter().chain([&llm.prompt]).chain(&llm.images) {
                of_template(template, &mut found);
            }
            llm.choose.iter().for_each(|choose| of_binding(&choose.from, &mut found));
        }
        StepKind::Skill(agent) => [&agent.system, &agent.prompt].into_iter().for_each(|t| of_template(t, &mut found)),
        StepKind::Application(call) => call.args.iter().for_each(|arg| of_template(arg, &mut found)),
        StepKind::Tool(call) => call.args.iter().for_each(|(_, value)| of_binding(value, &mut found)),
        StepKind::Parallel(_) => {}
        StepKind::Machine(call) => {
            if let MachineInput::Bound { values, .. } = &call.input {
                values.iter().for_each(|(_, value)| of_binding(value, &mut found));
            }
        }
        StepKind::Pipeline(sub) => sub.input.iter().for_each(|(_, value)| of_binding(value, &mut found)),
        StepKind::Approval(approval) => of_template(&approval.message, &mut found),
    }
    found
}

fn of_template<'p>(template: &'p Template, found: &mut Vec<&'p Reference>) {
    found.extend(template.references().map(|(reference, _)| reference));
}

fn of_binding<'p>(binding: &'p Binding, found: &mut Vec<&'p Reference>) {
    match binding {
        Binding::Reference(reference) => found.push(reference),
        Binding::Template(template) => of_template(template, found),
        Binding::Literal(_) => {}
    }
}

/// Adds the references of a condition to `found`.
pub fn of_condition<'p>(condition: &'p Condition, found: &mut Vec<&'p Reference>) {
    condition.bindings().into_iter().for_each(|value| of_binding(value, found));
}

/// Condition as text: `checks.output.ok and not (input.kind in ["draft"])`.
pub fn condition(condition: &Condition) -> String {
    let joined = |list: &[Condition], word: &str| {
        let parts: Vec<String> = list.iter().map(nested).collect();
        parts.join(word)
    };
    match condition {
        Condition::Truthy(value) => binding(value),
        Condition::Compare { value, op, literal } => {
            format!("{} {} {literal}", binding(value), op.word())
        }
        Condition::Relate { value, op, right } => format!("{} {} {}", binding(value), op.word(), binding(right)),
        Condition::All(list) if list.is_empty() => "always".to_owned(),
        Condition::Any(list) if list.is_empty() => "never".to_owned(),
        Condition::All(list) => joined(list, " and "),
        Condition::Any(list) => joined(list, " or "),
        Condition::Not(inner) => format!("not {}", nested(inner)),
    }
}

fn nested(inner: &Condition) -> String {
    match inner {
        Condition::Truthy(_) => condition(inner),
        _ => format!("({})", condition(inner)),
    }
}

/// Value in its written form, a reference without its braces.
pub fn binding(value: &Binding) -> String {
    match value {
        Binding::Reference(reference) => reference.to_string(),
        Binding::Template(template) => as_written(template),
        Binding::Literal(json) => json.inline().unwrap_or("…").to_owned(),
    }
}

/// Text of the template with its references in braces; nothing is rendered.
pub fn as_written(template: &Template) -> String {
    template.render_partly(&Nothing, usize::MAX)
}

/// Scope without values.
struct Nothing;

impl Scope for Nothing {
    fn root(&self, _: &Reference) -> Result<etude_core::data::Json, String> {
        Err("no values are known".to_owned())
    }
}

/// Command as one line; words that a shell would split or change are quoted.
pub fn command(command: &Command) -> String {
    match command {
        Command::Direct(words) => shell::line(words),
        Command::Shell(line) | Command::Script(line) => line.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etude_core::condition::Op;
    use serde_json::json;

    fn truthy(path: &str) -> Condition {
        Condition::Truthy(Binding::Reference(path.parse().unwrap()))
    }

    #[test]
    fn conditions_read_like_sentences() {
        let compare = Condition::Compare {
            value: Binding::Reference("input.kind".parse().unwrap()),
            op: Op::In,
            literal: json!(["draft"]).into(),
        };
        let all = Condition::All(vec![truthy("checks.output.ok"), Condition::Not(Box::new(compare))]);
        assert_eq!(condition(&all), r#"checks.output.ok and (not (input.kind in ["draft"]))"#);
        assert_eq!(condition(&Condition::Any(vec![truthy("a.output"), truthy("b.output")])), "a.output or b.output");
    }

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let words = ["python3", "steps/it's.py", "", "a b", "--x=1"].map(str::to_owned).to_vec();
        assert_eq!(command(&Command::Direct(words)), r"python3 'steps/it'\''s.py' '' 'a b' --x=1");
    }
}

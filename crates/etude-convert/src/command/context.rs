//! Conditions of a command: its own text and the text before it say when it is run.

use std::sync::LazyLock;

use regex::Regex;

use crate::skill::Skill;
use crate::statement::{Form, Statement};

/// Text that states a condition.
static CONDITION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)^\W*(?:\d+[.)]\W*)?(?:if|when|whenever|unless|otherwise|in case|only|optional|optionally|option|alternative|alternatively|or|fallback|variant|approach)\b").ok()
});

/// Text that shows a bad or a possible way to do something.
static SHOWS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)^\W*(?:bad|wrong|incorrect|good|correct|right|better|not recommended|anti-?patterns?|(?:common )?mistakes?|before|after)\b\W*|❌|✅|✗|\bexamples?\b|\be\.g\.|\bfor instance\b|\bnever\b|\bdo not\b|\bdon't\b|\bavoid\b|\binstead of\b").ok()
});

/// Text that says that something is done several times.
static REPEATS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)\b(?:each|for every|for all|repeat|until|while|as often as)\b").ok());

/// Text that says to run its command: a verb before it, or a label, or nothing else.
static RUNS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)(?:^[^a-z]*|[:|]\W*)`|\b(?:run|execute|call|invoke|use|via|with|start)\b[^`]*(?:`|\]\(|[\w-]+/[\w-])",
    )
    .ok()
});

fn is(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Text with the condition of a statement's command; `None` if the command is run each time. It is the own text, that of the
/// item or sentence that introduces a code block, or that of its heading.
///
/// # Errors
/// The reason why the command is not for running.
pub(crate) fn condition<'s>(skill: &'s Skill, statement: &'s Statement) -> Result<Option<&'s str>, &'static str> {
    let is_block = matches!(statement.form, Form::Code { .. });
    let intro = if is_block { introduction(skill, statement) } else { None };
    let texts = [(!is_block).then_some(statement), intro, heading(skill, statement)];
    let mut condition = None;
    for text in texts.into_iter().flatten() {
        let is_own = text.id == statement.id;
        if !is_own && is(&SHOWS, &text.text) {
            return Err("the text above shows it as an example or forbids it");
        }
        if is_own && is(&REPEATS, &text.text) || intro.is_some_and(|intro| is(&REPEATS, &intro.text)) {
            return Err("it is repeated");
        }
        if condition.is_none() && is(&CONDITION, &text.text) {
            condition = Some(text.text.as_str());
        }
    }
    Ok(condition)
}

/// True if a statement only mentions its command, and does not say to run it.
pub(crate) fn is_mention(statement: &Statement) -> bool {
    !matches!(statement.form, Form::Code { .. }) && !is(&RUNS, &statement.text)
}

/// Item that contains a code block, or the sentence before it that ends with a colon.
fn introduction<'s>(skill: &'s Skill, block: &Statement) -> Option<&'s Statement> {
    let before = skill.statement(block.id.checked_sub(1)?)?;
    let is_open = before.text.trim_end_matches(['*', '_', ' ', ')']).ends_with(':');
    match before.form {
        Form::Item | Form::Sentence if is_open => Some(before),
        Form::Item => Some(before),
        _ => None,
    }
}

/// Nearest heading above a statement, or a heading above that one which states a condition or shows something.
fn heading<'s>(skill: &'s Skill, statement: &Statement) -> Option<&'s Statement> {
    let (mut level, mut nearest) = (u8::MAX, None);
    for id in (1..statement.id).rev() {
        let above = skill.statement(id)?;
        if let Form::Heading { level: found } = above.form
            && found < level
        {
            if is(&CONDITION, &above.text) || is(&SHOWS, &above.text) {
                return Some(above);
            }
            nearest = nearest.or(Some(above));
            level = found;
        }
    }
    nearest
}

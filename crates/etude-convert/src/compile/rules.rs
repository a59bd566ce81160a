//! Selection of the rules that a model is asked to keep in a judgement or as an agent: those of its section, and those of
//! sections that only have rules.

use std::collections::BTreeSet;

use super::Source;
use crate::label::Label;
use crate::statement::{Form, Statement};

/// Rules and conditions that are not steps of their own.
pub(super) struct Rules<'a> {
    source: Source<'a>,
    rules: Vec<&'a Statement>,
    /// Level of the headings that divide the skill: the outermost one with several headings.
    level: u8,
    /// Sections with a part of a path, by the id of their heading.
    busy: BTreeSet<u32>,
}

impl<'a> Rules<'a> {
    /// Collects the rules that are not steps.
    pub(super) fn new(source: Source<'a>, stated: &BTreeSet<u32>) -> Self {
        let statements = &source.skill.statements;
        let label = |statement: &Statement| source.labels.get(&statement.id).copied();
        let is_rule = |s: &&Statement| {
            matches!(label(s), Some(Label::Rule | Label::Condition))
                && !stated.contains(&s.id)
                && !matches!(s.form, Form::Heading { .. } | Form::Html)
        };
        let count = |level: u8| statements.iter().filter(|s| s.form == Form::Heading { level }).count();
        let level = (1..=6).find(|level| count(*level) > 1).unwrap_or(1);
        let mut rules =
            Self { source, rules: statements.iter().filter(is_rule).collect(), level, busy: BTreeSet::new() };
        let path = statements.iter().filter(|s| matches!(label(s), Some(Label::MainPath | Label::Judgement)));
        rules.busy = path.map(|statement| rules.section(statement)).collect();
        rules
    }

    /// Rules for statements that a model follows.
    pub(super) fn of(&self, statements: &[&Statement]) -> Vec<&'a Statement> {
        let own: BTreeSet<u32> = statements.iter().map(|statement| self.section(statement)).collect();
        let applies = |rule: &&Statement| {
            let section = self.section(rule);
            own.contains(&section) || !self.busy.contains(&section)
        };
        self.rules.iter().copied().filter(applies).collect()
    }

    /// Id of the heading of a statement's section; 0 before the first heading.
    fn section(&self, statement: &Statement) -> u32 {
        let above = self.source.skill.statements.iter().take_while(|other| other.id <= statement.id);
        let divides = |s: &&Statement| matches!(s.form, Form::Heading { level } if level <= self.level);
        above.filter(divides).last().map_or(0, |heading| heading.id)
    }
}

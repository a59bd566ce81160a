//! Parts of a draft: the content from which each step is made.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;
use crate::case;
use crate::command::{self, Command, Session, Values};
use crate::draft::{Draft, DraftStep, Names, RESERVED};
use crate::label::Label;
use crate::statement::{Form, Statement};

/// Content from which a step is made.
pub(super) enum Part<'a> {
    /// Commands that one shell runs.
    Code {
        statements: Vec<&'a Statement>,
        command: Command,
        /// The step that asks if the commands are run; `None` if they are run each time.
        when: Option<String>,
        /// True if the step does all that its statements say.
        is_all: bool,
    },
    /// A question to a model.
    Judgement { statement: &'a Statement },
    /// A task for an agent.
    Agent { statements: Vec<&'a Statement> },
    /// A rule or condition on which the later steps depend.
    Guard { statement: &'a Statement },
    /// A condition for the command of a statement.
    When { text: &'a str, statement: &'a Statement },
}

impl Part<'_> {
    /// Ids of the statements.
    pub(super) fn ids(&self) -> Vec<u32> {
        match self {
            Self::Code { statements, .. } | Self::Agent { statements } => {
                statements.iter().map(|statement| statement.id).collect()
            }
            Self::Judgement { statement } | Self::Guard { statement } | Self::When { statement, .. } => {
                vec![statement.id]
            }
        }
    }
}

/// Parts of a draft under construction.
pub(super) struct Parts<'a> {
    source: Source<'a>,
    draft: &'a Draft,
    values: Values,
    names: Names,
    found: Vec<(String, Part<'a>)>,
    /// For each command so far: the position of the step that runs it, the id of its statement, and its effects on the shell.
    sessions: Vec<(usize, u32, Session)>,
    /// The statement that first sets each variable of the skill.
    sets: BTreeMap<String, u32>,
    faults: Vec<String>,
}

impl<'a> Parts<'a> {
    /// Parts of the steps of a draft, with their names.
    ///
    /// # Errors
    /// The reasons why the draft cannot be a pipeline, as sentences for a model.
    pub(super) fn of(source: Source<'a>, draft: &'a Draft) -> Result<Vec<(String, Part<'a>)>, Vec<String>> {
        let mut names = Names::new(&RESERVED);
        draft.steps.iter().for_each(|step| names.take(&step.name));
        let values = case::values(source.cases);
        let mut sets = BTreeMap::new();
        for statement in &source.skill.statements {
            for name in command::session(source.skill, statement).sets {
                sets.entry(name).or_insert(statement.id);
            }
        }
        let (found, sessions, faults) = (Vec::new(), Vec::new(), Vec::new());
        let mut parts = Self { source, draft, values, names, found, sessions, sets, faults };
        for step in &draft.steps {
            if let Err(fault) = parts.add(step) {
                parts.fault(&step.name, &fault);
            }
        }
        parts.refuse_settings();
        if draft.steps.is_empty() {
            parts.faults.push(format!("pipeline `{}` has no steps", draft.name));
        } else if parts.faults.is_empty() && parts.found.iter().all(|(_, part)| matches!(part, Part::Agent { .. })) {
            parts
                .faults
                .push(format!("pipeline `{}` has only agent steps, which the skill already covers", draft.name));
        }
        if parts.faults.is_empty() { Ok(parts.found) } else { Err(parts.faults) }
    }

    fn fault(&mut self, step: &str, fault: &str) {
        self.faults.push(format!("pipeline `{}`, step `{step}`: {fault}", self.draft.name));
    }

    fn add(&mut self, step: &DraftStep) -> Result<(), String> {
        let name = &step.name;
        let Some(statement) = self.source.skill.statement(step.statement) else {
            return Err(format!("statement {} does not exist", step.statement));
        };
        let id = statement.id;
        let label = self.source.labels.get(&id).copied().unwrap_or(Label::Background);
        if !label.is_for_steps() {
            return Err(format!("statement {id} is labelled `{}`, so it cannot be a step", label.word()));
        }
        let is_prose = matches!(statement.form, Form::Item | Form::Sentence | Form::Row);
        let runs = self.command(statement);
        match (runs, label) {
            (Ok(Some(_)), Label::Rule | Label::Condition) if command::is_mention(statement) => {
                self.push(name, Part::Guard { statement });
            }
            (Ok(Some(_)), Label::MainPath) if command::is_mention(statement) => {
                return Err(format!("statement {id} mentions a command without an instruction to run it"));
            }
            (Ok(Some((command, None))), Label::Judgement) if is_prose => {
                let run = self.names.unique(&format!("{name}_run"));
                self.run(&run, statement, (command, None), false)?;
                self.push(name, Part::Judgement { statement });
            }
            (_, Label::Judgement) if is_prose => self.push(name, Part::Judgement { statement }),
            (Ok(Some((command, condition))), _) => self.run(name, statement, (command, condition), true)?,
            (Err(why), _) => return Err(format!("statement {id} cannot be run: {why}")),
            (Ok(None), _) if !is_prose => {
                return Err(format!("statement {id} is neither a command nor a judgement"));
            }
            // Later steps do not depend on a condition with an action of its own.
            (Ok(None), Label::Condition) if command::has_action(&statement.text) => self.hand_over(name, statement),
            (Ok(None), Label::Rule | Label::Condition) => self.push(name, Part::Guard { statement }),
            (Ok(None), _) => self.hand_over(name, statement),
        }
        Ok(())
    }

    /// Adds a statement without a command (L-88): to the work of the agent before it, or as a step of its own.
    fn hand_over(&mut self, name: &str, statement: &'a Statement) {
        match self.found.last_mut() {
            Some((_, Part::Agent { statements })) => statements.push(statement),
            _ => self.push(name, Part::Agent { statements: vec![statement] }),
        }
    }

    fn push(&mut self, name: &str, part: Part<'a>) {
        self.found.push((name.to_owned(), part));
    }

    /// Command of a statement, and the text with its condition.
    fn command(&self, statement: &'a Statement) -> Result<Option<(Command, Option<&'a str>)>, &'static str> {
        let Some(command) = command::of_statement(self.source.skill, statement, &self.values)? else {
            return Ok(None);
        };
        Ok(Some((command, command::condition(self.source.skill, statement)?)))
    }

    /// Adds a command: as a step of its own, or to earlier commands whose effects on the shell it needs.
    fn run(
        &mut self,
        name: &str,
        statement: &'a Statement,
        (command, condition): (Command, Option<&'a str>),
        is_all: bool,
    ) -> Result<(), String> {
        let session = command::session(self.source.skill, statement);
        let leaves = |(_, _, before): &&(usize, u32, Session)| before.moves || !before.sets.is_disjoint(&session.reads);
        let before: BTreeSet<(usize, u32)> =
            self.sessions.iter().filter(leaves).map(|(at, id, _)| (*at, *id)).collect();
        let is_set = |name: &&String| self.sessions.iter().any(|(_, _, before)| before.sets.contains(*name));
        let missing = session
            .reads
            .iter()
            .filter(|name| !is_set(name))
            .find_map(|name| self.sets.get_key_value(name).filter(|(_, of)| **of < statement.id));
        if let Some((name, of)) = missing {
            return Err(format!("statement {} needs the variable `{name}`, which statement {of} sets", statement.id));
        }
        let Some((first, of)) = before.first().copied() else {
            let when = condition.map(|text| {
                let question = self.names.unique(&format!("{name}_applies"));
                self.push(&question, Part::When { text, statement });
                question
            });
            self.sessions.push((self.found.len(), statement.id, session));
            self.push(name, Part::Code { statements: vec![statement], command, when, is_all });
            return Ok(());
        };
        let last = self.found.len().saturating_sub(1);
        let values = &self.values;
        match self.found.last_mut() {
            Some((_, Part::Code { statements, command, when: None, is_all: true }))
                if first == last && condition.is_none() && is_all =>
            {
                let together: Vec<&Statement> = statements.iter().copied().chain([statement]).collect();
                let made = command::of_statements(self.source.skill, &together, values);
                let made = made.map_err(|why| format!("statement {} cannot be run: {why}", statement.id))?;
                *statements = together;
                made.into_iter().for_each(|made| *command = made);
                self.sessions.push((last, statement.id, session));
                Ok(())
            }
            _ => Err(format!(
                "statement {} needs the shell of statement {of}, but the steps between them run outside that shell",
                statement.id
            )),
        }
    }

    /// Refuses steps that only set variables or only change the directory, because they do nothing.
    fn refuse_settings(&mut self) {
        let does_nothing = |at: usize| {
            let mut own = self.sessions.iter().filter(|(of, _, _)| *of == at).peekable();
            own.peek().is_some() && own.all(|(_, _, session)| session.is_only_setting)
        };
        let names: Vec<String> =
            (0..self.found.len()).filter(|at| does_nothing(*at)).map(|at| self.found[at].0.clone()).collect();
        for name in names {
            self.fault(&name, "it sets only variables or the directory of its shell, and no later step uses them");
        }
    }
}

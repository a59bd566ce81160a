//! Field tables as Markdown, for the reference pages of the documentation.
//!
//! A page marks the place of a table with `<!-- fields: NAME -->` and `<!-- end -->`. [`TABLES`] holds the names.

use std::fmt::Write as _;

use crate::fields::{
    Field, FieldKind, Object, automation, config, learn, package, pipeline, stage_machine, test, tool,
};

/// A table of the reference: the name in the markers of a page, and the fields.
pub type Named = (&'static str, Table);

/// A selection of fields for a reference page.
#[derive(Debug, Clone, Copy)]
pub enum Table {
    /// All fields of an object.
    Object(&'static Object),
    /// Fields of a step type, without those that every step has.
    Step(&'static Object),
    /// Fields that every step has.
    EveryStep,
}

/// Every table, by the name in the markers of a page.
pub const TABLES: &[Named] = &[
    ("pipeline", Table::Object(&pipeline::PIPELINE)),
    ("parameter", Table::Object(&pipeline::PARAMETER)),
    ("every-step", Table::EveryStep),
    ("code", Table::Step(&pipeline::CODE)),
    ("llm", Table::Step(&pipeline::LLM)),
    ("parallel", Table::Step(&pipeline::PARALLEL)),
    ("sub-pipeline", Table::Step(&pipeline::SUB_PIPELINE)),
    ("approval", Table::Step(&pipeline::APPROVAL)),
    ("skill", Table::Step(&pipeline::SKILL)),
    ("application", Table::Step(&pipeline::APPLICATION)),
    ("tool-step", Table::Step(&pipeline::TOOL)),
    ("stage-step", Table::Step(&pipeline::STAGE)),
    ("machine-step", Table::Step(&pipeline::MACHINE)),
    ("from-env", Table::Object(&pipeline::FROM_ENV)),
    ("validator", Table::Object(&pipeline::VALIDATOR)),
    ("choose", Table::Object(&pipeline::CHOOSE)),
    ("cache", Table::Object(&pipeline::CACHE)),
    ("retry", Table::Object(&pipeline::RETRY)),
    ("sandbox", Table::Object(&pipeline::SANDBOX)),
    ("condition", Table::Object(&pipeline::COMPARISON)),
    ("machine", Table::Object(&stage_machine::MACHINE)),
    ("stage", Table::Object(&stage_machine::STAGE)),
    ("retry-policy", Table::Object(&stage_machine::RETRY_POLICY)),
    ("backoff", Table::Object(&stage_machine::BACKOFF)),
    ("slot", Table::Object(&stage_machine::SLOT)),
    ("context", Table::Object(&stage_machine::CONTEXT)),
    ("hooks", Table::Object(&stage_machine::HOOKS)),
    ("script", Table::Object(&stage_machine::SCRIPT)),
    ("setup", Table::Object(&stage_machine::SETUP)),
    ("gate", Table::Object(&stage_machine::GATE)),
    ("gate-rule", Table::Object(&stage_machine::GATE_RULE)),
    ("assert", Table::Object(&stage_machine::ASSERT)),
    ("assert-rule", Table::Object(&stage_machine::ASSERT_RULE)),
    ("exit", Table::Object(&stage_machine::EXIT)),
    ("schedule", Table::Object(&automation::SCHEDULE)),
    ("webhook", Table::Object(&automation::WEBHOOK)),
    ("verify", Table::Object(&automation::VERIFY)),
    ("notice", Table::Object(&automation::NOTICE)),
    ("serve", Table::Object(&automation::SERVE)),
    ("auth", Table::Object(&config::AUTH)),
    ("per-day", Table::Object(&automation::PER_DAY)),
    ("serve-mcp", Table::Object(&automation::MCP)),
    ("limits", Table::Object(&automation::LIMITS)),
    ("test", Table::Object(&stage_machine::TEST)),
    ("case", Table::Object(&stage_machine::CASE)),
    ("grant", Table::Object(&stage_machine::GRANT)),
    ("machine-guard", Table::Object(&stage_machine::GUARD)),
    ("tool", Table::Object(&tool::TOOL)),
    ("test-file", Table::Object(&test::TEST)),
    ("expect", Table::Object(&test::EXPECT)),
    ("recorded-call", Table::Object(&test::RECORDED_CALL)),
    ("expected-call", Table::Object(&test::EXPECTED_CALL)),
    ("learn-file", Table::Object(&learn::LEARN_FILE)),
    ("learn", Table::Object(&learn::LEARN)),
    ("learn-promote", Table::Object(&learn::PROMOTE)),
    ("learn-demote", Table::Object(&learn::DEMOTE)),
    ("application-file", Table::Object(&package::APPLICATION)),
    ("entry", Table::Object(&package::ENTRY)),
    ("skill-file", Table::Object(&package::SKILL)),
    ("config", Table::Object(&config::CONFIG)),
    ("mapping", Table::Object(&config::MAPPING)),
    ("provider", Table::Object(&config::PROVIDER)),
    ("capabilities", Table::Object(&config::CAPABILITIES)),
    ("router", Table::Object(&config::ROUTER)),
    ("agent", Table::Object(&config::AGENT)),
    ("agent-sandbox", Table::Object(&config::SANDBOX)),
    ("approvals", Table::Object(&config::APPROVALS)),
    ("guard", Table::Object(&config::GUARD)),
    ("mcp", Table::Object(&config::MCP)),
    ("mcp-server", Table::Object(&config::MCP_SERVER)),
    ("worker", Table::Object(&config::WORKER)),
    ("python-worker", Table::Object(&config::PYTHON_WORKER)),
    ("price", Table::Object(&config::PRICE)),
    ("engine", Table::Object(&config::ENGINE)),
    ("queue", Table::Object(&config::QUEUE)),
    ("allow", Table::Object(&config::ALLOW)),
    ("tenant", Table::Object(&config::TENANT)),
];

/// The table that pages mark with `<!-- fields: NAME -->`; `None` if there is none.
pub fn table(name: &str) -> Option<Table> {
    TABLES.iter().find(|(known, _)| *known == name).map(|(_, table)| *table)
}

impl Table {
    /// The fields, in the order of the table.
    pub fn fields(self) -> Vec<&'static Field> {
        match self {
            Self::Object(object) => object.iter().collect(),
            Self::Step(object) => object.iter().filter(|field| !is_of_every_step(field)).collect(),
            Self::EveryStep => pipeline::CODE.iter().filter(|field| is_of_every_step(field)).collect(),
        }
    }

    /// The table as Markdown: one row per field with type, default, meaning and an example.
    pub fn markdown(self) -> String {
        let mut text = String::from("| field | type | default | meaning | example |\n|---|---|---|---|---|\n");
        for field in self.fields() {
            let default = match (field.required, field.default) {
                (true, _) => "required".to_owned(),
                (false, "") => String::new(),
                (false, default) => code(default),
            };
            let extension = field.extension.map_or(String::new(), |clause| format!(" *({clause})*"));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| `{}` | {} | {default} | {}{extension} | {} |",
                field.name,
                cell(&type_of(&field.kind)),
                cell(field.doc),
                code(field.example),
            );
        }
        text
    }
}

/// True for `name`, `type` and the fields of X-1, which are the same in each step table.
fn is_of_every_step(field: &Field) -> bool {
    pipeline::steps().all(|(_, object)| object.field(field.name).is_some_and(|other| other.doc == field.doc))
}

/// Type of a field for readers of the reference: `integer from 1 to 100`.
fn type_of(kind: &FieldKind) -> String {
    match kind {
        FieldKind::Text | FieldKind::Prose => "string".into(),
        FieldKind::Template => "template".into(),
        FieldKind::ArgsTemplate => "template of `{{args.NAME}}`".into(),
        FieldKind::Path => "path".into(),
        FieldKind::Schema => "path, or a JSON Schema".into(),
        FieldKind::Bool => "boolean".into(),
        FieldKind::Integer(i64::MIN, i64::MAX) => "integer".into(),
        FieldKind::Integer(from, to) => format!("integer, {from} to {to}"),
        FieldKind::Number(from, to) => format!("number, {from} to {to}"),
        FieldKind::Duration => "duration".into(),
        FieldKind::LongDuration => "duration, also in days".into(),
        FieldKind::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        FieldKind::List(of) => format!("list of: {}", type_of(of)),
        FieldKind::Entries(of) => format!("map to: {}", type_of(of)),
        FieldKind::Object(object) => object.name.to_owned(),
        FieldKind::Either(kinds) => kinds.iter().map(type_of).collect::<Vec<_>>().join(", or "),
        FieldKind::Steps => "list of steps".into(),
        FieldKind::Inputs => "map of parameters".into(),
        FieldKind::Condition => "condition".into(),
        FieldKind::Any => "any value or template".into(),
        FieldKind::Literal | FieldKind::Data => "any value".into(),
    }
}

/// Escapes pipes, which would end a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Formats YAML as code in a cell.
fn code(yaml: &str) -> String {
    if yaml.is_empty() { String::new() } else { format!("`{}`", cell(yaml)) }
}

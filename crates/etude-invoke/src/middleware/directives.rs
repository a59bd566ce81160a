//! Directives, and the middleware that puts their values into a prompt (D-11).

use std::sync::Arc;

use crate::chain::{Middleware, Options, Resume, Step, Throw, ThrowKind, ToolHandler, View};
use etude_spec::cascade::directive::From;
use etude_spec::cascade::search::absolute;
use etude_spec::cascade::skill::SkillHandler;
use etude_spec::cascade::strategy::Evaluation;
use etude_spec::cascade::{Skill, Skills, directive, interpolate, path};
use serde_json::{Value, json};

use super::{Once, Shared, dir_of};

/// Maximum number of files that one prompt may insert: a file that inserts itself would never end.
const MAX_INLINE: u64 = 50;

/// Replaces directives in document order, each by the result of its tool.
pub(super) struct Directives {
    pub(super) shared: Arc<Shared>,
}

/// The tool of one directive.
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) shared: Arc<Shared>,
}

impl Middleware for Directives {
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step {
        match resume {
            Resume::Start => {
                if !matches!(view.target().tool.body, ToolHandler::Nothing) {
                    return Step::Done(None);
                }
                self.next(view, From::Text(0))
            }
            Resume::Invoked(Ok(value)) => {
                let own = view.own();
                let number = |key: &str| own.locals.get(key).and_then(Value::as_u64).unwrap_or(0) as usize;
                let (start, end, inline) = (number("start"), number("end"), number("inline"));
                let text = value.as_ref().map(etude_core::data::bare).unwrap_or_default();
                let prompt = view.target().prompt.clone().unwrap_or_default();
                let (Some(before), Some(after)) = (prompt.get(..start), prompt.get(end..)) else {
                    return Step::Done(None);
                };
                let whole = format!("{before}{text}{after}");
                // Inserted files may contain directives; other values are data.
                let from = if inline > 0 { From::Text(start) } else { From::Value(start + text.len()) };
                view.target_mut().prompt = Some(whole.into());
                self.next(view, from)
            }
            Resume::Invoked(Err(throw)) => Step::Throw(throw),
            _ => Step::Done(None),
        }
    }
}

impl Directives {
    /// Invokes the tool of the first known directive after `from`.
    fn next(&self, view: &mut View<'_>, from: From) -> Step {
        let Some(prompt) = view.target().prompt.clone() else { return Step::Done(None) };
        // A tool `eval` of the project itself stays enabled.
        let is_off = |name: &str| {
            let is_ours = |skill: Arc<Skill>| skill.body == SkillHandler::BuiltinTool;
            name == "eval"
                && self.shared.strategy.evaluation == Evaluation::Off
                && self.shared.catalog.find(name).is_some_and(is_ours)
        };
        let known =
            |found: &directive::Directive| self.shared.catalog.find(&found.name).is_some() && !is_off(&found.name);
        let Some(found) = directive::parse_from(&prompt, from).into_iter().find(known) else { return Step::Done(None) };
        let is_inline = found.name == "inline";
        let target = view.target_id();
        let locals = &mut view.own_mut().locals;
        let inserted = locals.get("inserted").and_then(Value::as_u64).unwrap_or(0) + u64::from(is_inline);
        if inserted > MAX_INLINE {
            let why = format!("more than {MAX_INLINE} files are inserted by `:inline`; perhaps one inserts itself");
            return Step::Throw(Throw::new(ThrowKind::Failed, "directives", why));
        }
        for (key, value) in [
            ("start", found.range.start as u64),
            ("end", found.content.as_ref().map_or(found.range.end, |content| content.end) as u64),
            ("inline", u64::from(is_inline)),
            ("inserted", inserted),
        ] {
            locals.insert(key.to_owned(), json!(value));
        }
        let mut args = found.attributes;
        args.insert("label".to_owned(), json!(found.label));
        args.extend(found.content.map(|content| ("content".to_owned(), json!(content.text))));
        let options = Options { target: Some(target), is_exempt: true, ..Options::default() };
        Step::Invoke { reference: found.name, args: Value::Object(args), options }
    }
}

impl Once for Directive {
    fn run(&self, view: &mut View<'_>) -> Result<Option<Value>, Throw> {
        let args = Arc::clone(&view.own().args);
        let label = args.get("label").and_then(Value::as_str).unwrap_or_default();
        let target = view.target();
        let found = match self.name.as_str() {
            "arg" => path::get(&target.args, label).cloned(),
            "config" => path::get(&target.config, label).cloned(),
            "context" => path::get(&view.target_json(), label).cloned(),
            "eval" => {
                let text = format!("${{{label}}}");
                Some(interpolate::text(&text, &view.target_json(), &self.shared.strategy))
            }
            "env" => self.shared.env.get(label).map(|value| json!(value)),
            "path" => Some(json!(absolute(&dir_of(target, &self.shared), label))),
            "inline" => {
                let own = dir_of(target, &self.shared);
                let text = self.shared.read(&own, label, &own);
                Some(json!(text.map_err(|why| Throw::new(ThrowKind::Failed, "inline", why))?.trim_end()))
            }
            _ => Some(json!(self.reference(label)?)),
        };
        // A missing value becomes empty text.
        Ok(Some(found.filter(|value| !value.is_null()).unwrap_or_else(|| json!(""))))
    }
}

impl Directive {
    /// A skill in one line; for `tool` also its parameters.
    fn reference(&self, name: &str) -> Result<String, Throw> {
        let Some(skill) = self.shared.catalog.find(name) else {
            return Err(Throw::new(ThrowKind::Unknown, &self.name, format!("skill not found: `{name}`")));
        };
        let params = skill.metadata().get("params").filter(|_| self.name == "tool");
        let params = params.map(|params| format!(" Arguments: {params}")).unwrap_or_default();
        Ok(format!("`{}`: {}{params}", skill.name, skill.description))
    }
}

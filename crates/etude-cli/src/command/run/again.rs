//! `etude run --again RUN`: a new run with the target and input of an earlier one (A-5.6).

use etude::Disk;
use etude_core::data::Json;
use etude_core::model::Usage;
use etude_runs::header::Header;
use etude_runs::target::Target;
use etude_spec::input::InputDecl;
use etude_spec::lower::REQUEST;
use indexmap::IndexMap;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{Prepared, coerce, input_text, load_target, pairs};
use crate::args;
use crate::command::runs::find::find;
use crate::command::runs::place_of;
use crate::context::Context;
use crate::problem::{Problem, Refused};

pub(super) fn prepare(
    context: &Context,
    args: &args::Run,
    (run, bundled): (&str, Option<Disk>),
    about: &mut Option<Target>,
) -> Result<Prepared, Refused> {
    let engine = context.engine(false)?;
    let view = find(context, &*engine, run)?;
    let id = view.row.id;
    let target = Target::parse(&view.run.target);
    *about = Some(target.clone());
    let damaged = |why: String| Problem::environment(format!("the input of run `{id}` cannot be read: {why}"));
    let header = Header::parse(&view.run.header, &*engine.blobs()).map_err(damaged)?;
    let app = place_of(context, &view.run.app);
    let moved = |e| {
        let problem =
            Problem::environment(format!("the app of run `{id}`, `{}`, cannot be opened: {e}", app.display()));
        problem.hint(format!("if the app was moved, pass its directory: etude -C DIR run --again {id}"))
    };
    let disk = bundled.map_or_else(|| Disk::open(&app).map_err(moved), Ok)?;
    if let Some(name) = target.pipeline() {
        crate::command::learn::check_named(context, &disk, name)?;
    }
    let definition = load_target(context, &disk, &target)?;
    // With changed values, the words of the earlier request do not apply.
    let asked = header.request.asked.clone().filter(|_| args.pairs.is_empty());
    let is_same = args.pairs.is_empty() && args.input.is_none();
    let request = header.request.routing.as_ref().and_then(|trail| trail["request"].as_str()).filter(|_| is_same);
    let routing = request.map(|request| json!({"request": request}));
    let text = header.request.input.text().map_err(|e| damaged(e.to_string()))?;
    let input = replaced(&text, args, &target, &definition.input)?;
    Ok(Prepared { disk, definition, input, spent: Usage::default(), routing, again_of: Some(id), asked })
}

/// The input of an earlier run, with the values that the command line replaces.
pub(super) fn replaced(text: &str, args: &args::Run, target: &Target, declared: &InputDecl) -> Result<Json, Problem> {
    let damaged = |e| Problem::environment(format!("the input of the run cannot be read: {e}"));
    let mut input = Members::parse(text).map_err(damaged)?;
    if let Some(given) = args.input.as_deref().map(input_text).transpose()? {
        let given = Members::parse(&given)
            .map_err(|_| Problem::usage("`--input` with `--again` must be an object with the values to replace"))?;
        given.0.into_iter().for_each(|(name, value)| input.set(name, value));
    }
    let replaced = pairs(&args.pairs)?;
    if matches!(target, Target::Skill(_)) {
        for (name, value) in replaced {
            if name != REQUEST {
                let problem = Problem::usage(format!("a run in skill mode has no input `{name}`"));
                return Err(problem.hint(format!("replace its request: -i {REQUEST}=TEXT")));
            }
            input.set(name, to_raw_value(&value).map_err(|e| Problem::usage(e.to_string()))?);
        }
        return Ok(Json::trusted(input.to_text()));
    }
    input.0.retain(|(name, _)| !replaced.iter().any(|(replaced, _)| replaced == name));
    coerce(declared, &replaced, Some(&input.to_text()))
}

/// Members of an object, in order, each with its value as it was written: numbers of any precision stay as they are.
struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let members: IndexMap<String, Box<RawValue>> = serde_json::from_str(text)?;
        Ok(Self(members.into_iter().collect()))
    }

    fn set(&mut self, name: String, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    fn to_text(&self) -> String {
        let members: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))).collect();
        format!("{{{}}}", members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A-3.3: values are those of the earlier run, byte for byte, even if they cannot be parsed.
    #[test]
    fn members_stay_as_they_were_written() {
        let text = r#"{"b":[1.50,1e400],"a":"\ud800"}"#;
        let mut members = Members::parse(text).expect("members");
        assert_eq!(members.to_text(), text);
        members.set("b".to_owned(), to_raw_value(&7).expect("a number"));
        assert_eq!(members.to_text(), r#"{"b":7,"a":"\ud800"}"#);
        assert!(Members::parse("[]").is_err());
    }
}

//! `etude explain`: what an error code means and how to mend it.

use etude::core::failure::Kind;
use etude::spec::did_you_mean;
use serde_json::{Value, json};

use crate::context::{Context, Problem};
use crate::exit::Exit;
use crate::stdout;

include!(concat!(env!("OUT_DIR"), "/pages.rs"));

pub(crate) fn explain(context: &Context, code: Option<&str>) -> Exit {
    let Some(code) = code else {
        list(context);
        return Exit::Done;
    };
    let Some((code, text)) = find(code) else {
        let problem = Problem::usage(format!("there is no code `{code}`"));
        let hint = match did_you_mean(code, PAGES.iter().map(|(known, _)| *known)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "list them all with `etude explain`".to_owned(),
        };
        return context.report(None, &problem.hint(hint));
    };
    if context.is_json() {
        stdout::json(&json!({"code": code, "title": title(code, text), "text": text}));
    } else {
        stdout::text(text);
    }
    Exit::Done
}

/// The page of a code, in any case, or of a word in `kind`.
fn find(wanted: &str) -> Option<(&'static str, &'static str)> {
    let wanted = Kind::from_word(wanted).map_or(wanted, |kind| kind.code());
    PAGES.iter().copied().find(|(code, _)| code.eq_ignore_ascii_case(wanted))
}

/// The title of a page: its first line after the code.
fn title(code: &str, text: &'static str) -> &'static str {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix(&format!("# {code}: ")).unwrap_or(line)
}

fn list(context: &Context) {
    if context.is_json() {
        let codes: Vec<Value> =
            PAGES.iter().map(|(code, text)| json!({"code": code, "title": title(code, text)})).collect();
        return stdout::json(&json!({ "codes": codes }));
    }
    let lines = PAGES.iter().map(|(code, text)| format!("{code}  {}\n", title(code, text)));
    stdout::text(&lines.collect::<String>());
}

#[cfg(test)]
mod tests;

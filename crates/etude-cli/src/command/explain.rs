//! `etude explain`: the meaning of an error code and its fix.

use etude_core::failure::FailureKind;
use etude_spec::did_you_mean;
use serde_json::{Value, json};

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::visible;
use crate::stdout;

include!(concat!(env!("OUT_DIR"), "/pages.rs"));

pub(crate) fn explain(context: &Context, args: &args::Explain) -> Exit {
    let wanted = args.words.join(" ");
    let found = search(&wanted);
    match found.as_slice() {
        [] => context.report(None, &unknown(&wanted)),
        [(code, text)] if !args.list => {
            match context.is_json() {
                true => stdout::json(&json!({"code": code, "title": title(code, text), "text": text})),
                false => stdout::text(text),
            }
            Exit::Done
        }
        several => {
            list(context, several);
            if !wanted.is_empty() && !args.list && !context.is_json() && !context.global.quiet {
                crate::render::say!("hint: explain one of them: etude explain {}", several[0].0);
            }
            Exit::Done
        }
    }
}

fn unknown(wanted: &str) -> Problem {
    let problem = Problem::usage(format!("no error code, kind or title matches `{}`", visible(wanted)));
    let words = PAGES.iter().map(|(known, _)| *known).chain(FailureKind::ALL.iter().map(|kind| kind.word()));
    problem.hint(match did_you_mean(wanted, words) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "list every code: etude explain --list".to_owned(),
    })
}

/// A code and its page.
type Page = (&'static str, &'static str);

/// Pages that `wanted` names. Tried in order: a code or a kind, the start of a code, starts of words of the title, the same
/// words in the text, together or apart. An empty text gives every page.
fn search(wanted: &str) -> Vec<Page> {
    let lower = wanted.to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let has_all = |text: &str| {
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word))
    };
    let pages = |keep: &dyn Fn(&Page) -> bool| PAGES.iter().filter(|page| keep(page)).copied().collect::<Vec<_>>();
    let phrase = words.join(" ");
    let ways: [&dyn Fn(&Page) -> bool; 4] = [
        &|(code, _)| code.to_lowercase().starts_with(&lower),
        &|(code, text)| {
            let title = title(code, text).to_lowercase();
            let starts = |word: &&&str| {
                title.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part.starts_with(**word))
            };
            words.iter().filter(starts).count() == words.len()
        },
        &|(_, text)| text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ").contains(&phrase),
        &|(_, text)| has_all(text),
    ];
    let exact = find(wanted).map(|page| vec![page]);
    exact.or_else(|| ways.iter().map(|way| pages(*way)).find(|found| !found.is_empty())).unwrap_or_default()
}

/// Page of a code, in any case, or of a word in `kind`.
fn find(wanted: &str) -> Option<Page> {
    let wanted = FailureKind::from_word(wanted).map_or(wanted, |kind| kind.code());
    PAGES.iter().copied().find(|(code, _)| code.eq_ignore_ascii_case(wanted))
}

/// All codes with their titles.
pub(crate) fn codes() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGES.iter().map(|(code, text)| (*code, title(code, text)))
}

/// Title of a page: its first line after the code.
fn title(code: &str, text: &'static str) -> &'static str {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix(&format!("# {code}: ")).unwrap_or(line)
}

fn list(context: &Context, pages: &[Page]) {
    if context.is_json() {
        let codes: Vec<Value> =
            pages.iter().map(|(code, text)| json!({"code": code, "title": title(code, text)})).collect();
        return stdout::json(&json!({ "codes": codes }));
    }
    let lines = pages.iter().map(|(code, text)| format!("{code}  {}\n", title(code, text)));
    stdout::text(&lines.collect::<String>());
}

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use etude_spec::source::{MemorySources, SourceFile};
use etude_spec::{App, Code, Diagnostic, automation};

use super::*;

#[test]
fn every_code_has_a_page_and_every_page_has_a_code() {
    let kinds = FailureKind::ALL.iter().map(|kind| kind.code());
    let codes: BTreeSet<&str> = kinds.chain(Code::ALL.iter().map(|code| code.as_str())).collect();
    let pages: BTreeSet<&str> = PAGES.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, pages);
}

fn lookup(code: &str) -> Option<Code> {
    Code::ALL.iter().copied().find(|known| known.as_str() == code)
}

#[test]
fn pages_have_the_titles_of_their_codes() {
    for (code, text) in PAGES {
        match (lookup(code), FailureKind::ALL.iter().find(|kind| kind.code() == *code)) {
            (Some(known), _) => assert_eq!(title(code, text), known.title(), "{code}"),
            (_, Some(kind)) => assert!(title(code, text).contains(&format!("`{}`", kind.word())), "{code}"),
            _ => panic!("{code}"),
        }
    }
}

#[test]
fn pages_have_the_same_parts_in_the_same_order() {
    for (code, text) in PAGES {
        // Headings inside an example do not belong to the page.
        let prose: String = text.split("```").step_by(2).collect();
        let parts: Vec<&str> = prose.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let expected: &[&str] = match parts.len() {
            3 => &["What it means", "How to fix it", "Example"],
            _ => &["What it means", "Why it happens", "How to fix it", "Example"],
        };
        assert_eq!(parts, expected, "{code}");
        assert!(text.lines().all(|line| line.chars().count() <= 150), "{code}");
    }
}

#[test]
fn codes_are_found_in_any_case_and_by_their_word() {
    assert_eq!(find("p0201").map(|(code, _)| code), Some("P0201"));
    assert_eq!(find("step_failed").map(|(code, _)| code), Some("R0101"));
    assert_eq!(find("X1"), None);
}

/// cli: a start of a code and words of a title name several pages; a whole code names one.
#[test]
fn pages_are_found_by_a_start_and_by_words() {
    let codes = |wanted: &str| search(wanted).into_iter().map(|(code, _)| code).collect::<Vec<_>>();
    assert_eq!(codes("r010"), ["R0101", "R0102", "R0103", "R0104", "R0105", "R0106"]);
    assert_eq!(codes("p0201"), ["P0201"]);
    assert_eq!(codes(""), PAGES.iter().map(|(code, _)| *code).collect::<Vec<_>>());
    let found = codes("FIELD known");
    assert!(found.contains(&"P0201"), "{found:?}");
    assert!(found.len() < PAGES.len() / 2, "{found:?}");
    assert_eq!(codes("unknown field")[0], "P0201");
    assert_eq!(codes("no app"), ["R0301"]);
    assert_eq!(codes("no such word anywhere at all"), [""; 0]);
}

/// The first example of a page gives its code, the second gives no diagnostic at all.
#[test]
fn examples_of_definition_errors_are_what_they_claim() {
    let mut tried = 0;
    for (code, text) in PAGES {
        let Some(wanted) = lookup(code) else { continue };
        let blocks = blocks(text);
        let [(language, wrong), (_, right)] = blocks[..] else { panic!("{code} has {} examples", blocks.len()) };
        if language == "text" {
            continue;
        }
        tried += 1;
        let found = check(language, wrong);
        assert!(found.iter().any(|d| d.code == wanted), "{code}: the wrong example gives {found:#?}");
        let found = check(language, right);
        // Other uses of extensions are allowed in the right examples.
        let found: Vec<&Diagnostic> = found.iter().filter(|d| d.code != Code::Extension || wanted == d.code).collect();
        assert!(found.is_empty(), "{code}: the right example gives {found:#?}");
    }
    assert!(tried > 40, "{tried}");
}

/// Fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fences: Vec<&str> = page.split("```").collect();
    fences.iter().skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// Diagnostics of an example: an entry of `etude.yaml`, a schema, a list of steps, some fields of a pipeline, or a whole one.
fn check(language: &str, example: &str) -> Vec<Diagnostic> {
    if ["schedules:", "webhooks:", "notices:"].iter().any(|start| example.starts_with(start)) {
        let known = automation::Known { pipelines: &["report", "review"], machines: &[] };
        return automation::read(&SourceFile::new("etude.yaml", example), Some(known)).diagnostics;
    }
    let head = "name: review\ndescription: d\n";
    let step = "- {name: a, type: llm, prompt: x, schema: schemas/review.json}\n";
    let definition = match language {
        "json" => format!("{head}steps:\n{step}"),
        _ if example.starts_with("- ") => {
            format!("{head}steps:\n{}", example.lines().map(|line| format!("  {line}\n")).collect::<String>())
        }
        _ if example.starts_with("name:") => example.to_owned(),
        _ if example.contains("steps:") => format!("{head}{example}"),
        _ => format!("{head}{example}steps:\n{step}"),
    };
    let other = "{name: other, description: d, input: {repo: string}, steps: [{name: a, type: code, command: cat}]}";
    let sources = MemorySources::new()
        .with("pipelines/review/pipeline.yaml", definition)
        .with("pipelines/review/schemas/review.json", if language == "json" { example } else { "{}" })
        .with("pipelines/review/count.py", "")
        .with("pipelines/review/steps/fetch.sh", "")
        .with("pipelines/review/steps/say.py", "")
        .with("pipelines/review/steps/check.py", "")
        .with("pipelines/review/steps/check", "")
        .with("pipelines/other/pipeline.yaml", other)
        .with("skills/release-notes/SKILL.md", "---\nname: release-notes\ndescription: d\n---\nWrite.\n")
        .with("pipelines/broken/pipeline.yaml", "{name: broken, description: d, steps: []}");
    let report = App::new(&sources).check(&["review"]);
    report.diagnostics.into_iter().chain(report.extensions).collect()
}

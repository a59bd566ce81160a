//! Files that commands of a skill name as examples: they stand for files of the caller with any name.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::words::parameter_name;
use crate::skill::SkillFile;
use crate::statement::Statement;

/// A long option and a file without a directory: `--output report.pdf`, `--out="report.pdf"`.
static FILE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"(?:^|[\s`])--[A-Za-z][A-Za-z0-9-]*(?:=|[ \t]+)["']?"#,
        r"([A-Za-z][A-Za-z0-9_.-]*\.(?:avi|csv|docx|gif|gz|html?|jpe?g|jsonl?|log|md|mp[34]|pdf|png|pptx|sarif|svg|toml|tsv|txt|wav|webp|xlsx?|xml|ya?ml|zip))",
    ))
    .ok()
});

/// Files that long options name and that the skill does not have. Their parameters have distinct names.
pub(crate) fn files(statements: &[Statement], own: &[SkillFile]) -> BTreeSet<String> {
    let own: BTreeSet<&str> = own.iter().filter_map(|file| file.path.rsplit('/').next()).collect();
    let (mut files, mut names) = (BTreeSet::new(), BTreeSet::new());
    for text in statements.iter().map(|statement| statement.text.as_str()) {
        let found = FILE.iter().flat_map(|pattern| pattern.captures_iter(text)).filter_map(|found| found.get(1));
        for file in found.filter(|file| ends_a_word(&text[file.end()..])).map(|file| file.as_str()) {
            if !own.contains(file) && !files.contains(file) && names.insert(parameter_name(file)) {
                files.insert(file.to_owned());
            }
        }
    }
    files
}

/// True if a word ends before this text.
fn ends_a_word(rest: &str) -> bool {
    let rest = rest.strip_prefix(['"', '\'']).unwrap_or(rest);
    rest.chars().next().is_none_or(|c| c.is_whitespace() || matches!(c, '`' | ';' | '|' | '&' | ')'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skill::Skill;

    /// 1.6: files of the caller are recognized by the options before them; files of the skill, directories and versions are
    /// left out.
    #[test]
    fn files_behind_options_are_examples() {
        let own = SkillFile { path: "data/rates.csv".to_owned(), is_executable: false, text: None };
        let text = "```sh\nx --in a.json --out=\"b-c.pdf\" --other b_c.pdf -o no.txt\n```\n\nRun `x --rates rates.csv --to v1.2 --at out/d.md --all e.md.bak`.\n";
        let skill = Skill::read(text, vec![own]).expect("a skill");
        assert_eq!(skill.examples, BTreeSet::from(["a.json".to_owned(), "b-c.pdf".to_owned()]));
    }
}

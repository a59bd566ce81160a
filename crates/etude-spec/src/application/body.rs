//! The Markdown body of an `APP.md`: its sections, and their statements on commands and state (C-1.5).

/// The body of a contract.
#[derive(Debug, Clone, Copy)]
pub struct Body<'b>(pub &'b str);

/// A heading with the text below it, up to the next heading of the same level or a higher one.
struct Section<'b> {
    level: usize,
    title: &'b str,
    text: &'b str,
}

/// Words in the names of options for a date or a time.
const TIMES: [&str; 10] = ["at", "cron", "date", "due", "every", "remind", "schedule", "time", "until", "when"];

impl<'b> Body<'b> {
    fn sections(self) -> Vec<Section<'b>> {
        let mut heads = Vec::new();
        let (mut at, mut in_fence) = (0, false);
        for line in self.0.split_inclusive('\n') {
            let trimmed = line.trim();
            in_fence ^= trimmed.starts_with("```") || trimmed.starts_with("~~~");
            let level = trimmed.bytes().take_while(|byte| *byte == b'#').count();
            if !in_fence && (1..=6).contains(&level) && trimmed[level..].starts_with([' ', '\t']) {
                heads.push((level, trimmed[level..].trim().trim_end_matches('#').trim(), at, at + line.len()));
            }
            at += line.len();
        }
        let end = |index: usize, level: usize| {
            let next = heads[index + 1..].iter().find(|(other, ..)| *other <= level);
            next.map_or(self.0.len(), |(_, _, start, _)| *start)
        };
        let one = |(index, head): (usize, &(usize, &'b str, usize, usize))| {
            let (level, title, _, start) = *head;
            Section { level, title, text: &self.0[start..end(index, level)] }
        };
        heads.iter().enumerate().map(one).collect()
    }

    /// Text below a heading; the title is compared without case: `Confirmations`.
    pub fn section(self, title: &str) -> Option<&'b str> {
        self.sections()
            .into_iter()
            .find(|section| section.title.eq_ignore_ascii_case(title))
            .map(|section| section.text)
    }

    /// The contract's text on a command: the subsection named for it, or else the lines that mention it.
    pub fn about_command(self, command: &str) -> Option<String> {
        let names = |title: &str| title.split(',').any(|part| part.trim().trim_matches('`') == command);
        let own = self.sections().into_iter().find(|section| section.level > 1 && names(section.title));
        if let Some(own) = own {
            return Some(own.text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        let mark = format!("`{command}");
        let lines: Vec<&str> = self.section("Commands")?.lines().filter(|line| line.contains(&mark)).collect();
        (!lines.is_empty()).then(|| lines.join("\n").trim().to_owned())
    }

    /// Files below `app/` that the section on state names in back-quotes. They may be read in place of a command
    /// (C-1.15).
    pub fn state_files(self) -> Vec<&'b str> {
        let Some(text) = self.section("State") else { return Vec::new() };
        let inside = text.split('`').skip(1).step_by(2);
        let is_file =
            |path: &&str| path.starts_with("app/") && !path.contains("..") && !path.contains(char::is_whitespace);
        inside.filter(is_file).collect()
    }

    /// The contract's text on scheduling: the section on it, if that names an option or a declared command. Otherwise,
    /// the parts of the commands' own subsections about an option for a date or a time.
    pub fn scheduling(self, commands: &[String]) -> Option<String> {
        let quoted = |text: &'b str| text.split('`').skip(1).step_by(2);
        let has_word = |text: &str, command: &str| {
            let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
            text.match_indices(command)
                .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + command.len()..].starts_with(is_part))
        };
        let names = |text: &&'b str| {
            quoted(text).any(|code| code.trim_start().starts_with("--"))
                || commands.iter().any(|command| has_word(text, command))
        };
        if let Some(text) = self.section("Scheduling").filter(names) {
            return Some(text.trim().to_owned());
        }
        let is_of_time = |word: &str| {
            let option = word.trim_start_matches(['[', '(']).strip_prefix("--");
            option.is_some_and(|option| option.split(['-', '=', ']', ')']).any(|part| TIMES.contains(&part)))
        };
        let is_own = |section: &Section<'b>| {
            let names =
                section.title.split(',').any(|part| commands.iter().any(|c| c == part.trim().trim_matches('`')));
            section.level > 1 && names && quoted(section.text).any(|code| code.split_whitespace().any(is_of_time))
        };
        let own: Vec<String> = self
            .sections()
            .into_iter()
            .filter(is_own)
            .map(|section| format!("`{}`: {}", section.title.trim_matches('`'), section.text.trim()))
            .collect();
        (!own.is_empty()).then(|| own.join("\n\n"))
    }

    /// True if the body describes the call of the program.
    pub fn documents_entry(self, entry: &str) -> bool {
        self.section("CLI").is_some() || !entry.is_empty() && self.0.contains(entry)
    }
}

/// Recommended sections that a contract lacks (C-1.5).
pub fn sections_missing(body: Body<'_>, contract: &super::Contract) -> Vec<&'static str> {
    let wanted = [
        ("Purpose", true),
        ("CLI", true),
        ("Commands", true),
        ("Output", true),
        ("State", true),
        ("Scheduling", contract.is_scheduling_supported),
        ("Confirmations", !contract.confirmation_required.is_empty()),
        ("Skills", true),
    ];
    wanted
        .into_iter()
        .filter(|(title, is_wanted)| *is_wanted && body.section(title).is_none())
        .map(|(title, _)| title)
        .collect()
}

//! The Markdown of an `APP.md`: its sections, and what they say of commands and state (C-1.5).

/// The body of a contract.
#[derive(Debug, Clone, Copy)]
pub struct Body<'b>(pub &'b str);

/// A heading with the text below it, up to the next heading of the same level or a higher one.
struct Section<'b> {
    level: usize,
    title: &'b str,
    text: &'b str,
}

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

    /// The text below a heading, in any case: `Confirmations`.
    pub fn section(self, title: &str) -> Option<&'b str> {
        self.sections()
            .into_iter()
            .find(|section| section.title.eq_ignore_ascii_case(title))
            .map(|section| section.text)
    }

    /// What the contract says of a command: the subsection named for it, else the lines that mention it.
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

    /// The files below `app/` that the section on state names in back-quotes: what may be read in place of a command
    /// (C-1.15).
    pub fn state_files(self) -> Vec<&'b str> {
        let Some(text) = self.section("State") else { return Vec::new() };
        let inside = text.split('`').skip(1).step_by(2);
        let is_file =
            |path: &&str| path.starts_with("app/") && !path.contains("..") && !path.contains(char::is_whitespace);
        inside.filter(is_file).collect()
    }

    /// True if the section on scheduling, or a command's own, names a declared command.
    pub fn documents_scheduling(self, commands: &[String]) -> bool {
        let text = self.section("Scheduling").unwrap_or_default();
        commands.iter().any(|command| text.contains(&format!("`{command}")))
    }

    /// True if the body says how the program is called.
    pub fn documents_entry(self, entry: &str) -> bool {
        self.section("CLI").is_some() || !entry.is_empty() && self.0.contains(entry)
    }
}

/// The sections that a contract should have and does not (C-1.5).
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

//! The table of targets.

mod answers;
mod cascades;
mod definitions;
mod records;
mod texts;

/// A reader of foreign input.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target and of its directory in `corpus/`.
    pub name: &'static str,
    /// Description of the input.
    pub about: &'static str,
    /// Reads one input, and panics if a promise is broken.
    pub run: fn(&[u8]),
}

/// Targets in the order of the command line; each has a corpus of the same name.
pub const TARGETS: &[Target] = &[
    target_of("answer", "what a model answers: JSON in prose, and the bodies of every provider", answers::answer),
    target_of("application", "APP.md", definitions::application),
    target_of("cascade", "skills that are tools: levels, order, chains", cascades::cascade),
    target_of("command", "command lines, as policies about commands judge them", texts::command),
    target_of("config", "etude.yaml and the files of tools/", definitions::config),
    target_of(
        "frontmatter",
        "SKILL.md: frontmatter, both profiles, the body as Claude Code renders it",
        definitions::skill,
    ),
    target_of("interpolation", "`${…}`, paths, directives and typed arguments of cascades", cascades::interpolation),
    target_of("machine", "machine.yaml and the files of its stages", definitions::machine),
    target_of("pattern", "allowed-tools and approvals, over command lines and paths", texts::pattern),
    target_of("pipeline", "pipeline.yaml with its schemas", definitions::pipeline),
    target_of("record", "bodies of journal records, signals and decisions", records::record),
    target_of("recording", "recorded answers of models", answers::recording),
    target_of("route", "requests in words, and routing tables in the cache", texts::route),
    target_of("schema", "JSON Schemas, values, and the dialects of providers", answers::schema),
    target_of("stdout", "what a step prints", answers::stdout),
    target_of("stream", "server-sent events of every provider, cut anywhere", answers::stream),
    target_of("template", "`{{…}}` of pipelines and of stages", texts::template),
    target_of("yaml", "YAML: the tree, its places, and the diagnostics as people see them", definitions::yaml),
];

const fn target_of(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run }
}

/// The target with this name; `None` if it does not exist.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Bytes as text, with invalid UTF-8 replaced: every reader of files either does the same or refuses the file before.
fn text(data: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(data)
}

/// Parts of an input, separated by lines `---8<---`.
fn parts(text: &str) -> Vec<&str> {
    text.split("\n---8<---\n").collect()
}

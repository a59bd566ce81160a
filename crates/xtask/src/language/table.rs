//! Table of the retired words. A word that a file format or a contract owns is written in backticks, and passes.

/// A word or phrase in lower case, with its replacement.
pub(super) struct Retired {
    pub(super) word: &'static str,
    pub(super) instead: &'static str,
}

const fn retired(word: &'static str, instead: &'static str) -> Retired {
    Retired { word, instead }
}

/// Retired words of identifiers.
pub(super) const IDENTIFIERS: &[Retired] = &[
    retired("told", "`emitted`, `reported` or `event`"),
    retired("tell", "`emit` or `report`"),
    retired("tells", "`emits` or `reports`"),
    retired("telling", "`emitting` or `reporting`"),
    retired("teller", "`EventSink` or `Observer`"),
    retired("hear", "`on_delta` or `observe`"),
    retired("hears", "`on_delta` or `observes`"),
    retired("heard", "`received` or `deltas`"),
    retired("hearing", "`delta_sink`"),
    retired("voices", "`stream_buffer`"),
    retired("aloud", "`streaming`"),
    retired("heed", "`handle`"),
    retired("heeds", "`handles`"),
    retired("obey", "`execute`"),
    retired("birth", "`pending_run`"),
    retired("born", "`created`"),
    retired("stillborn", "`abandoned`"),
    retired("surroundings", "`context`"),
    retired("veil", "`redactor`"),
    retired("veiled", "`redacted`"),
    retired("scrub", "`redact` or `redactor`"),
    retired("scrubbed", "`redacted`"),
    retired("scrubber", "`redactor`"),
    retired("perform", "`run` or `run_effect`"),
    retired("performed", "`executed`"),
    retired("performance", "`effect_guard`"),
    retired("spared", "`exempted`"),
    retired("sweep", "`kill_leftovers`"),
    retired("vain", "`idle_waits`"),
    retired("parked", "`suspended`"),
    retired("toolbox", "`tool_selection`"),
    retired("offer", "`tool_list`"),
    retired("offered", "`available`"),
    retired("whoever", "the subject: `caller`, `owner`, `observer`"),
    retired("nobody", "the subject, or `none`"),
    retired("anew", "`again` or `restart`"),
    retired("mend", "`fix` or `repair`"),
    retired("mended", "`fixed` or `repaired`"),
];

/// Retired names of functions: they do not say what the function does.
pub(super) const FUNCTIONS: &[Retired] = &[
    retired("made", "`new` or `build`"),
    retired("known", "`lookup` or the result's name"),
    retired("found", "`find` or the result's name"),
    retired("again", "`retry` or `restart`"),
    retired("within", "`with_*` or the result's name"),
    retired("beside", "the result's name: `siblings`, `extra_members`"),
];

/// Names of types that several crates have: a public one carries its subject.
pub(super) const BARE_TYPES: &[&str] = &["Call", "Kind", "Place", "State"];

/// Retired first words of constants, and constants of one word.
pub(super) const LIMITS: &[Retired] = &[
    retired("most", "`MAX_*`"),
    retired("longest", "`MAX_*`"),
    retired("largest", "`MAX_*`"),
    retired("deepest", "`MAX_DEPTH`"),
];

/// Retired words and phrases of comments, messages and documents.
pub(super) const PROSE: &[Retired] = &[
    retired("told", "`emitted`, `reported`, or what the reader gets: \"the model receives\""),
    retired("nobody", "the subject in the active voice, or \"no one\""),
    retired("somebody", "the subject: \"a person\", \"the user\", \"another process\""),
    retired("whoever", "the subject: \"the caller\", \"the owner\", \"anyone who\""),
    retired("anew", "\"again\" or \"restarts\""),
    retired("mend", "\"fix\""),
    retired("mends", "\"fixes\""),
    retired("mended", "\"fixed\""),
    retired("a bug of ours", "\"an internal error\""),
    retired("broke down", "\"panicked\" or \"failed\""),
    retired("could not be had", "\"is not available\" or \"cannot download\""),
    retired("cannot be had", "\"is not available\""),
    retired("without a word", "\"without output\""),
    retired("as far as", "\"if\", \"where\" or \"until\""),
    retired("so many", "\"N\" or \"the number of\""),
    retired("is to be", "\"must be\" or \"to\" with a verb"),
    retired("veil", "\"redactor\""),
    retired("scrub", "\"redact\""),
    retired("aloud", "\"streamed\""),
];

/// Identifiers that others own, with a part of the path.
pub(super) const ALLOWED: &[(&str, &str)] = &[("crates/xtask/", "told")];

/// Directories of files that a command writes for its user: they are prose whatever their names end with.
pub(super) const TEMPLATES: &[&str] = &["crates/etude-cli/src/command/new/"];

/// Paths whose prose is not checked: history, quoted requirements, prompts, and data.
pub(super) const UNREAD: &[&str] = &[
    "CHANGELOG.md",
    "docs/adr/",
    "docs/spec/",
    "acceptance/",
    "bench/",
    "examples/",
    "fuzz/",
    "crates/etude-spec/src/cascade/library/",
    "crates/etude-cli/tests/fixtures/",
    "crates/xtask/src/language",
];

//! The clauses, each in a line. The full text is the specification's; this is to find one's way.

/// A clause of the specification of pipelines.
#[derive(Debug)]
pub struct Clause {
    /// Its id.
    pub id: &'static str,
    /// What it says, in a line.
    pub says: &'static str,
    /// True if a test must hold it.
    pub must_be_held: bool,
}

const fn held(id: &'static str, says: &'static str) -> Clause {
    Clause { id, says, must_be_held: true }
}

const fn known(id: &'static str, says: &'static str) -> Clause {
    Clause { id, says, must_be_held: false }
}

/// Every clause, in order.
pub const CLAUSES: &[Clause] = &[
    held("A-1.1", "an app has `SKILL.md` or `pipelines/`; the nearest one at or above, or `--app`"),
    held(
        "A-1.2",
        "every `pipelines/*/pipeline.yaml` is found; names with `_` are not routed, constructor and destructor are picked up",
    ),
    held("A-1.3", "discovery is cheap, and a bad pipeline never hides good ones"),
    held("A-1.4", "a directory without `pipeline.yaml` is a warning"),
    held("A-2.1", "`name` is the directory's; step names are unique, well formed, and not `input`"),
    held("A-2.2", "all definition errors at once, with file, line, column, source line, rule and hint"),
    held("A-2.3", "aliases within a bound; a file over 1 MiB is refused"),
    held(
        "A-2.4",
        "short and long forms of `input`; required, defaults, undeclared ones refused, coercion by declared type",
    ),
    held("A-2.5", "`output` defaults to the last step; `steps` is not empty; `retry` is not negative"),
    held("A-3.1", "the working directory, and what paths are relative to, is the pipeline's directory"),
    held("A-3.2", "commands are split by POSIX rules and run without a shell unless they need one"),
    held(
        "A-3.3",
        "stdin and stdout are one JSON object each; anything else is shown; numbers pass unchanged; stderr is kept",
    ),
    held("A-3.4", "no deadlock with stdin; 100 MB pass with bounded memory"),
    held("A-3.5", "a non-zero exit or a signal ends the pipeline, with all facts"),
    held(
        "A-3.6",
        "process groups; `SIGTERM`, grace, `SIGKILL`; no descendant survives the run; open pipes do not delay",
    ),
    held("A-3.7", "the environment of scripts; no provider keys in it"),
    held(
        "A-4.1",
        "templates: references only, inserted as they are, never scanned again, never empty for a missing value",
    ),
    held("A-4.2", "`model` is a tier; the mapping is configuration"),
    held("A-4.3", "structured output natively or by instruction, always validated here; text without a schema"),
    held("A-4.4", "`retry` counts retries; structure and content share it; the conversation goes on"),
    held("A-4.5", "transport failures have their own bounded retries; refusals and truncation are named"),
    held("A-4.6", "render, call, structure, content, in that order"),
    held("A-4.7", "validators: how they are started, what they say, and when one is broken"),
    held("A-4.8", "exhausted retries carry every attempt; the last reason leads"),
    held("A-4.9", "usage per call, step and run; budgets end a run with their own code"),
    held("A-5.1", "constructor and destructor are pipelines; what their stdin adds"),
    held("A-5.2", "a constructor that fails: neither business nor destructor runs"),
    held("A-5.3", "the destructor runs after success, failure, cancellation, budget, and after a crash"),
    held("A-5.4", "a destructor's failure never replaces the business failure"),
    held("A-5.5", "skill mode runs without them"),
    held("A-6.1", "the routing table and the three modes of routing"),
    held("A-6.2", "parameters are taken from the request; when to fall back to skill mode"),
    held("A-6.3", "no match: skill mode, or a list of what there is"),
    held("A-6.4", "`etude route` shows the decision and runs nothing"),
    held("A-6.5", "texts in the routing prompt are data"),
    held("A-7.1", "skill mode: system prompt, tools, other skills on demand"),
    held("A-7.2", "skill mode is bounded, and journaled like any step"),
    held("A-7.3", "tool calls that change things ask for approval"),
    known("A-8.1", "`etude convert` writes an app that passes its own checks and tests"),
    known("X-1", "fields of any step: `timeout`, `when`, `for_each`, `cache`, `effects`"),
    known("X-2", "fields of code steps: `env`, `schema`, `allow_exit`, `retry`, `worker`, `sandbox`"),
    known("X-3", "further step types: `parallel`, `pipeline`, `approval` and others"),
    known("X-4", "names are unique across groups; an effect id is the whole path"),
];

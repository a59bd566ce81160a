//! Tables of the laws.

/// A ban of names from some crates.
#[derive(Debug)]
pub struct Ban {
    /// Number of the law in `ARCHITECTURE.md`.
    pub law: u8,
    /// Crates to which the ban applies.
    pub crates: Crates,
    /// Files and folders below `src` to which it applies; empty for all.
    pub below: &'static [&'static str],
    /// Files below `src` that are exempt.
    pub except: &'static [&'static str],
    /// Banned paths, with everything below them.
    pub paths: &'static [&'static str],
    /// Banned words and macros.
    pub words: &'static [&'static str],
    /// Banned parts of identifiers, in lower case.
    pub fragments: &'static [&'static str],
    /// Banned crates; `name*` stands for all with this prefix.
    pub dependencies: &'static [&'static str],
    /// Alternative, for the message.
    pub why: &'static str,
}

/// Crates to which a ban applies.
#[derive(Debug)]
pub enum Crates {
    /// Only the crates of the list.
    Only(&'static [&'static str]),
    /// All crates but those of the list.
    AllBut(&'static [&'static str]),
}

impl Ban {
    /// True if the ban applies to the crate `package`.
    pub fn applies_to(&self, package: &str) -> bool {
        match self.crates {
            Crates::Only(crates) => crates.contains(&package),
            Crates::AllBut(crates) => !crates.contains(&package),
        }
    }

    /// True if the ban applies to the file at `path` below `src`.
    pub fn covers(&self, path: &str) -> bool {
        let is_below = |part: &&str| path.strip_prefix(*part).is_some_and(|rest| rest.starts_with(['/', '.']));
        (self.below.is_empty() || self.below.iter().any(is_below)) && !self.except.contains(&path)
    }
}

/// Crates that are engines.
pub const ENGINES: &[&str] = &["etude-sqlite", "etude-postgres"];

/// An empty ban, as the base for others.
const NOTHING: Ban = Ban {
    law: 0,
    crates: Crates::Only(&[]),
    below: &[],
    except: &[],
    paths: &[],
    words: &[],
    fragments: &[],
    dependencies: &[],
    why: "",
};

const PRINTING: &[&str] = &["println!", "eprintln!", "print!", "eprint!", "dbg!"];

const NETWORK_AND_ASYNC: &[&str] = &[
    "tokio*", "futures*", "async-*", "reqwest", "hyper*", "ureq", "rustls*", "rustix", "libc", "nix", "rusqlite",
    "axum*", "mio", "smol",
];

/// Paths that a replayed machine must not name.
const IMPURE: [&str; 15] = [
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::env",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::collections::hash_map",
    "std::collections::hash_set",
    "std::hash::RandomState",
    "std::hash::DefaultHasher",
];

const IMPURE_WORDS: [&str; 8] = ["async", "await", "HashMap", "HashSet", "println!", "eprintln!", "print!", "eprint!"];

const OUTSIDE: Ban = Ban {
    law: 6,
    paths: &[
        "std::env::var", "std::env::var_os", "std::env::vars", "std::env::vars_os", "std::env::args",
        "std::env::args_os", "std::env::current_dir", "std::env::current_exe", "std::env::home_dir",
        "std::env::temp_dir", "std::process::exit", "std::process::abort", "std::process::ExitCode", "std::io::stdout",
        "std::io::stderr", "std::io::stdin",
    ],
    words: PRINTING,
    dependencies: &["clap*", "anstream", "anstyle", "indicatif", "anyhow"],
    why: "only etude-cli prints, reads the environment, and chooses exit statuses",
    ..NOTHING
};

/// Bans of the laws 1 to 6, 8, 9, 11 and 13.
pub const LAWS: &[Ban] = &[
    Ban {
        law: 1,
        crates: Crates::Only(&["etude-core"]),
        paths: &IMPURE,
        words: &IMPURE_WORDS,
        fragments: &["yaml"],
        dependencies: &["rand*", "getrandom", "uuid", "jiff", "chrono", "time", "granit-parser"],
        why: "the machine is replayed: time, ids and bytes are handed in",
        ..NOTHING
    },
    Ban {
        law: 1,
        crates: Crates::Only(&["etude-core"]),
        dependencies: NETWORK_AND_ASYNC,
        why: "nothing here waits",
        ..NOTHING
    },
    Ban {
        law: 1,
        crates: Crates::Only(&["etude-invoke"]),
        below: &["chain"],
        paths: &IMPURE,
        words: &IMPURE_WORDS,
        why: "the machine of chains waits for nothing: ends of functions and requests are handed in",
        ..NOTHING
    },
    Ban {
        law: 1,
        crates: Crates::Only(&["etude-learn"]),
        paths: &IMPURE,
        words: &IMPURE_WORDS,
        dependencies: NETWORK_AND_ASYNC,
        why: "the same traces give the same bytes: traces are handed in, candidates are handed out",
        ..NOTHING
    },
    Ban {
        law: 2,
        crates: Crates::Only(&["etude-convert", "etude-spec"]),
        paths: &[
            "std::fs", "std::net", "std::process", "std::env", "std::os", "std::time::SystemTime", "std::time::Instant",
        ],
        words: &["async", "await"],
        dependencies: NETWORK_AND_ASYNC,
        why: "definitions are read through `Sources`, by the caller",
        ..NOTHING
    },
    Ban {
        law: 3,
        crates: Crates::Only(&["etude-runtime", "etude-process"]),
        paths: &["std::io::stdout", "std::io::stderr", "std::io::stdin"],
        words: PRINTING,
        fragments: &["yaml", "sqlite", "restate"],
        dependencies: &[
            "granit-parser", "serde-saphyr", "serde_yaml*", "rusqlite", "sqlx*", "tokio-postgres", "axum*", "clap*",
            "anstream", "indicatif", "tracing-subscriber",
        ],
        why: "files, storage and faces are other crates' business",
        ..NOTHING
    },
    Ban {
        law: 4,
        crates: Crates::Only(&["etude-models"]),
        paths: &[
            "etude_core::plan", "etude_core::machine", "etude_core::effect", "etude_core::outcome",
            "etude_core::report", "etude_core::failure", "etude_runtime", "etude_spec",
        ],
        fragments: &["journal"],
        dependencies: &["rusqlite", "granit-parser"],
        why: "a provider sees `etude_core::model` and nothing of plans or journals",
        ..NOTHING
    },
    Ban {
        law: 5,
        crates: Crates::Only(ENGINES),
        paths: &["etude_core::plan", "etude_core::machine", "etude_core::template", "etude_core::condition"],
        words: &["StepKind"],
        dependencies: &["etude-spec", "etude-models"],
        why: "an engine knows effects as data and no step kinds",
        ..NOTHING
    },
    Ban {
        law: 5,
        crates: Crates::Only(&["etude-sqlite"]),
        paths: &["etude_postgres", "tokio_postgres", "etude_runtime::driver", "etude_runtime::host", "etude_process"],
        fragments: &["postgres"],
        dependencies: &["etude-postgres", "tokio-postgres"],
        why: "it keeps runs, the driver drives them",
        ..NOTHING
    },
    Ban {
        law: 5,
        crates: Crates::Only(&["etude-postgres"]),
        paths: &["etude_sqlite", "rusqlite", "etude_runtime::driver", "etude_runtime::host", "etude_process"],
        fragments: &["sqlite"],
        dependencies: &["etude-sqlite", "rusqlite"],
        why: "engines never see each other",
        ..NOTHING
    },
    Ban { crates: Crates::AllBut(&["etude-cli", "etude-fuzz", "etude-process", "xtask"]), ..OUTSIDE },
    // The variables of children are derived from those of this process.
    Ban { crates: Crates::Only(&["etude-process"]), except: &["environment.rs"], ..OUTSIDE },
    Ban {
        law: 6,
        crates: Crates::Only(&["etude-cli"]),
        except: &["render/screen.rs"],
        words: &["eprintln!", "eprint!"],
        why: "`render::say!` prints for people, and lets nothing of others steer their terminal",
        ..NOTHING
    },
    Ban {
        law: 8,
        crates: Crates::Only(&["etude-invoke"]),
        paths: &[
            "etude_core::plan", "etude_core::machine", "etude_core::report", "etude_runtime::driver",
            "etude_runtime::engine", "etude_runtime::host", "etude_runtime::memory", "etude_runtime::record",
        ],
        fragments: &["journal"],
        why: "an invocation knows tools and middleware: no plans, no journals, no command line",
        ..NOTHING
    },
    Ban {
        law: 8,
        crates: Crates::Only(&["etude-packages"]),
        paths: &[
            "etude_core::plan", "etude_core::machine", "etude_core::report", "etude_runtime::driver",
            "etude_runtime::engine", "etude_runtime::host", "etude_runtime::memory", "etude_runtime::record",
        ],
        fragments: &["journal"],
        why: "packages are found, approved and started; runs, plans and journals are their callers' business",
        ..NOTHING
    },
    Ban {
        law: 8,
        crates: Crates::Only(&["etude-request"]),
        paths: &[
            "etude_core::plan", "etude_runtime::driver", "etude_runtime::engine", "etude_runtime::memory",
            "etude_runtime::record",
        ],
        fragments: &["journal"],
        why: "a request becomes a name and an input; runs and plans are its callers' business",
        ..NOTHING
    },
    Ban {
        law: 8,
        crates: Crates::Only(&["etude-runs"]),
        paths: &["etude_runtime::driver", "etude_runtime::host", "etude_process::ProcessHost"],
        why: "a run is read, and carried to another engine; it is driven by `etude`",
        ..NOTHING
    },
    Ban {
        law: 8,
        crates: Crates::Only(&["etude-evidence"]),
        paths: &["etude_runtime::driver", "etude_process::ProcessHost", "etude_learn"],
        why: "evidence follows from files and the journal; runs, also rehearsals, are driven by `etude`",
        ..NOTHING
    },
    Ban {
        law: 8,
        crates: Crates::Only(&["etude-preview"]),
        paths: &["std::fs", "std::process", "std::env", "etude_core::machine::Machine"],
        words: &["async", "await"],
        fragments: &["journal"],
        dependencies: NETWORK_AND_ASYNC,
        why: "a preview follows from the plan and the input: nothing is run, read or asked",
        ..NOTHING
    },
    Ban {
        law: 8,
        crates: Crates::Only(&["etude-packages"]),
        except: &["applications/execute.rs", "skills/inject.rs"],
        paths: &["etude_process::ProcessHost", "etude_process::standalone", "etude_process::detached"],
        why: "a program of a package starts in two files, which look at the approval first",
        ..NOTHING
    },
    Ban {
        law: 9,
        crates: Crates::Only(&[
            "etude", "etude-evidence", "etude-invoke", "etude-packages", "etude-request", "etude-runs", "etude-spec",
            "etude-models", "etude-tools",
        ]),
        // The user's own files, which no repository names.
        except: &["ledger.rs", "cache.rs", "trust/snapshot.rs"],
        paths: &OPENING,
        why: "what a repository names may be a pipe or a device; use `etude_files::regular` or `etude_files::beneath`",
        ..NOTHING
    },
    Ban {
        law: 9,
        crates: Crates::Only(&["etude-runtime", "etude-process"]),
        // The process's own files, `/dev/null`, and directories of sandboxes.
        except: &["unix.rs", "unix/linux.rs", "unix/worker.rs", "sandbox/unix/other.rs", "blob.rs", "blob/unix.rs"],
        paths: &OPENING,
        why: "what a repository names may be a pipe or a device; use `etude_files::regular`",
        ..NOTHING
    },
    Ban {
        law: 13,
        crates: Crates::AllBut(&["etude-files"]),
        // Executable files of a new app, the directory of a sandbox, and a file that is opened without following a link.
        except: &["command/new/unix.rs", "sandbox/unix.rs", "trust/manifest/unix.rs"],
        paths: &["std::os::unix::fs::DirBuilderExt", "std::os::unix::fs::OpenOptionsExt"],
        why: "files for their owner alone are made by `etude_files::private`, and replaced by `etude_files::whole`",
        ..NOTHING
    },
    Ban {
        law: 11,
        crates: Crates::AllBut(&["etude-server"]),
        dependencies: &["maud", "askama*", "minijinja", "tera"],
        why: "HTML is made in `etude_server::page`",
        ..NOTHING
    },
    Ban {
        law: 11,
        crates: Crates::Only(&["etude-server"]),
        below: &["page"],
        paths: &[
            "etude_runtime", "etude_sqlite", "etude_spec", "crate::admission", "crate::api", "crate::app",
            "crate::automation", "crate::context", "crate::ledger", "crate::metrics", "crate::notice", "crate::result",
            "crate::run", "crate::schedule", "crate::story", "crate::tree", "crate::webhook", "crate::work",
        ],
        why: "a page reads documents of the API through `page::source`, so that it shows nothing that the API lacks",
        ..NOTHING
    },
];

/// Functions that open a file but wait for a pipe, or read a file that may have no end.
const OPENING: [&str; 3] = ["std::fs::File::open", "std::fs::read", "std::fs::read_to_string"];

/// Permitted dependencies of `etude-core`: all of them are pure.
pub const CORE_DEPENDENCIES: &[&str] = &[
    "blake3", "indexmap", "jsonschema", "percent-encoding", "regex", "serde", "serde_json", "sha2", "thiserror", "url",
];

/// Permitted dependencies of each workspace crate on others.
pub const ARROWS: &[(&str, &[&str])] = &[
    ("etude-core", &[]),
    ("etude-files", &[]),
    ("etude-spec", &["etude-core"]),
    ("etude-convert", &["etude-core", "etude-spec"]),
    // Programs that serve as models, and pip, are started like every process.
    ("etude-http", &["etude-core"]),
    ("etude-models", &["etude-core", "etude-files", "etude-http", "etude-process"]),
    ("etude-local", &["etude-core", "etude-files", "etude-http", "etude-process"]),
    ("etude-learn", &["etude-core"]),
    ("etude-route", &[]),
    ("etude-process", &["etude-core", "etude-files"]),
    ("etude-runtime", &["etude-core", "etude-process"]),
    ("etude-sqlite", &["etude-core", "etude-files", "etude-runtime"]),
    ("etude-postgres", &["etude-core", "etude-http", "etude-runtime"]),
    ("etude-otel", &["etude-core", "etude-http", "etude-runtime"]),
    ("etude-tools", &["etude-core", "etude-files", "etude-http", "etude-process", "etude-spec"]),
    (
        "etude-invoke",
        &["etude-core", "etude-files", "etude-models", "etude-process", "etude-runtime", "etude-spec", "etude-tools"],
    ),
    ("etude-packages", &["etude-core", "etude-files", "etude-invoke", "etude-process", "etude-runtime", "etude-spec"]),
    ("etude-request", &["etude-core", "etude-files", "etude-route", "etude-runtime", "etude-spec"]),
    ("etude-runs", &["etude-core", "etude-files", "etude-process", "etude-runtime", "etude-spec", "etude-tools"]),
    ("etude-evidence", &["etude-core", "etude-process", "etude-runs", "etude-runtime", "etude-spec", "etude-tools"]),
    ("etude-preview", &["etude-core", "etude-models", "etude-spec"]),
    (
        "etude",
        &[
            "etude-core", "etude-evidence", "etude-files", "etude-invoke", "etude-spec", "etude-models", "etude-local",
            "etude-packages", "etude-preview", "etude-process", "etude-request", "etude-route", "etude-runs",
            "etude-runtime", "etude-sqlite", "etude-tools",
        ],
    ),
    ("etude-mcp", &[]),
    (
        "etude-server",
        &[
            "etude", "etude-core", "etude-evidence", "etude-files", "etude-http", "etude-invoke", "etude-mcp",
            "etude-preview", "etude-process", "etude-runs", "etude-runtime", "etude-spec", "etude-sqlite",
        ],
    ),
    (
        "etude-cli",
        &[
            "etude", "etude-convert", "etude-core", "etude-evidence", "etude-files", "etude-http", "etude-invoke",
            "etude-learn", "etude-mcp", "etude-models", "etude-otel", "etude-packages", "etude-postgres",
            "etude-preview", "etude-process", "etude-request", "etude-route", "etude-runs", "etude-runtime",
            "etude-server", "etude-spec", "etude-sqlite", "etude-tools",
        ],
    ),
    (
        "etude-fuzz",
        &[
            "etude-core", "etude-models", "etude-process", "etude-route", "etude-runs", "etude-runtime", "etude-spec",
            "etude-tools",
        ],
    ),
    // A program for measurements, which is not distributed.
    (
        "etude-bench",
        &[
            "etude", "etude-core", "etude-http", "etude-models", "etude-postgres", "etude-process", "etude-runtime",
            "etude-sqlite",
        ],
    ),
    ("xtask", &[]),
];

/// Modules of `etude-spec` that are front ends beside `pipeline`, which refers to their definitions.
pub const FRONTS: &[&str] = &["application", "cascade", "stage_machine"];

/// Modules of `etude_core::machine` that are constructs: `step` creates them, and none names another.
pub const CONSTRUCTS: &[&str] = &["agent", "approval", "call", "code", "fan_out", "llm", "stages", "sub_pipeline"];

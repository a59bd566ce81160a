//! The directories of a search path on disk.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use etude_core::effect::{Command, ProcessCall, Protocol, Setting, Stdin};
use etude_core::outcome::{Exit, Stdout};
use etude_process::blob::FileBlobs;
use etude_process::sandbox::SandboxPolicy;
use etude_process::{Cancel, ChildEnvironment, HostSettings, ProcessHost, Redaction};
use etude_spec::cascade::library::Library;
use etude_spec::cascade::module::frontmatter;
use etude_spec::cascade::{LIBRARY, Roots};
use etude_spec::source::Sources;
use serde_json::Value;

use etude_tools::disk::Disk;

/// Source of the frontmatter of JavaScript modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Modules {
    /// The module's text, without running it.
    #[default]
    Read,
    /// Node, which runs the module, as for a call.
    Run,
}

/// Directories on disk, and the library.
#[derive(Debug)]
pub(crate) struct DiskRoots {
    modules: Modules,
    /// Runs modules. Started for the first one.
    processes: OnceLock<ProcessHost>,
}

/// The program that prints the frontmatter of a module.
const ASK: &str = "import(process.argv[1]).then(m => process.stdout.write(JSON.stringify(m.frontmatter ?? {})))";

/// Environment of a module whose frontmatter is read: enough to start Node, and no keys.
const KEPT: [&str; 6] = ["PATH", "HOME", "LANG", "TMPDIR", "NODE_PATH", "NVM_DIR"];

impl DiskRoots {
    pub(crate) fn new(modules: Modules) -> Self {
        Self { modules, processes: OnceLock::new() }
    }
}

/// Reads the frontmatter of a module that must not run.
fn read(path: &str) -> Result<Value, String> {
    let text = etude_files::regular::read_text(Path::new(path), crate::middleware::MAX_SIZE)
        .map_err(|error| error.to_string())?;
    frontmatter(&text).ok_or_else(|| {
        "its `frontmatter` is not a plain object, and commands that inspect skills do not run modules".to_owned()
    })
}

impl Roots for DiskRoots {
    fn open(&self, dir: &str) -> Option<Arc<dyn Sources + Send + Sync>> {
        if dir == LIBRARY {
            return Some(Arc::new(Library));
        }
        Disk::open(Path::new(dir)).ok().map(|disk| Arc::new(disk) as Arc<dyn Sources + Send + Sync>)
    }

    fn module(&self, path: &str) -> Result<Value, String> {
        if self.modules == Modules::Read {
            return read(path);
        }
        let dir = Path::new(path).parent().unwrap_or(Path::new("/"));
        let host = self.processes.get_or_init(|| {
            let settings = HostSettings {
                run_id: etude_runtime::run_id::new(),
                app_dir: dir.to_owned(),
                // Frontmatter is never long enough for the blob store.
                blobs: Arc::new(FileBlobs::new(dir.join(".etude"), false)),
            };
            let environment = ChildEnvironment::named(&KEPT);
            ProcessHost::builder(settings, environment, Redaction::NoSecrets, SandboxPolicy::Refused).build()
        });
        let words = ["node", "--input-type=module", "-e", ASK, &format!("file://{path}")].map(str::to_owned);
        let call = ProcessCall {
            command: Command::Direct(words.to_vec()),
            dir: dir.display().to_string(),
            env: Vec::new(),
            key: "frontmatter".to_owned(),
            attempt: 1,
            stdin: Stdin::default(),
            protocol: Protocol::Document,
            setting: Setting::default(),
        };
        let end = host.run(&call, &Cancel::new(), &mut |_| ()).map_err(|_| "it was stopped".to_owned())?;
        match (&end.exit, &end.stdout) {
            (Exit::Status(0), Stdout::Value(json)) => json.value().map_err(|error| error.to_string()),
            (Exit::Status(0), Stdout::Unusable { problem, .. }) => {
                Err(format!("its frontmatter is not JSON: {problem}"))
            }
            (Exit::NotStarted(why), _) => Err(why.clone()),
            _ => {
                let stderr = &end.stderr.tail;
                let line = stderr.lines().find(|line| line.contains("Error")).or_else(|| stderr.lines().last());
                Err(line.unwrap_or("it exited without output").trim().to_owned())
            }
        }
    }
}

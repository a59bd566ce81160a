//! The directories of a search path on disk.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use etude_spec::cascade::library::Library;
use etude_spec::cascade::{LIBRARY, Roots};
use etude_spec::source::Sources;
use serde_json::Value;

use crate::disk::Disk;

/// Directories on disk, and the library.
#[derive(Debug, Default)]
pub(crate) struct DiskRoots;

/// What asks a module for its frontmatter.
const ASK: &str = "import(process.argv[1]).then(m => process.stdout.write(JSON.stringify(m.frontmatter ?? {})))";

impl Roots for DiskRoots {
    fn open(&self, dir: &str) -> Option<Arc<dyn Sources + Send + Sync>> {
        if dir == LIBRARY {
            return Some(Arc::new(Library));
        }
        Disk::open(Path::new(dir)).ok().map(|disk| Arc::new(disk) as Arc<dyn Sources + Send + Sync>)
    }

    fn module(&self, path: &str) -> Result<Value, String> {
        let output = Command::new("node")
            .args(["--input-type=module", "-e", ASK, &format!("file://{path}")])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("`node` cannot be started: {error}"))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let line = stderr.lines().find(|line| line.contains("Error")).or_else(|| stderr.lines().last());
            return Err(line.unwrap_or("it ended without a word").trim().to_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("its frontmatter is not JSON: {error}"))
    }
}

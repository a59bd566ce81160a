//! Time of checking a thousand skills, compared with reading their files. Both alternate, so that they meet the same
//! noise. The result is the ratio of the medians, and the target is three. `cargo bench -p etude-spec`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use etude_spec::cascade::library::Library;
use etude_spec::cascade::search::{Cache, Catalog};
use etude_spec::cascade::{LIBRARY, Overrides, PathEntry, Roots, Scope, Strategy, check};
use etude_spec::source::{Entry, FileKind, ReadFailure, Sources};
use serde_json::{Value, json};

struct Files(PathBuf);

impl Sources for Files {
    fn read(&self, path: &str, _: u64) -> Result<Vec<u8>, ReadFailure> {
        fs::read(self.0.join(path)).map_err(|error| ReadFailure::Other(error.to_string()))
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure> {
        let entries = fs::read_dir(self.0.join(dir)).map_err(|error| ReadFailure::Other(error.to_string()))?;
        let entry = |entry: fs::DirEntry| {
            let kind = entry.file_type().ok()?;
            let kind = if kind.is_dir() { FileKind::Dir } else { FileKind::File { executable: false } };
            Some(Entry { name: entry.file_name().into_string().ok()?, kind })
        };
        Ok(entries.flatten().filter_map(entry).collect())
    }

    fn kind(&self, _: &str) -> Result<FileKind, ReadFailure> {
        Err(ReadFailure::Missing)
    }
}

struct Disk;

impl Roots for Disk {
    fn open(&self, dir: &str) -> Option<Arc<dyn Sources + Send + Sync>> {
        if dir == LIBRARY {
            return Some(Arc::new(Library));
        }
        Path::new(dir).is_dir().then(|| Arc::new(Files(dir.into())) as Arc<dyn Sources + Send + Sync>)
    }

    fn module(&self, _: &str) -> Result<Value, String> {
        Err("none here".to_owned())
    }
}

fn write_skills(dir: &Path) {
    fs::create_dir_all(dir.join("skills")).expect("a directory can be made");
    let main =
        "---\nname: app\nmetadata:\n  role: main\n  paths: [./skills]\n  model: {id: m1}\n  limit: {rpm: 3}\n---\n";
    fs::write(dir.join("app.skill.md"), main).expect("a file can be written");
    fs::write(dir.join("skills/limit.skill.md"), "---\nname: limit\nmetadata: {role: middleware}\n---\n")
        .expect("written");
    for n in 0..1_000 {
        let parent = if n % 3 == 0 { "  $inherit: skill-1\n".to_owned() } else { String::new() };
        let parent = if n == 0 { String::new() } else { parent };
        let text = format!(
            "---\nname: skill-{n}\ndescription: Does the thing number {n}.\nallowed-tools: file-* shell(cmd=ls)\nmetadata:\n{parent}  \
             params:\n    type: object\n    required: [who]\n    properties:\n      who: {{type: string}}\n  include: notes-{n}.md\n  \
             tags: [a, b]\n---\n\n{}\n",
            "Some instructions of a usual length, line by line, for a model that reads them.\n".repeat(20)
        );
        fs::write(dir.join(format!("skills/skill-{n}.skill.md")), text).expect("a file can be written");
    }
}

/// Number of measurements of each.
const ROUNDS: usize = 31;

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn read_all(dir: &Path) {
    let entries = fs::read_dir(dir.join("skills")).expect("it is there").flatten();
    let bytes: usize = entries.map(|entry| fs::read(entry.path()).map_or(0, |bytes| bytes.len())).sum();
    assert!(bytes > 1_000_000);
}

fn main() {
    let dir = std::env::temp_dir().join(format!("etude-skills-{}", std::process::id()));
    write_skills(&dir);
    let cwd = dir.display().to_string();
    let entries = PathEntry::bootstrap();
    let (mut reading, mut searching, mut checking) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        reading.push(timed(|| read_all(&dir)));
        let mut catalog = Catalog::default();
        let searched = timed(|| catalog = Catalog::search(&Disk, &cwd, &entries, &mut Cache::checking()));
        let config = json!({"cwd": cwd, "library": LIBRARY});
        let checked = timed(|| {
            let scope = Scope::new(config, Strategy::default(), Overrides::default(), "");
            let all = catalog.list();
            let found = check(&catalog, &scope, &all);
            assert!(found.is_empty() && all.len() > 1_000, "{found:?} {:?}", catalog.diagnostics);
        });
        searching.push(searched);
        checking.push(searched + checked);
    }
    let [reading, searching, checking] = [reading, searching, checking].map(median);
    println!(
        "reading: {reading:.1} ms; search: {searching:.1} ms ({:.2} times); search and all chains: {checking:.1} ms ({:.2} \
         times)",
        searching / reading,
        checking / reading
    );
    fs::remove_dir_all(&dir).expect("it can be removed");
}

//! The recordings of a provider: loaded at the first call, and extended by new ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use etude_core::model::{ModelResponse, Request};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::format::{FORMAT, RecordedResponse, Recording};
use super::nearest::{Fields, fields, matches};
use super::{read, write};
use crate::image::Images;
use etude_files::beneath::{self, Root, Unresolved};
use etude_files::regular;
use etude_files::whole::{self, Access, Durability};

/// Maximum size of a file of recordings, in bytes.
const MAX_SIZE: u64 = 256 << 20;

/// Path of the recordings, and the loaded ones.
pub(crate) struct Recordings {
    path: PathBuf,
    /// Directory of the app that names the path: no file outside of it is read or written.
    app: Option<PathBuf>,
    loaded: OnceCell<Mutex<Vec<Kept>>>,
    /// Held while a recording is written.
    writing: Mutex<()>,
}

struct Kept {
    recording: Recording,
    /// Number of its responses that were given.
    given: usize,
}

impl Recordings {
    pub(crate) fn new(path: PathBuf, app: Option<PathBuf>) -> Self {
        Self { path, app, loaded: OnceCell::new(), writing: Mutex::new(()) }
    }

    /// `path` without links. If an app names it, it must lead to a place in the app.
    fn real(&self, path: &Path) -> Result<PathBuf, String> {
        let Some(app) = &self.app else { return Ok(path.to_owned()) };
        let refused = |why: String| format!("recording `{}` cannot be used: {why}", path.display());
        let root = Root::open(app).map_err(|error| refused(error.to_string()))?;
        let absolute = std::path::absolute(path).map_err(|error| refused(error.to_string()))?;
        let spot = beneath::resolve(std::slice::from_ref(&root), &absolute).map_err(|why| match why {
            Unresolved::Outside(_) => refused("the app names it, and it leads out of the app".to_owned()),
            why => refused(why.to_string()),
        })?;
        Ok(root.real().join(spot.below()))
    }

    /// The path, for messages.
    pub(crate) fn place(&self) -> String {
        self.path.display().to_string()
    }

    /// The next recorded response to a request, or the reason why there is none. The outer error is a recording that cannot be
    /// read.
    pub(crate) async fn find(&self, asked: &Fields) -> Result<Result<RecordedResponse, String>, String> {
        let mut kept = self.kept().await?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(found) = kept.iter_mut().find(|one| matches(&one.recording.fields, asked)) {
            let last = found.recording.responses.len() - 1;
            let response = found.recording.responses[found.given.min(last)].clone();
            found.given += 1;
            return Ok(Ok(response));
        }
        let recordings: Vec<Recording> = kept.iter().map(|one| one.recording.clone()).collect();
        Ok(Err(super::nearest::miss(&recordings, asked, &self.place())))
    }

    /// Records the response of another model.
    pub(crate) async fn add(&self, request: &Request, images: &Images, response: &ModelResponse) -> Result<(), String> {
        let digests = digests(images);
        let value = write::write(request, &digests, response);
        let fields = fields(request, &digests);
        let source = self.write(request, &value, &fields)?;
        let recorded = read::read(&pretty(&value), &source)?;
        let mut kept = self.kept().await?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.extend(recorded.into_iter().map(|recording| Kept { recording, given: 1 }));
        Ok(())
    }

    /// Writes a recording and returns the name of its file. Other writers wait, because each extends the current content of
    /// the file.
    fn write(&self, request: &Request, value: &Value, fields: &Fields) -> Result<String, String> {
        let _writing = self.writing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Whether the path names a file or a directory is asked inside the app only.
        self.real(&self.path)?;
        let (source, text) = if self.path.is_file() || self.path.extension().is_some_and(|ext| ext == "json") {
            (file_name(&self.path), self.extended(value)?)
        } else {
            let hash = blake3::hash(format!("{fields:?}").as_bytes()).to_hex();
            (format!("{}-{}.json", request.tier, &hash[..12]), pretty(value))
        };
        let file = if file_name(&self.path) == source { self.path.clone() } else { self.path.join(&source) };
        replace(&self.real(&file)?, &text)
            .map_err(|error| format!("recording `{}` cannot be written: {error}", file.display()))?;
        Ok(source)
    }

    /// The text of the single file with one more recording.
    fn extended(&self, value: &Value) -> Result<String, String> {
        let mut recordings = match read_text(&self.real(&self.path)?) {
            Ok(text) => match serde_json::from_str(&text) {
                Ok(Value::Object(mut object)) => match object.shift_remove("recordings") {
                    Some(Value::Array(all)) => all,
                    _ => vec![Value::Object(object)],
                },
                _ => return Err(format!("recording `{}` is not a JSON object", self.place())),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(format!("recording `{}` cannot be read: {error}", self.place())),
        };
        recordings.push(value.clone());
        for object in recordings.iter_mut().filter_map(Value::as_object_mut) {
            object.shift_remove("format");
        }
        Ok(pretty(&json!({ "format": FORMAT, "recordings": recordings })))
    }

    /// Reads all recordings, in the order of file names. A path that does not exist yet has none.
    fn load(&self) -> Result<Vec<Recording>, String> {
        let unreadable = |path: &Path, why: String| format!("recording `{}` cannot be read: {why}", path.display());
        let path = self.real(&self.path)?;
        let mut files = Vec::new();
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&self.path, error.to_string())),
            Ok(found) if found.is_dir() => {
                for entry in std::fs::read_dir(&path).map_err(|error| unreadable(&self.path, error.to_string()))? {
                    let name = entry.map_err(|error| unreadable(&self.path, error.to_string()))?.file_name();
                    let file = self.path.join(name);
                    if file.extension().is_some_and(|extension| extension == "json") {
                        files.push(file);
                    }
                }
            }
            Ok(_) => files.push(self.path.clone()),
        }
        files.sort();
        let mut recordings = Vec::new();
        for file in files {
            let text = read_text(&self.real(&file)?).map_err(|error| unreadable(&file, error.to_string()))?;
            recordings.extend(read::read(&text, &file_name(&file)).map_err(|why| unreadable(&file, why))?);
        }
        Ok(recordings)
    }

    async fn kept(&self) -> Result<&Mutex<Vec<Kept>>, String> {
        let load = || async {
            let recordings = self.load()?;
            let kept = recordings.into_iter().map(|recording| Kept { recording, given: 0 });
            Ok(Mutex::new(kept.collect()))
        };
        self.loaded.get_or_try_init(load).await
    }
}

pub(crate) fn digests(images: &Images) -> BTreeMap<String, String> {
    images.iter().map(|(path, image)| (path.clone(), image.digest.clone())).collect()
}

/// Replaces a file of recordings. Others may read it, because it belongs to the project.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    whole::replace(file, text.as_bytes(), Access::Mask, Durability::Process)
}

fn read_text(path: &Path) -> std::io::Result<String> {
    let bytes = regular::read(path, MAX_SIZE)?;
    String::from_utf8(bytes).map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8"))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

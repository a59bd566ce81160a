//! Image files of a conversation, read once per call.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use etude_core::model::{Part, Request};

use etude_files::beneath::{self, Root, Unresolved};
use etude_files::regular;

/// Maximum size of an image in bytes. Providers refuse larger ones with less clear messages.
const MAX_BYTES: u64 = 20 * 1024 * 1024;

/// An image in the form in which providers receive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) media_type: &'static str,
    pub(crate) base64: String,
    /// Hash of the file, in hexadecimal.
    pub(crate) digest: String,
}

impl Image {
    pub(crate) fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.base64)
    }
}

/// Images by their path in the request.
pub(crate) type Images = BTreeMap<String, Image>;

/// Reads every image of `request`. The error is a sentence.
pub(crate) async fn load(request: &Request, app_dir: &Path) -> Result<Images, String> {
    let mut images = Images::new();
    for part in request.messages.iter().flat_map(|message| &message.parts) {
        if let Part::Image { path } = part
            && !images.contains_key(path)
        {
            images.insert(path.clone(), read(app_dir, path).await?);
        }
    }
    Ok(images)
}

async fn read(app_dir: &Path, path: &str) -> Result<Image, String> {
    let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside || path.is_empty() {
        return Err(format!("image `{path}` is not inside the app; give a path relative to the app's directory"));
    }
    let app = app_dir.to_owned();
    let relative = path.to_owned();
    // The same open file is checked and sent: a link that is swapped meanwhile leads nowhere else.
    let read = tokio::task::spawn_blocking(move || {
        let root = Root::open(&app).map_err(Unresolved::Failed)?;
        let (file, _) = beneath::open_file(&[root], &app.join(relative))?;
        let size = file.metadata().map_err(Unresolved::Failed)?.len();
        let bytes = if size > MAX_BYTES {
            Vec::new()
        } else {
            regular::read_from(file, MAX_BYTES).map_err(Unresolved::Failed)?
        };
        Ok((size, bytes))
    });
    let (size, bytes) =
        read.await.map_err(|error| Unresolved::Failed(std::io::Error::other(error))).flatten().map_err(
            |why| match why {
                Unresolved::Outside(_) => {
                    format!("image `{path}` is a symbolic link that leads out of the app; only files of the app are sent to providers")
                }
                why => format!("image `{path}` cannot be read: {why}"),
            },
        )?;
    if size > MAX_BYTES {
        return Err(format!("image `{path}` has {size} bytes; providers take at most {MAX_BYTES} bytes"));
    }
    let media_type =
        media_type(&bytes).ok_or_else(|| format!("image `{path}` is not a PNG, JPEG, GIF or WebP file"))?;
    Ok(Image { media_type, base64: STANDARD.encode(&bytes), digest: blake3::hash(&bytes).to_hex().to_string() })
}

/// The media type by the first bytes, since file names are unreliable.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

//! Image files of a conversation, read once per call.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use etude_core::model::{Part, Request};

use crate::regular;

/// Providers refuse larger images; a clear message beats theirs.
const LARGEST_BYTES: u64 = 20 * 1024 * 1024;

/// An image as it is sent.
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

/// Images by the path that the request has for them.
pub(crate) type Images = BTreeMap<String, Image>;

/// Reads every image of `request`. The failure is a sentence.
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
    let unreadable = |error: std::io::Error| format!("image `{path}` cannot be read: {error}");
    let (app, file) = (app_dir.to_owned(), app_dir.join(path));
    let found = tokio::task::spawn_blocking(move || {
        // A link inside the app may lead out of it.
        let (app, file) = (app.canonicalize()?, file.canonicalize()?);
        let size = file.metadata()?.len();
        Ok((
            file.starts_with(app),
            size,
            if size > LARGEST_BYTES { Vec::new() } else { regular::read(&file, LARGEST_BYTES)? },
        ))
    });
    let (inside, size, bytes) = found.await.map_err(std::io::Error::other).flatten().map_err(unreadable)?;
    if !inside {
        return Err(format!("image `{path}` is a link that leads out of the app; providers get files of the app only"));
    }
    if size > LARGEST_BYTES {
        return Err(format!("image `{path}` has {size} bytes; providers take at most {LARGEST_BYTES} bytes"));
    }
    let media_type =
        media_type(&bytes).ok_or_else(|| format!("image `{path}` is not a PNG, JPEG, GIF or WebP file"))?;
    Ok(Image { media_type, base64: STANDARD.encode(&bytes), digest: blake3::hash(&bytes).to_hex().to_string() })
}

/// What the first bytes say, since names lie.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

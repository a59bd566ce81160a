//! Download of a file from a web server, with continuation after an interruption.

use std::time::Duration;

use etude_core::service_url::{ServiceUrl, redact};
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Response, StatusCode, Url};

use super::partial::Partial;
use super::{Failure, Progress};

/// Maximum silence of the server.
const SILENCE: Duration = Duration::from_secs(60);

/// Downloads `url`, which has `size` bytes, into `partial`.
pub(super) fn fetch(
    url: &str,
    size: u64,
    partial: &mut Partial,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Source(format!("cannot start the download: {error}")))?;
    runtime.block_on(download(url, size, partial, progress))
}

async fn download(
    url: &str,
    size: u64,
    partial: &mut Partial,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Failure> {
    if partial.len() >= size {
        return Ok(());
    }
    let failed = |error: reqwest::Error| {
        let way = if error.is_connect() { etude_http::environment::way_to(url) } else { String::new() };
        Failure::Source(format!("{}{way}", plain(&error)))
    };
    let source = Url::parse(url).map_err(|error| Failure::Source(format!("{}: {error}", ServiceUrl::from(url))))?;
    // A hub redirects to the storage of its files. Nothing in the request is secret.
    let settings = |client: ClientBuilder| {
        client.redirect(Policy::limited(10)).connect_timeout(Duration::from_secs(15)).read_timeout(SILENCE)
    };
    let client = etude_http::client(&source, settings).map_err(Failure::Source)?;
    let from = partial.len();
    let request = client.get(url);
    let request = if from > 0 { request.header(RANGE, format!("bytes={from}-")) } else { request };
    let mut response = request.send().await.map_err(failed)?;
    match response.status() {
        StatusCode::OK => partial.cut(0)?,
        StatusCode::PARTIAL_CONTENT if starts_at(&response, from) => {}
        StatusCode::PARTIAL_CONTENT => {
            return Err(Failure::Source("the server sent a different byte range than requested".into()));
        }
        status => {
            let way = etude_http::environment::way_back(url);
            return Err(Failure::Source(format!("{} answered {status}{way}", ServiceUrl::from(url))));
        }
    }
    while let Some(bytes) = response.chunk().await.map_err(failed)? {
        if partial.len() + bytes.len() as u64 > size {
            return Err(Failure::Source(format!("{} has more than {size} bytes", ServiceUrl::from(url))));
        }
        partial.append(&bytes)?;
        progress(Progress::Bytes { done: partial.len(), total: size });
    }
    if partial.len() < size {
        let missing = size - partial.len();
        return Err(Failure::Source(format!(
            "the connection closed {missing} bytes early; run the command again to resume"
        )));
    }
    Ok(())
}

fn starts_at(response: &Response, from: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    range.starts_with(&format!("bytes {from}-"))
}

/// The innermost cause: the outer ones repeat the URL.
fn plain(error: &reqwest::Error) -> String {
    redact(&etude_http::root_cause(error))
}

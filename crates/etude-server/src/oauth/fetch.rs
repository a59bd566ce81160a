//! Download of an issuer's keys, at the URL in its metadata (RFC 8414, OpenID Connect Discovery).

use std::time::Duration;

use etude_core::service_url::is_loopback;
use http::header::ACCEPT;
use reqwest::{Client, Url};

use super::keys::Keys;
use super::wire::Metadata;

/// Time limit of all requests together.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a document of an issuer, in bytes.
const MAX_DOCUMENT: usize = 1024 * 1024;

/// The response to a request.
enum Answer {
    Document(Vec<u8>),
    Status(u16),
}

/// The current keys of an issuer.
///
/// # Errors
/// The reason why there are none, as one line without any part of a token.
pub(super) async fn keys(issuer: &str) -> Result<Keys, String> {
    let read = tokio::time::timeout(TIMEOUT, read(issuer)).await;
    read.unwrap_or_else(|_| Err(format!("no response within {} s", TIMEOUT.as_secs())))
}

async fn read(issuer: &str) -> Result<Keys, String> {
    let url = Url::parse(issuer).map_err(|error| error.to_string())?;
    let keys = place_of_keys(issuer, &url).await?;
    match get(&client(&keys)?, &keys).await? {
        Answer::Document(bytes) => Keys::parse(&bytes),
        Answer::Status(status) => Err(format!("its keys are not available: status {status}")),
    }
}

/// The URL of the keys of an issuer.
async fn place_of_keys(issuer: &str, url: &Url) -> Result<Url, String> {
    let client = client(url)?;
    for place in places(url) {
        let bytes = match get(&client, &place).await? {
            Answer::Document(bytes) => bytes,
            Answer::Status(status @ 500..) => return Err(format!("its metadata is not available: status {status}")),
            Answer::Status(_) => continue,
        };
        // A page that reports a missing document may have the status 200.
        let Ok(Metadata { issuer: own, jwks_uri: Some(keys) }) = serde_json::from_slice(&bytes) else { continue };
        if own != issuer {
            return Err("its metadata names another issuer".to_owned());
        }
        let keys = Url::parse(&keys).map_err(|_| "`jwks_uri` of its metadata is not a URL".to_owned())?;
        return match keys.scheme() {
            "https" => Ok(keys),
            "http" if is_loopback(&keys) && is_loopback(url) => Ok(keys),
            _ => Err("`jwks_uri` of its metadata is not `https`".to_owned()),
        };
    }
    Err("it has no metadata with `jwks_uri`".to_owned())
}

/// The possible URLs of the metadata of an issuer, in the order of the lookup. The path of the issuer comes after the well-known
/// part (RFC 8414, 3.1), and before it in pure OpenID Connect.
fn places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let all = [
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
        format!("{path}/.well-known/openid-configuration"),
    ];
    let mut places: Vec<Url> = Vec::new();
    for path in all {
        let mut place = issuer.clone();
        place.set_path(&path);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// A client that follows no redirect.
fn client(url: &Url) -> Result<Client, String> {
    etude_http::client(url, |client| client.timeout(TIMEOUT))
}

async fn get(client: &Client, url: &Url) -> Result<Answer, String> {
    let failed = |error: reqwest::Error| {
        let way = if error.is_connect() { etude_http::environment::way_to(url.as_str()) } else { String::new() };
        format!("{}{way}", etude_http::root_cause(&error))
    };
    let mut response = client.get(url.clone()).header(ACCEPT, "application/json").send().await.map_err(failed)?;
    let status = response.status();
    if !status.is_success() {
        return Ok(Answer::Status(status.as_u16()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_DOCUMENT {
            return Err("one of its documents has more than 1 MiB".to_owned());
        }
    }
    Ok(Answer::Document(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8414, 3.1: the path of an issuer comes after the well-known part. OpenID Connect has it before.
    #[test]
    fn metadata_are_looked_for_by_the_path_of_the_issuer() {
        let of = |issuer: &str| {
            let places = places(&Url::parse(issuer).expect("a URL"));
            places.into_iter().map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(
            of("https://id.example/realms/a/"),
            [
                "https://id.example/.well-known/oauth-authorization-server/realms/a",
                "https://id.example/.well-known/openid-configuration/realms/a",
                "https://id.example/realms/a/.well-known/openid-configuration",
            ]
        );
        for issuer in ["https://id.example:8443", "https://id.example:8443/"] {
            assert_eq!(
                of(issuer),
                [
                    "https://id.example:8443/.well-known/oauth-authorization-server",
                    "https://id.example:8443/.well-known/openid-configuration",
                ]
            );
        }
    }
}

//! The list of models that a server has.

use etude_core::tree;
use reqwest::Url;

use crate::transport::{client_for, read};

/// Names of the models of an OpenAI-compatible server, as `GET {base_url}/models` lists them. `None` if there is no response,
/// or another one. For servers on the user's own machine: no key is sent.
pub async fn list_models(base_url: &str) -> Option<Vec<String>> {
    let url = Url::parse(&format!("{}/models", base_url.trim_end_matches('/'))).ok()?;
    let response = client_for(&url).ok()?.get(url).send().await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let body = tree::parse_response(read(response).await.ok()?).ok()?;
    let models = body.get("data")?.as_array()?;
    Some(models.iter().filter_map(|model| model.get("id")?.as_str().map(str::to_owned)).collect())
}

//! Export of spans over HTTP. Errors here never affect a run.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, StatusCode, Url};
use tokio::task::JoinHandle;

use crate::otlp;
use crate::settings::Settings;
use crate::span::Span;

/// Maximum number of attempts of an export, if the server's status allows another attempt.
const TRIES: u32 = 3;

/// Pause before the second attempt; it grows with each further attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// Message for a request that cannot be built.
const MALFORMED: &str = "`OTEL_EXPORTER_OTLP_ENDPOINT` must be like `http://localhost:4318`, headers like `name=value`";

/// Message for a request that did not reach the server.
const UNCONNECTED: &str = "no connection: the collector does not respond, or its certificate is not trusted";

/// Exporter of the spans of one trace; it sends in the background.
#[derive(Debug)]
pub(crate) struct Exporter {
    settings: Arc<Settings>,
    trace: String,
    client: Result<Client, String>,
    under_way: Vec<JoinHandle<Result<(), String>>>,
}

impl Exporter {
    pub(crate) fn new(settings: Arc<Settings>, trace: String) -> Self {
        let url = Url::parse(&settings.endpoint).map_err(|_| MALFORMED.to_owned());
        let client = url.and_then(|url| etude_http::client(&url, |client| client.timeout(settings.timeout)));
        Self { settings, trace, client, under_way: Vec::new() }
    }

    /// Starts an export and returns at once. Must be called within a Tokio runtime.
    pub(crate) fn send(&mut self, spans: &[Span]) {
        let Ok(client) = self.client.clone() else { return };
        let (settings, body) =
            (Arc::clone(&self.settings), otlp::request(&self.settings, &self.trace, spans).to_string());
        self.under_way.push(tokio::spawn(async move { post(&client, &settings, &body).await }));
    }

    /// Waits until everything is sent.
    ///
    /// # Errors
    /// The first error of an export, or a timeout.
    pub(crate) async fn close(self) -> Result<(), String> {
        let mut first = self.client.map(drop);
        let all = async {
            for sending in self.under_way {
                let sent = sending.await.unwrap_or_else(|error| Err(error.to_string()));
                first = std::mem::replace(&mut first, Ok(())).and(sent);
            }
        };
        let ended = tokio::time::timeout(self.settings.timeout, all).await;
        ended.map_err(|_| "the export timed out".to_owned()).and(first)
    }
}

async fn post(client: &Client, settings: &Settings, body: &str) -> Result<(), String> {
    let mut tried = 0;
    loop {
        tried += 1;
        let mut request = client.post(&settings.endpoint).header("content-type", "application/json");
        for (name, value) in &settings.headers {
            request = request.header(name.as_str(), value.as_str());
        }
        let (why, may_be_tried) = match request.body(body.to_owned()).send().await {
            Ok(response) if response.status().is_success() => return Ok(()),
            Ok(response) => {
                let status = response.status();
                let later = [
                    StatusCode::TOO_MANY_REQUESTS,
                    StatusCode::BAD_GATEWAY,
                    StatusCode::SERVICE_UNAVAILABLE,
                    StatusCode::GATEWAY_TIMEOUT,
                ];
                (format!("it answers {status}"), later.contains(&status))
            }
            Err(error) if error.is_builder() => (MALFORMED.to_owned(), false),
            Err(error) if error.is_connect() => (UNCONNECTED.to_owned(), true),
            // The URL may hold a key, and the error is clear without it.
            Err(error) => (error.without_url().to_string(), false),
        };
        if !may_be_tried || tried == TRIES {
            return Err(why);
        }
        tokio::time::sleep(PAUSE * tried).await;
    }
}

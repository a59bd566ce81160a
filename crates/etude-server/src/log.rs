//! The request log.

use std::time::Duration;

use serde_json::{Value, json};

/// A line of the request log.
#[derive(Debug, Clone)]
pub struct LogLine {
    /// Arrival of the request, in milliseconds since 1970.
    pub at_ms: i64,
    /// The `request_id` of error documents; generated for each request.
    pub request_id: String,
    /// The HTTP method, such as `GET`.
    pub method: String,
    /// The pattern of the matched route; `None` if no route has the path.
    pub route: Option<&'static str>,
    /// The status of the response; 499 if the client disconnected before there was one.
    pub status: u16,
    /// The problem code of the response; `None` if the response is not a problem.
    pub code: Option<&'static str>,
    /// The name of the caller's token.
    pub token: Option<String>,
    /// The time until the response began.
    pub took: Duration,
}

impl LogLine {
    /// The line as a document. It has no query, no body and no secret.
    pub fn to_json(&self) -> Value {
        let mut line = json!({
            "at": etude_runtime::clock::rfc3339(self.at_ms), "request_id": self.request_id, "method": self.method,
            "route": self.route, "status": self.status, "token": self.token,
            "duration_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        });
        if let Some(code) = self.code {
            line["code"] = code.into();
        }
        line
    }
}

/// Receiver of the lines of the request log.
pub type Log = Box<dyn Fn(&LogLine) + Send + Sync>;

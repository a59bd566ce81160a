//! Settings from the environment variables that OpenTelemetry specifies.

use std::time::Duration;

use percent_encoding::percent_decode_str;

/// Timeout of an export unless the environment sets one.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Destination of spans, and the attributes that every export carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// URL of the trace endpoint: `http://localhost:4318/v1/traces`.
    pub endpoint: String,
    /// Headers of each request, such as a key. This crate never prints them.
    pub headers: Vec<(String, String)>,
    /// `service.name`.
    pub service: String,
    /// Further attributes of the resource.
    pub resource: Vec<(String, String)>,
    /// Timeout of one export.
    pub timeout: Duration,
    /// Exports tool arguments and model completions as attributes, too. Off by default, because they may hold anything.
    pub captures_content: bool,
    /// Trace and span that runs belong to, as 32 and 16 hexadecimal digits: `TRACEPARENT`.
    pub parent: Option<(String, String)>,
}

/// Variables that hold the headers of exports; the first one that is set counts.
pub const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

impl Settings {
    /// Reads the settings from variables through `lookup`; `None` if no endpoint is set or export is disabled.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let text = |name: &str| lookup(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let is_true = |name: &str| text(name).is_some_and(|text| text.eq_ignore_ascii_case("true") || text == "1");
        if is_true("OTEL_SDK_DISABLED") || text("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter == "none") {
            return None;
        }
        let endpoint = match text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(whole) => whole,
            None => format!("{}/v1/traces", text("OTEL_EXPORTER_OTLP_ENDPOINT")?.trim_end_matches('/')),
        };
        let mut resource = pairs(&text("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        let named = resource.iter().position(|(name, _)| name == "service.name").map(|at| resource.remove(at).1);
        let timeout = text("OTEL_EXPORTER_OTLP_TIMEOUT").and_then(|text| text.parse().ok());
        Some(Self {
            endpoint,
            headers: headers(lookup),
            service: text("OTEL_SERVICE_NAME").or(named).unwrap_or_else(|| "etude".to_owned()),
            resource,
            timeout: timeout.map_or(TIMEOUT, Duration::from_millis),
            captures_content: is_true("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"),
            parent: text("TRACEPARENT").and_then(|text| parent(&text)),
        })
    }

    /// The same settings with `traceparent` as the parent; an invalid one is ignored.
    pub fn below(self, traceparent: &str) -> Self {
        Self { parent: parent(traceparent).or(self.parent), ..self }
    }
}

/// The headers of exports, such as the key of the collector.
pub fn headers(lookup: &dyn Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let text = HEADERS.iter().find_map(|name| lookup(name).filter(|text| !text.trim().is_empty()));
    pairs(&text.unwrap_or_default())
}

/// Parses `a=1,b=two%20words`.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().to_owned(), percent_decode_str(value.trim()).decode_utf8_lossy().into_owned()))
    };
    text.split(',').filter_map(pair).filter(|(name, _)| !name.is_empty()).collect()
}

/// Trace and span id of `00-TRACE-SPAN-FLAGS` (W3C Trace Context).
fn parent(text: &str) -> Option<(String, String)> {
    let mut parts = text.split('-');
    let (_, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let is_id = |id: &str, length: usize| {
        id.len() == length && id.bytes().all(|byte| byte.is_ascii_hexdigit()) && id.bytes().any(|byte| byte != b'0')
    };
    (is_id(trace, 32) && is_id(span, 16)).then(|| (trace.to_lowercase(), span.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(variables: &[(&str, &str)]) -> Option<Settings> {
        Settings::read(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    /// Nothing is sent without an endpoint or with `OTEL_SDK_DISABLED`.
    #[test]
    fn nothing_is_sent_unless_somebody_says_where() {
        assert_eq!(read_from(&[]), None);
        assert_eq!(read_from(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), None);
        assert_eq!(read_from(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"), ("OTEL_SDK_DISABLED", "true")]), None);
        assert_eq!(read_from(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"), ("OTEL_TRACES_EXPORTER", "none")]), None);
    }

    /// Variables mean what OpenTelemetry says.
    #[test]
    fn variables_mean_what_opentelemetry_says() {
        let found = read_from(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b,x=1"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,team=t%c3%a4"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("TRACEPARENT", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"),
        ])
        .unwrap();
        assert_eq!(found.endpoint, "http://a:4318/v1/traces");
        assert_eq!(found.headers, [("api-key".into(), "a b".into()), ("x".into(), "1".into())]);
        assert_eq!((found.service.as_str(), found.timeout), ("mine", Duration::from_millis(250)));
        assert_eq!(found.resource, [("team".into(), "tä".into())]);
        let parent = ("0af7651916cd43dd8448eb211c80319c".to_owned(), "b7ad6b7169203331".to_owned());
        assert_eq!((found.parent, found.captures_content), (Some(parent), false));
        let traces = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b/x"), ("TRACEPARENT", "00-0-0-01")];
        assert_eq!(read_from(&traces).map(|found| (found.endpoint, found.parent)), Some(("http://b/x".into(), None)));
    }
}

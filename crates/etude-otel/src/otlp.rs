//! Body of an export: OTLP in JSON, as its specification has it (ids in hexadecimal, 64-bit numbers as strings).

use serde_json::{Value as Json, json};

use crate::settings::Settings;
use crate::span::{Span, Value};

/// Name of the instrumentation scope.
const SCOPE: &str = "etude";

/// `INTERNAL` and `CLIENT` of `SpanKind`; `STATUS_CODE_ERROR`.
const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;
const ERROR: u8 = 2;

/// An `ExportTraceServiceRequest` with these spans, all of the trace `trace`.
pub fn request(settings: &Settings, trace: &str, spans: &[Span]) -> Json {
    let text = |name: &str, value: &str| json!({"key": name, "value": {"stringValue": value}});
    let mut resource = vec![text("service.name", &settings.service)];
    resource.push(text("service.version", env!("CARGO_PKG_VERSION")));
    resource.extend(settings.resource.iter().map(|(name, value)| text(name, value)));
    let spans: Vec<Json> = spans.iter().map(|one| span(trace, one)).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": SCOPE, "version": env!("CARGO_PKG_VERSION")}, "spans": spans}],
    }]})
}

fn span(trace: &str, span: &Span) -> Json {
    let attributes: Vec<Json> =
        span.attributes.iter().map(|(name, value)| json!({"key": name, "value": any(value)})).collect();
    let status = match &span.error {
        Some(why) => json!({"code": ERROR, "message": why}),
        None => json!({}),
    };
    json!({
        "traceId": trace,
        "spanId": span.id,
        "parentSpanId": span.parent.as_deref().unwrap_or_default(),
        "name": span.name,
        "kind": if span.is_client { CLIENT } else { INTERNAL },
        "startTimeUnixNano": span.start_ns.to_string(),
        "endTimeUnixNano": span.end_ns.to_string(),
        "attributes": attributes,
        "status": status,
    })
}

fn any(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!({"stringValue": text}),
        Value::Int(number) => json!({"intValue": number.to_string()}),
        Value::Float(number) => json!({"doubleValue": number}),
        Value::Texts(texts) => {
            let values: Vec<Json> = texts.iter().map(|text| json!({"stringValue": text})).collect();
            json!({"arrayValue": {"values": values}})
        }
    }
}

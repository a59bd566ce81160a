//! Client for the conformance suite of the protocol. `bench/mcp-conformance.sh` runs it, with the URL of a server as its last
//! argument. It uses the crate as an agent would: it lists the tools and calls them.

use std::sync::Arc;
use std::time::Duration;

use etude_process::blob::FileBlobs;
use etude_process::sandbox::SandboxPolicy;
use etude_process::{ChildEnvironment, HostSettings, ProcessHost, Redaction};
use etude_tools::mcp::{Elicited, Protocol, ServerConfig, Servers, Settings};
use etude_tools::tool::Origin;
use etude_tools::{CallContext, Roots, Tool, ToolSet};
use serde_json::{Map, Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().next_back().unwrap_or_default();
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let mut config = ServerConfig::http(url, Vec::new());
    config.protocol = match std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").as_deref() {
        Ok("2026-07-28") => Protocol::Stateless,
        Ok(_) => Protocol::Initialize,
        Err(_) => Protocol::Auto,
    };
    config.start_timeout = Duration::from_secs(20);
    let settings = Settings {
        on_log: Some(Arc::new(|server, line| eprintln!("{server}: {line}"))),
        on_elicit: Some(Arc::new(|question| {
            eprintln!("asked: {}", question.message);
            Box::pin(async { Elicited::Accept(json!({})) })
        })),
        ..Settings::default()
    };
    let servers = Arc::new(Servers::new([("s".to_owned(), config)], settings));
    let dir = std::env::current_dir()?;
    let blobs = Arc::new(FileBlobs::new(dir.join("blobs"), false));
    let settings = HostSettings { run_id: "conformance".to_owned(), app_dir: dir.clone(), blobs };
    let environment = ChildEnvironment::without_keys(&[]);
    let host = ProcessHost::builder(settings, environment, Redaction::NoSecrets, SandboxPolicy::Refused);
    let host = host.grace(Duration::from_secs(1)).build();
    let tools = ToolSet::built_in(Roots::read_only(&dir)?, Arc::new(host)).with_servers(Arc::clone(&servers));
    let listing = tools.tools().await;
    for problem in &listing.problems {
        eprintln!("{problem}");
    }
    let remote: Vec<_> = listing.tools.iter().filter(|tool| matches!(tool.origin, Origin::Mcp { .. })).collect();
    for (tool, args) in remote.iter().flat_map(|tool| calls(tool, &remote, &scenario, &context)) {
        match tools.find(&tool).await {
            Ok(found) => {
                println!("{tool}: {}", found.call(Arc::new(args.into()), CallContext::default()).await.content)
            }
            Err(error) => println!("{tool}: {error}"),
        }
    }
    servers.close().await;
    if listing.problems.is_empty() { Ok(()) } else { Err("the server cannot be used".into()) }
}

/// The calls of one tool: those of the scenario, else one with arguments that satisfy its schema.
fn calls(tool: &Tool, all: &[&Arc<Tool>], scenario: &str, context: &Value) -> Vec<(String, Map<String, Value>)> {
    let Origin::Mcp { tool: remote, .. } = &tool.origin else { return Vec::new() };
    if let Some(asked) = context.get("toolCalls").and_then(Value::as_array) {
        let ours = asked.iter().filter(|call| call["name"] == remote.as_str());
        let args = |call: &Value| {
            let args = call["arguments"].as_object().cloned().unwrap_or_default();
            // A null argument counts as missing.
            args.into_iter().filter(|(_, value)| !value.is_null()).collect()
        };
        return ours.map(|call| (tool.name.clone(), args(call))).collect();
    }
    let mut args = sample(&tool.input_schema);
    if scenario == "json-schema-2020-12-preservation"
        && let (true, Some(focal)) = (args.contains_key("schema"), all.iter().find(|other| other.name != tool.name))
    {
        args.insert("schema".to_owned(), (*focal.input_schema).clone());
    }
    vec![(tool.name.clone(), args)]
}

fn sample(schema: &Value) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let value = |property: &Value| match property.get("type").and_then(Value::as_str) {
        Some("number" | "integer") => json!(5),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    };
    properties.iter().map(|(name, property)| (name.clone(), value(property))).collect()
}

use crate::pipeline::App;
use crate::source::MemorySources;

const SCHEMA: &str = "{type: object, additionalProperties: false, required: [order_id], properties: {order_id: {type: string}, count: {type: integer, minimum: 1}, tags: {type: array, items: {type: string}}}}";

/// Findings about a step with `args`, as `warning text`.
fn findings(schema: &str, tool: &str, args: &str) -> Vec<String> {
    let sidecar = format!("name: order\ndescription: d\ncommand: cat\ninputSchema: {schema}\n");
    let step = format!("  - {{name: s, type: tool, tool: {tool}{args}}}\n");
    let pipeline = format!("name: p\ndescription: d\ninput: {{id: string}}\nsteps:\n{step}");
    let files = MemorySources::new()
        .with("SKILL.md", "---\nname: a\ndescription: d\n---\nHelp.\n")
        .with("tools/order.yaml", sidecar)
        .with("pipelines/p/pipeline.yaml", pipeline);
    let report = App::new(&files).check(&[]);
    report.diagnostics.iter().map(|d| format!("{} {}", d.severity.word(), d.message)).collect()
}

fn warnings(tool: &str, args: &str) -> Vec<String> {
    findings(SCHEMA, tool, args)
}

/// L-43: missing, unknown and mistyped arguments of a tool step are warnings before a run.
#[test]
fn arguments_are_compared_with_the_schema_of_the_tool() {
    assert_eq!(warnings("order", ""), ["warning tool `order` needs `order_id`"]);
    assert_eq!(
        warnings("order", ", args: {orders_id: x}"),
        ["warning tool `order` needs `order_id`", "warning tool `order` has no argument `orders_id`"]
    );
    assert_eq!(
        warnings("order", ", args: {order_id: \"{{input.id}}\", count: two, tags: [1]}"),
        [
            "warning argument `count` of tool `order` does not fit `inputSchema`: \"two\" is not of type \"integer\"",
            "warning argument `tags` of tool `order` does not fit `inputSchema`: /0: 1 is not of type \"string\"",
        ]
    );
}

/// L-43: a template may have any value, and a schema may allow more than its keywords for one argument say.
#[test]
fn uncertain_arguments_are_not_reported() {
    assert_eq!(warnings("order", ", args: {order_id: \"{{input.id}}\", count: \"{{input.id}}\", tags: [a]}"), [""; 0]);
    let either = "{type: object, anyOf: [{required: [a]}, {required: [b]}], properties: {a: {type: integer}}}";
    assert_eq!(findings(either, "order", ", args: {b: \"{{input.id}}\", c: 1}"), [""; 0]);
    let referred = "{type: object, $defs: {n: {type: integer}}, properties: {n: {$ref: \"#/$defs/n\"}}}";
    assert_eq!(findings(referred, "order", ", args: {n: 1, m: \"{{input.id}}\"}"), [""; 0]);
    assert_eq!(warnings("mcp__shop__order", ", args: {x: 1}"), [""; 0]);
}

/// L-43: arguments without templates are compared with the whole schema.
#[test]
fn literal_arguments_are_compared_with_the_whole_schema() {
    let either = "{type: object, anyOf: [{required: [a]}, {required: [b]}]}";
    let [warning] = findings(either, "order", ", args: {c: 1}").try_into().unwrap();
    assert!(warning.starts_with("warning the arguments of tool `order` do not fit `inputSchema`: "), "{warning}");
    let referred = "{type: object, $defs: {n: {type: integer}}, properties: {n: {$ref: \"#/$defs/n\"}}}";
    assert_eq!(findings(referred, "order", ", args: {n: x}").len(), 1);
}

/// L-43: the arguments of built-in tools are known, with the positional parameters of `Bash`.
#[test]
fn arguments_of_built_in_tools_are_checked() {
    assert_eq!(
        warnings("Read", ", args: {file_path: a.txt}"),
        ["warning tool `Read` needs `path`", "warning tool `Read` has no argument `file_path`"]
    );
    let bash = ", args: {command: 'grep -e \"$1\" a.txt', argument_1: \"{{input.id}}\"}";
    assert_eq!(warnings("Bash", bash), [""; 0]);
    assert_eq!(warnings("Bash", ", args: {command: 'grep -e \"$1\" a', argument_1: x}"), [""; 0]);
    assert_eq!(findings(SCHEMA, "Bash", ", args: {command: 5}").len(), 1);
}

/// L-43: sound literal arguments have no findings.
#[test]
fn sound_literal_arguments_have_no_findings() {
    assert_eq!(warnings("order", ", args: {order_id: x, count: 2, tags: [a]}"), [""; 0]);
}

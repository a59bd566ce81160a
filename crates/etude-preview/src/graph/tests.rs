use etude_core::plan::Plan;
use etude_spec::App;
use etude_spec::source::MemorySources;

use super::*;

const REVIEW: &str = r#"
name: review
description: d
input: {repo: string}
steps:
  - {name: list, type: code, command: "python3 steps/list.py", retry: 2}
  - name: look
    type: parallel
    max_parallel: 2
    steps:
      - {name: style, type: llm, model: lite, prompt: "{{list.output}} \"<&>`", timeout: 30s}
      - {name: size, type: code, command: "wc -l | sort", when: "{{list.output.files}}"}
  - name: judge
    type: llm
    model: reasoning
    retry: 3
    schema: schemas/judge.json
    validate: steps/check.py
    for_each: "{{list.output.files}}"
    prompt: "{{item}} {{look.output.style}}"
  - {name: ask, type: approval, message: "Publish {{judge.output}}?", approvers: [alice]}
  - {name: tell, type: pipeline, pipeline: other, input: {text: "{{judge.output.0}}"}, effects: true}
output: judge
"#;

const OTHER: &str = "{name: other, description: d, input: {text: {}}, steps: [{name: a, type: code, command: cat}]}";

fn app() -> MemorySources {
    let scope = |name: &str| {
        format!(
            "{{name: {name}, description: d, steps: [{{name: x, type: code, command: 'true'}}, {{name: y, type: code, command: 'true'}}]}}"
        )
    };
    MemorySources::new()
        .with("pipelines/review/pipeline.yaml", REVIEW)
        .with("pipelines/review/schemas/judge.json", "{}")
        .with("pipelines/review/steps/check.py", "")
        .with("pipelines/review/steps/list.py", "")
        .with("pipelines/other/pipeline.yaml", OTHER)
        .with("pipelines/_constructor/pipeline.yaml", scope("_constructor"))
        .with("pipelines/_destructor/pipeline.yaml", scope("_destructor"))
}

fn graph() -> Graph {
    let sources = app();
    let app = App::new(&sources);
    let sequence = |name: &str| {
        let (pipeline, diagnostics) = app.pipeline(name);
        pipeline.unwrap_or_else(|| panic!("{diagnostics:?}")).sequence
    };
    of(&Plan {
        before: Some(sequence("_constructor")),
        body: sequence("review"),
        after: Some(sequence("_destructor")),
        phase: etude_core::failure::Phase::Business,
        fallback: None,
    })
}

#[test]
fn mermaid_shows_order_data_groups_and_phases() {
    let expected = r#"flowchart TD
  subgraph n0["_constructor"]
    direction TB
    n1["x<br/>code<br/>true"]
    n2["y<br/>code<br/>true"]
  end
  n3["list<br/>code<br/>python3 steps/list.py<br/>2 retries"]
  subgraph n4["look<br/>parallel<br/>2 at once"]
    n5(["style<br/>llm<br/>tier lite<br/>2 retries<br/>at most 30 s"])
    n6["size<br/>code<br/>wc -l #124; sort<br/>when list.output.files"]
  end
  n7(["judge<br/>llm, output of the pipeline<br/>tier reasoning<br/>3 retries<br/>schema judge.json<br/>validated by steps/check.py<br/>for each of list.output.files"])
  n8{{"ask<br/>approval<br/>waits for alice"}}
  n9[["tell<br/>pipeline<br/>runs pipeline other<br/>changes the outside world"]]
  subgraph n10["_destructor"]
    direction TB
    n11["x<br/>code<br/>true"]
    n12["y<br/>code<br/>true"]
  end
  n1 --> n2
  n0 --> n3
  n3 --> n4
  n4 --> n7
  n7 --> n8
  n8 --> n9
  n3 -.-> n5
  n3 -.-> n6
  n3 -.-> n7
  n4 -.-> n7
  n7 -.-> n8
  n7 -.-> n9
  n11 --> n12
  n9 --> n10
  style n0 stroke-dasharray: 5 5
  style n10 stroke-dasharray: 5 5
"#;
    let got = graph().mermaid();
    assert_eq!(got, expected, "{got}");
}

#[test]
fn dot_draws_arrows_of_groups_to_their_borders() {
    let dot = graph().dot();
    for line in [
        "digraph \"review\" {",
        "  subgraph \"cluster_0\" {",
        "    label=\"_constructor\"; style=dashed;",
        "  n2 -> n3 [ltail=\"cluster_0\"];",
        "  n3 -> n5 [lhead=\"cluster_4\"];",
        "  n6 -> n7 [ltail=\"cluster_4\", style=dotted, constraint=false];",
        "  n3 -> n7 [style=dotted, constraint=false];",
    ] {
        assert!(dot.lines().any(|got| got == line), "{line}\n{dot}");
    }
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}

#[test]
fn no_box_of_a_picture_lies_on_another_or_outside() {
    let graph = graph();
    let (areas, whole) = graph.areas();
    for (at, area) in areas.iter().enumerate() {
        let around = graph.nodes[at].inside.map_or(whole, |inside| areas[inside]);
        assert!(area.x >= around.x && area.x + area.width <= around.x + around.width, "{at}");
        assert!(area.y >= around.y && area.y + area.height <= around.y + around.height, "{at}");
        let siblings = graph.children(graph.nodes[at].inside).filter(|sibling| *sibling > at);
        siblings.for_each(|sibling| assert!(area.y + area.height < areas[sibling].y, "{at} {sibling}"));
    }
}

#[test]
fn text_cannot_break_out_of_a_drawing() {
    let mut graph = graph();
    graph.nodes.truncate(1);
    graph.edges.clear();
    graph.nodes[0].kind = "code";
    graph.nodes[0].name = "a\"]<script>&`\n\\".to_owned();
    assert_eq!(graph.mermaid(), "flowchart TD\n  n0[\"a#34;#93;#60;script#62;#38;#96; #92;<br/>code\"]\n");
    assert!(graph.dot().contains(r#"n0 [label="a\"]<script>&` \\\ncode"]"#), "{}", graph.dot());
    let svg = graph.svg();
    assert!(svg.contains(">a&quot;]&lt;script&gt;&amp;` \\</text>"), "{svg}");
    assert!(!svg.contains("<script"), "{svg}");
}

#[test]
fn the_document_names_nodes_and_edges() {
    let document = graph().json();
    assert_eq!(document["name"], "review");
    assert_eq!(
        document["nodes"][7],
        json!({
            "id": "business/judge", "name": "judge", "type": "llm", "phase": "business", "inside": null, "output": true,
            "tier": "reasoning", "retry": 3, "schema": "pipelines/review/schemas/judge.json", "validate": "steps/check.py",
            "for_each": {"items": "list.output.files", "max_items": 1000, "max_parallel": 1},
        })
    );
    let edges = document["edges"].as_array().unwrap();
    assert!(edges.contains(&json!({"from": "constructor", "to": "business/list", "kind": "order"})));
    assert!(edges.contains(&json!({"from": "business/list", "to": "business/size", "kind": "data"})));
    assert!(edges.contains(&json!({"from": "business/look", "to": "business/judge", "kind": "data"})));
    assert!(edges.contains(&json!({"from": "destructor/x", "to": "destructor/y", "kind": "order"})));
}

#[test]
fn a_picture_has_a_box_and_a_name_for_each_node_and_a_line_for_each_edge() {
    let graph = graph();
    let svg = graph.svg();
    assert_eq!(svg.matches("<rect class=").count(), graph.nodes.len());
    assert_eq!(svg.matches("<text class=\"name\"").count(), graph.nodes.len());
    assert_eq!(svg.matches("class=\"order\" d=").count(), 8);
    assert_eq!(svg.matches("class=\"data\" d=").count(), 6);
    assert_eq!(svg.matches("class=\"phase\"").count(), 2);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

//! The tree on a run's page, when it has more nodes than one page shows.

use serde_json::json;

use crate::pages::{OK, id_of, page, server};

/// S-129: a link to a node beyond the first page of the tree shows that node, and a failed run opens at its error on any page.
#[test]
fn nodes_beyond_the_first_page_are_shown() {
    let server = server();
    let mut steps = vec![OK; 160];
    steps[155] = "echo 'disk is full' >&2; exit 3";
    server.pipeline("long", "", &steps);
    let run = server.run(&json!({"pipeline": "long"}));
    let path = format!("/runs/{}", id_of(&run));
    let text = page(&server, &path);
    assert!(text.contains("<code>business/s155</code>") && text.contains("disk is full"), "{text}");
    // The page begins in the middle of its phase, which is shown above.
    assert!(text.contains("data-key=\"business\"") && text.contains("Previous steps"), "{text}");
    let text = page(&server, &format!("{path}?at=business%2Fs157"));
    assert!(text.contains("<code>business/s157</code>") && !text.contains("has no node"), "{text}");
    assert!(page(&server, &format!("{path}?at=business%2Fs3")).contains("Next steps"));
}

/// S-129: the same for the elements of a fan-out.
#[test]
fn elements_beyond_the_first_page_are_shown() {
    let server = server();
    let dir = server.dir().join("demo/pipelines/wide");
    std::fs::create_dir_all(&dir).expect("a directory");
    let text = "name: wide\ndescription: Many elements.\nsteps:\n  - {name: list, type: code, command: 'echo \"{\\\"output\\\": [$(seq -s, 0 119)]}\"'}\n  - {name: each, type: code, for_each: '{{list.output}}', max_items: 200, max_parallel: 8, output: text, env: {I: '{{item}}'}, command: 'cat >/dev/null; echo \"element $I\" >&2; test $I != 110'}\n";
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let run = server.run(&json!({"pipeline": "wide"}));
    assert_eq!(run["status"], "failed", "{run}");
    let path = format!("/runs/{}", id_of(&run));
    let text = page(&server, &path);
    assert!(text.contains("<code>business/each[110]</code>") && text.contains("element 110"), "{text}");
    let effect = server.send("GET", &format!("/v1{path}/effects?node=business/each%5B105%5D"), None).json();
    let effect = effect["effects"][0]["id"].as_str().expect("an effect").replace('/', "%2F");
    for at in ["business%2Feach%5B105%5D", &effect] {
        let text = page(&server, &format!("{path}?at={at}"));
        assert!(text.contains("<code>business/each[105]</code>"), "{at}: {text}");
        assert!(text.contains("Previous elements of"), "{at}: {text}");
    }
    assert!(page(&server, &format!("{path}?at=business%2Feach")).contains("Next elements of"));
}

/// S-129, X-3: the children of a group are nodes below it, with their own effects; so are those of a fan-out.
#[test]
fn children_of_a_group_are_below_it() {
    let server = server();
    let dir = server.dir().join("demo/pipelines/group");
    std::fs::create_dir_all(&dir).expect("a directory");
    let child = |name: &str| format!("{{name: {name}, type: code, command: '{}'}}", OK.replace('\'', "''"));
    let (list, x, y) = ("echo ''{\"output\": [1, 2]}''", child("x"), child("y"));
    let text = format!(
        "name: group\ndescription: Groups.\nsteps:\n  - {{name: list, type: code, command: '{list}'}}\n  - {{name: g, type: parallel, steps: [{x}]}}\n  - {{name: each, type: parallel, for_each: '{{{{list.output}}}}', steps: [{y}]}}\n"
    );
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let run = server.run(&json!({"pipeline": "group"}));
    assert_eq!(run["status"], "succeeded", "{run}");
    let path = format!("/runs/{}", id_of(&run));
    let get = |rest: &str| server.send("GET", &format!("/v1{path}{rest}"), None).json();
    let outline = |rest: &str| -> Vec<(String, String, u64)> {
        let text = |node: &serde_json::Value, name: &str| node[name].as_str().unwrap_or_default().to_owned();
        let nodes = get(&format!("/tree{rest}"))["nodes"].as_array().cloned().expect("nodes");
        nodes
            .iter()
            .map(|node| (text(node, "id"), text(node, "parent"), node["children"].as_u64().unwrap_or(0)))
            .collect()
    };
    let node = |id: &str, parent: &str, children| (id.to_owned(), parent.to_owned(), children);
    let y = node("business/y", "business/each", 2);
    assert_eq!(
        outline(""),
        [
            node("business", "", 3),
            node("business/list", "business", 0),
            node("business/g", "business", 1),
            node("business/x", "business/g", 0),
            node("business/each", "business", 3),
            y.clone(),
        ]
    );
    assert_eq!(outline("?parent=business%2Fg"), [node("business/x", "business/g", 0)]);
    let item = |nth: u8| node(&format!("business/each[{nth}]"), "business/each", 0);
    assert_eq!(outline("?parent=business%2Feach"), [item(0), item(1), y]);
    assert_eq!(get("/effects?node=business%2Fx")["effects"][0]["id"], "group/g/x");
    let text = page(&server, &format!("{path}?at=business%2Fx"));
    let depth = |id: &str| {
        let row = text.split_once(&format!("data-key=\"{id}\"")).expect("a row").1;
        row.split_once("aria-level=\"").and_then(|(_, rest)| rest.split('"').next()).expect("a level").to_owned()
    };
    assert_eq!(["business/g", "business/x", "business/each[1]", "business/y"].map(depth), ["2", "3", "3", "3"]);
    assert!(!text.contains("It started no process"), "the effect of the child is at the child: {text}");
}

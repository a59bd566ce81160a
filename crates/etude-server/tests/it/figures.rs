//! Figures of large pages, for manual comparison: `ETUDE_FIGURES=1 cargo test -p etude-server --test it figures -- --nocapture`.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::support::Running;

/// First paint, size, number of elements and the longest task of a page.
fn figures(browser: &Browser, url: &str) -> Value {
    browser.open(url);
    browser.until("return performance.getEntriesByName('first-contentful-paint').length");
    let script = "return new Promise(done => {
        new PerformanceObserver(() => undefined).observe({type: 'longtask', buffered: true});
        const [page] = performance.getEntriesByType('navigation');
        done({paint_ms: Math.round(performance.getEntriesByName('first-contentful-paint')[0].startTime),
            response_ms: Math.round(page.responseEnd), bytes: page.encodedBodySize,
            elements: document.querySelectorAll('*').length, heap: performance.memory.usedJSHeapSize}); })";
    browser.run(script)
}

/// S-132: prints the figures of the list with 10,000 runs and of a log of 200 MiB. Without `ETUDE_FIGURES` nothing is measured.
#[test]
fn figures_of_large_pages() {
    if std::env::var_os("ETUDE_FIGURES").is_none() {
        return;
    }
    let server = Running::start();
    server.pipeline("p", "", &["echo '{\"output\": 1}'"]);
    server.pipeline(
        "loud",
        "",
        &["yes 'a line of a log that is long' | head -c 209715200 >&2; echo '{\"output\": 1}'"],
    );
    let loud = server.run(&json!({"pipeline": "loud"}));
    for _ in 0..9_999 {
        server.send("POST", "/v1/runs", Some(&json!({"pipeline": "p", "not_before": "2199-01-01T00:00:00Z"})));
    }
    let Some(browser) = Browser::logged_in(&server) else { return };
    let id = loud["run_id"].as_str().expect("an id");
    let effects = server.send("GET", &format!("/v1/runs/{id}/effects"), None).json();
    let effect = effects["effects"][0]["id"].as_str().expect("an effect").replace('/', "%2F");
    for path in [
        "/".to_owned(),
        format!("/runs/{id}"),
        format!("/runs/{id}/log/{effect}/stderr"),
        format!("/runs/{id}/log/{effect}/stderr?end=true"),
    ] {
        for _ in 0..3 {
            println!("{path}: {}", figures(&browser, &format!("http://{}{path}", server.address)));
        }
    }
}

//! The scripts of pages while a reader is at work.

use serde_json::json;

use crate::browser::Browser;
use crate::pages::{OK, id_of, ready, server};
use crate::support::Running;

fn live(browser: &Browser) {
    browser.until("return document.getElementById('connection').textContent === 'Live'");
}

/// A pipeline with a step that waits for a file, so that the test decides when it ends. Returns the path of the file.
fn slow(server: &Running) -> std::path::PathBuf {
    let gate = server.dir().join("gate");
    let wait = format!("until test -e {}; do sleep 0.05; done; echo '{{\"output\": 1}}'", gate.display());
    server.pipeline("slow", "", &[&wait]);
    gate
}

/// A menu that the reader has opened does not become another action when the run ends, and no action has the focus.
#[test]
fn a_menu_does_not_become_another_action() {
    let server = server();
    let gate = slow(&server);
    let run = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "slow"}))).json();
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.open(&format!("http://{}/runs/{}", server.address, id_of(&run)));
    live(&browser);
    browser.until("return document.querySelector('details.menu form[action$=\"/cancel\"]')");
    browser.run("document.querySelector('details.menu').open = true; document.querySelector('[value=cancel]').focus()");
    std::fs::write(gate, "").expect("written");
    browser.until("return document.querySelector('#head [role=status]').textContent === 'Succeeded'");
    let look = "return [document.querySelectorAll('details.menu[open]').length, document.activeElement.nodeName]";
    assert_eq!(browser.run(look), json!([0, "BODY"]));
    // `Escape` closes a menu.
    browser.run("const summary = document.querySelector('details.menu summary'); summary.focus(); summary.click()");
    assert_eq!(browser.run("return document.querySelectorAll('details.menu[open]').length"), 1);
    browser.keys("{Escape}");
    assert_eq!(browser.run("return document.querySelectorAll('details.menu[open]').length"), 0);
}

/// A row stays in its place when its run leaves the list, and shows the current state of the run.
#[test]
fn a_row_that_left_its_list_shows_its_state() {
    let server = server();
    let gate = slow(&server);
    let run = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "slow"}))).json();
    server.until(id_of(&run), &["running"]);
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.open(&format!("http://{}/?status=running", server.address));
    live(&browser);
    assert_eq!(browser.run("return document.querySelector('tr.run').dataset.status"), "running");
    std::fs::write(gate, "").expect("written");
    browser.until("return document.querySelector('tr.run').dataset.status === 'succeeded'");
    assert_eq!(
        browser.run("return [location.search, document.querySelectorAll('tr.run').length]"),
        json!(["?status=running", 1])
    );
}

/// The details of a selected node are in view, for any length of the tree and any width of the window.
#[test]
fn the_details_of_a_node_are_in_view() {
    let server = server();
    let steps = vec![OK; 120];
    server.pipeline("long", "", &steps);
    let run = server.run(&json!({"pipeline": "long"}));
    let Some(browser) = Browser::logged_in(&server) else { return };
    let seen = "const box = document.querySelector('#details h2').getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight";
    for width in [1440, 1000, 360] {
        browser.size(width, 900);
        browser.open(&format!("http://{}/runs/{}", server.address, id_of(&run)));
        ready(&browser);
        browser.run("window.same = true; document.querySelector('[data-key=\"business/s100\"]').scrollIntoView()");
        browser.run("document.querySelector('[data-key=\"business/s100\"]').click()");
        browser.until("return document.querySelector('#details code').textContent === 'business/s100'");
        browser.until(seen);
        assert_eq!(browser.run("return window.same"), true);
        // The same without a script: the address leads to the details.
        browser.open("about:blank");
        browser.open(&format!("http://{}/runs/{}?at=business%2Fs100#details", server.address, id_of(&run)));
        browser.until(seen);
    }
    // If a selection cannot be loaded, the browser opens its page instead.
    browser.run("window.same = true; window.fetch = () => Promise.reject(new Error('no connection'))");
    browser.run("document.querySelector('[data-key=\"business/s3\"]').click()");
    browser.until("return !window.same && document.querySelector('#details code').textContent === 'business/s3'");
}

/// `Enter` in a field of a question decides nothing, and a second click sends nothing.
#[test]
fn enter_in_a_field_decides_nothing() {
    let server = server();
    let schema = "{type: object, properties: {count: {type: integer}}}";
    server.pipeline("count", "", &[&format!("approval: message: How many?, schema: {schema}")]);
    let run = server.run(&json!({"pipeline": "count"}));
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.open(&format!("http://{}/decisions", server.address));
    ready(&browser);
    browser.run("window.same = true; window.sent = 0; document.addEventListener('submit', () => (window.sent += 1))");
    browser.keys("a");
    assert_eq!(browser.run("return document.activeElement.name"), "answer.count");
    browser.keys("7{Enter}");
    assert_eq!(browser.run("return [window.same, window.sent, document.activeElement.value]"), json!([true, 0, "7"]));
    assert_eq!(server.until(id_of(&run), &["waiting"])["status"], "waiting");
    let twice = "const button = document.querySelector('[name=approved][value=true]');
        let prevented = 0;
        document.addEventListener('submit', (event) => { prevented += event.defaultPrevented ? 1 : 0; });
        button.click(); button.click();
        return prevented";
    assert_eq!(browser.run(twice), 1);
    server.until(id_of(&run), &["succeeded"]);
}

/// A question that another person answers meanwhile is named by its decision: neither the form nor the list changes to the next
/// question below the reader's hands.
#[test]
fn a_question_that_was_answered_elsewhere_is_named() {
    let server = server();
    let runs = [server.run(&json!({"pipeline": "ask"})), server.run(&json!({"pipeline": "ask"}))];
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.open(&format!("http://{}/decisions", server.address));
    live(&browser);
    let shown = browser.run("return document.querySelector('[data-question]').dataset.question");
    assert_eq!(shown, runs[0]["waiting"][0]["id"]);
    browser.keys("a");
    browser.keys("not on a Friday");
    let decision = &server.send("GET", "/v1/decisions", None).json()["decisions"][0];
    let path = format!("/v1/decisions/{}", shown.as_str().expect("an id").replace('/', "%2F"));
    let body = json!({"approved": true, "question": decision["question"]});
    assert_eq!(server.send("POST", &path, Some(&body)).status, 200);
    browser.until(
        "return document.querySelector('#head .notice')?.textContent.startsWith('owner approved this question')",
    );
    let look = "return [document.querySelector('[data-question]').dataset.question, document.getElementById('reason').value,
        document.querySelectorAll('#questions li').length, document.querySelectorAll('#questions [aria-current]').length]";
    assert_eq!(browser.run(look), json!([shown, "not on a Friday", 1, 0]));
}

/// Copied text has the original characters, not the replacements of hidden ones.
#[test]
fn copies_have_the_characters_of_the_text() {
    let server = server();
    server.pipeline("raw", "", &["cat >/dev/null; printf 'a\\342\\200\\256b' >&2; echo '{\"output\": 1}'"]);
    let run = server.run(&json!({"pipeline": "raw"}));
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.open(&format!("http://{}/runs/{}?at=business%2Fs0", server.address, id_of(&run)));
    ready(&browser);
    browser.run("Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } })");
    browser.run("document.querySelector('[data-key$=stderr] [data-copy]').click()");
    assert_eq!(browser.until("return window.copied"), "a\u{202e}b");
    assert_eq!(browser.run("return document.querySelector('[data-key$=stderr] pre').textContent"), "a⟨U+202E⟩b");
}

/// Long words, and names of steps of any length, leave the width of a page alone, and the destinations have room at any width.
#[test]
fn pages_are_as_wide_as_the_window() {
    let server = server();
    let word = "word".repeat(60);
    let name = "a_long_name_".repeat(5);
    let dir = server.dir().join("demo/pipelines").join(&name);
    std::fs::create_dir_all(&dir).expect("a directory");
    let step = "step_".repeat(20);
    let text = format!(
        "{{name: {name}, description: \"Has {word}\", steps: [{{name: {step}, type: code, command: \"echo '{{\\\"output\\\": 1}}'\"}}]}}\n"
    );
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let run = server.run(&json!({"pipeline": name}));
    server.pipeline("question", "", &[&format!("approval: message: {word}")]);
    for _ in 0..11 {
        server.run(&json!({"pipeline": "question"}));
    }
    server.configure(&format!(
        "schedules: {{{name}: {{pipeline: {name}, cron: \"30 2 1,3,5,7,9 JAN,MAR MON-FRI\", timezone: America/Argentina/ComodRivadavia}}}}\n\
         webhooks: {{{name}: {{pipeline: {name}, verify: {{kind: token, header: X-T, secrets: [s]}}}}}}\n"
    ));
    let is_read =
        |list: &serde_json::Value| list["schedules"].as_array().is_some_and(|schedules| !schedules.is_empty());
    server.poll("/v1/schedules", is_read);
    let hook = server.raw("POST", &format!("/in/demo/{name}"), &[("X-T", "s")], Some("{}".to_owned()));
    assert_eq!(hook.status, 202, "{}", hook.text());
    let Some(browser) = Browser::logged_in(&server) else { return };
    let run = format!("/runs/{}", id_of(&run));
    let pipeline = format!("/apps/demo/pipelines/{name}");
    for path in ["/", &run, "/decisions", "/apps", &pipeline, "/server", "/schedules", "/webhooks"] {
        browser.open(&format!("http://{}{path}", server.address));
        for width in [1440, 901, 768, 641, 500] {
            browser.size(width, 900);
            let widths = "return [document.documentElement.scrollWidth - innerWidth, document.querySelector('.top nav').scrollHeight]";
            let [over, high] = [0, 1].map(|nth| browser.run(widths)[nth].as_i64().expect("a number"));
            assert!(over <= 0 && high <= 56, "{path} at {width}: {over} px too wide, the bar is {high} px high");
        }
    }
    // A name that does not fit ends before the timeline, which has its own column.
    browser.size(1440, 900);
    browser.open(&format!("http://{}{run}", server.address));
    let ends = "const [name, bars] = ['code', '.bars'].map((one) => document.querySelector(`[data-key^='business/step_'] ${one}`).getBoundingClientRect());
        return name.right <= bars.left";
    assert_eq!(browser.run(ends), true);
}

/// A printed page is the document in dark text, without its controls.
#[test]
fn paper_has_no_controls() {
    let server = server();
    let run = server.run(&json!({"pipeline": "p"}));
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.open(&format!("http://{}/runs/{}", server.address, id_of(&run)));
    let dark = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
    let look = "const style = (one) => getComputedStyle(document.querySelector(one));
        return [style('.top').display, style('.actions').display, style(':root').getPropertyValue('--text')]";
    for (media, seen) in [("screen", json!(["flex", "flex", "#e9ebee"])), ("print", json!(["none", "none", "#16191f"]))]
    {
        browser.devtools("Emulation.setEmulatedMedia", &json!({"media": media, "features": dark}));
        assert_eq!(browser.run(look), seen, "{media}");
    }
}

/// The duration of a run at work counts on its page and in the list, between two versions of the page.
#[test]
fn the_duration_of_a_run_at_work_counts() {
    let server = server();
    let gate = slow(&server);
    let run = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "slow"}))).json();
    server.until(id_of(&run), &["running"]);
    let Some(browser) = Browser::logged_in(&server) else { return };
    for path in [format!("/runs/{}", id_of(&run)), "/?status=running".to_owned()] {
        browser.open(&format!("http://{}{path}", server.address));
        live(&browser);
        let shown = "document.querySelector('[data-active-ms]').textContent";
        // A new version of the page, which another change may cause, begins the count again.
        browser.run(&format!(
            "window.last = {shown}; window.changes = 0; \
             document.addEventListener('etude:refreshed', () => {{ last = {shown}; changes = 0 }})"
        ));
        browser.until(&format!("if ({shown} !== last) {{ last = {shown}; changes += 1 }} return changes >= 2"));
    }
    browser.open(&format!("http://{}/runs/{}", server.address, id_of(&run)));
    live(&browser);
    std::fs::write(gate, "").expect("written");
    browser.until("return document.querySelector('#head [role=status]').textContent === 'Succeeded'");
    assert_eq!(browser.run("return document.querySelectorAll('[data-active-ms]').length"), 0);
}

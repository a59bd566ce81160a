//! A real Chromium, driven over the WebDriver protocol.

#![expect(clippy::disallowed_methods, reason = "the browser is no program of the product")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Reply, Running};

/// Time in which a page must show an awaited state.
const PATIENCE: Duration = Duration::from_secs(60);

/// One browser with one window. It ends with the test.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

/// Starts the driver. Returns it with its port. A driver ends before it prints the port if another process takes that port at
/// the same moment.
fn driver() -> std::io::Result<(Child, u16)> {
    for _ in 0..5 {
        let mut driver =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let lines = BufReader::new(driver.stdout.take().expect("it is piped")).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        if let Some(port) = port {
            return Ok((driver, port));
        }
        driver.wait()?;
    }
    panic!("the driver prints no port");
}

impl Browser {
    /// A browser; `None` if there is none and none is required.
    pub(crate) fn start() -> Option<Self> {
        let (driver, port) = match driver() {
            Ok(listening) => listening,
            Err(error) => {
                let is_required = std::env::var_os("ETUDE_REQUIRE_BROWSER").is_some();
                assert!(!is_required, "`chromedriver` does not start: {error}");
                eprintln!("skipped: `chromedriver` does not start: {error}");
                return None;
            }
        };
        let mut browser = Self { driver, port, session: String::new() };
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"];
        let wanted = json!({
            "browserName": "chrome", "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 120_000},
        });
        let session = browser.post("/session", &json!({"capabilities": {"alwaysMatch": wanted}}));
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        Some(browser)
    }

    /// The same, logged in.
    pub(crate) fn logged_in(server: &Running) -> Option<Self> {
        let browser = Self::start()?;
        browser.size(1440, 900);
        let (link, _) = server.server.login_link();
        browser.open(&link);
        browser.until("return !!document.querySelector('.top') && location.hash === ''");
        Some(browser)
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the driver accepts");
        stream.set_read_timeout(Some(Duration::from_secs(180))).expect("a time limit");
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("written");
        let mut all = Vec::new();
        // The driver may keep the connection open in spite of the header; the length marks the end.
        let mut piece = [0; 16 * 1024];
        while !is_whole(&all) {
            match crate::support::read(&mut stream, &mut piece) {
                Ok(0) | Err(_) => break,
                Ok(got) => all.extend_from_slice(&piece[..got]),
            }
        }
        Reply::parse(&all).json()["value"].clone()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let value = self.send("POST", path, &body.to_string());
        assert!(value["error"].is_null(), "{path}: {} {}", value["error"], value["message"]);
        value
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.post(&format!("/session/{}/{path}", self.session), body)
    }

    /// A command of the browser's own protocol.
    pub(crate) fn devtools(&self, command: &str, params: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({"cmd": command, "params": params}))
    }

    /// Opens an address.
    pub(crate) fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url }));
    }

    /// Opens another tab and switches to it.
    pub(crate) fn tab(&self) -> String {
        let handle = self.command("window/new", &json!({"type": "tab"}))["handle"].as_str().expect("a tab").to_owned();
        self.turn_to(&handle);
        handle
    }

    /// Switches to a tab.
    pub(crate) fn turn_to(&self, handle: &str) {
        self.command("window", &json!({ "handle": handle }));
    }

    /// Sets the size of the page's area.
    pub(crate) fn size(&self, width: u32, height: u32) {
        let params = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &params);
    }

    /// Sets the colour scheme: `light` or `dark`.
    pub(crate) fn scheme(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Runs a function body in the page and returns its value.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until a function body returns a truthy value.
    #[track_caller]
    pub(crate) fn until(&self, script: &str) -> Value {
        let path = format!("/session/{}/execute/sync", self.session);
        let evaluate = |script: &str| self.send("POST", &path, &json!({"script": script, "args": []}).to_string());
        let since = Instant::now();
        loop {
            let value = evaluate(script);
            let is_true =
                !(value.is_null() || value == false || value == 0 || value == "" || value["error"].is_string());
            if is_true {
                return value;
            }
            let page = || evaluate("return document.body ? document.body.innerText.slice(0, 2000) : ''");
            assert!(since.elapsed() < PATIENCE, "it never came true: {script}\n{value}\n{}", page());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types into the element that has the focus. Names of keys are in braces: `{Enter}`.
    pub(crate) fn keys(&self, text: &str) {
        let mut actions = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (key, length) = match rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                Some((name, _)) => (special(name), name.len() + 2),
                None => (first, first.len_utf8()),
            };
            rest = &rest[length..];
            actions.push(json!({"type": "keyDown", "value": key}));
            actions.push(json!({"type": "keyUp", "value": key}));
        }
        self.command("actions", &json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}));
    }

    /// Errors in the page's console, including reports of the content security policy and of failed requests.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({"type": "browser"}));
        let entries = log.as_array().cloned().unwrap_or_default();
        entries.iter().filter(|entry| entry["level"] == "SEVERE").map(|entry| entry["message"].to_string()).collect()
    }

    /// A screenshot of the window as PNG, in base64.
    pub(crate) fn picture(&self) -> String {
        // A busy machine may need more time for a screenshot than the driver allows.
        let taken =
            |_| self.send("GET", &format!("/session/{}/screenshot", self.session), "").as_str().map(str::to_owned);
        (0..5).find_map(taken).expect("a picture")
    }
}

fn special(name: &str) -> char {
    match name {
        "Enter" => '\u{e007}',
        "Tab" => '\u{e004}',
        "Escape" => '\u{e00c}',
        "Left" => '\u{e012}',
        "Up" => '\u{e013}',
        "Right" => '\u{e014}',
        "Down" => '\u{e015}',
        "Space" => ' ',
        other => panic!("no key {other}"),
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| bytes.len() >= end + 4 + length)
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Without an end of its session, the browser would outlive its driver. The driver may have ended already.
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let head =
                format!("DELETE /session/{} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n", self.session);
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| crate::support::read(&mut stream, &mut [0; 64]).map(drop));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

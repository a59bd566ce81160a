//! Model calls against a server that responds at once: the overhead of a step.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::apps::{self, config, of_steps};
use crate::measure::{Pair, Report, run};
use crate::server;

const CALLS: usize = 200;

pub(crate) fn llm_steps(home: &Path, count: usize, address: SocketAddr) -> String {
    let app = of_steps(home, "talk", (0..count).map(|at| apps::llm(&format!("s{at}"))));
    config(&app, &address.to_string());
    app.display().to_string()
}

/// A program that makes 200 model steps, against one that makes one.
pub(crate) fn llm_program(report: &mut Report, home: &Path, app: &str, address: SocketAddr) {
    let one = llm_steps(&home.join("one"), 1, address);
    let pair = Pair { key: "llm/program", what: "200 model steps", baseline: "a program with one model step" };
    let talk = |app: &str| run(home, &["run", "-C", app, "-p", "talk", "-q"]);
    report.compare(&pair, 9, || talk(app), || talk(&one));
}

pub(crate) fn llm(report: &mut Report, home: &Path) {
    let address = server::start(Duration::ZERO);
    let app = llm_steps(home, CALLS, address);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let pair =
        Pair { key: "llm", what: "200 model steps, end to end", baseline: "200 bare requests on one connection" };
    let baseline = || runtime.block_on(bare(address, CALLS, || {}));
    report.compare(&pair, 9, || run(home, &["run", "-C", &app, "-p", "talk", "-q"]), baseline);
    llm_program(report, home, &app, address);
}

/// The scenario of [`llm`] with each outcome on the disk before the next call begins.
pub(crate) fn strict(report: &mut Report, home: &Path) {
    let address = server::start(Duration::ZERO);
    let app = llm_steps(home, CALLS, address);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let pair = Pair {
        key: "llm/strict",
        what: "200 model steps with `--strict`",
        baseline: "200 bare requests on one connection, a sync after each",
    };
    let mut file = File::create(home.join("synced")).expect("a file");
    let mut sync = || file.write_all(&[0; 4096]).and_then(|()| file.sync_data()).expect("a sync");
    let baseline = || runtime.block_on(bare(address, CALLS, &mut sync));
    report.compare(&pair, 5, || run(home, &["run", "-C", &app, "-p", "talk", "-q", "--strict"]), baseline);
}

/// Sends minimal requests, one after the other on one connection, and calls `after` after each.
pub(crate) async fn bare(address: SocketAddr, count: usize, mut after: impl FnMut()) {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"Say what you think of number 1."}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("a socket");
    let mut read = vec![0; 4 * 1024];
    for _ in 0..count {
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut got = 0;
        // The response ends with the document that the server always sends.
        while !read[..got].ends_with(b"}}") {
            got += stream.read(&mut read[got..]).await.expect("read");
        }
        let answer: serde_json::Value = body_of(&read[..got]);
        assert!(answer["choices"][0]["message"]["content"].is_string());
        after();
    }
}

fn body_of(answer: &[u8]) -> serde_json::Value {
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    serde_json::from_slice(&answer[at..]).expect("JSON")
}

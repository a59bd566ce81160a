//! A client without a runner: an ordinary HTTP client that writes a row in SQLite for each response before the next request
//! begins. No prompt is filled in, nothing is checked, and nothing can be resumed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use rusqlite::Connection;
use serde_json::{Value, json};

/// The client and its table, shared by all conversations.
#[derive(Clone)]
pub(crate) struct Plain {
    client: Client,
    rows: Arc<Mutex<Connection>>,
    url: Arc<str>,
}

impl Plain {
    /// A client of the server at `address`. Its table lies in `dir`, and is created again each time.
    pub(crate) fn new(address: SocketAddr, dir: &Path) -> Self {
        etude_http::init_tls();
        let client = Client::builder().no_proxy().tls_certs_only([]).build().expect("a client");
        let path = dir.join("plain.db");
        // Removes the table of the previous round.
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(dir.join(format!("plain.db{end}")));
        }
        let rows = Connection::open(path).expect("a database");
        let setup = "pragma journal_mode = wal; pragma synchronous = normal;
            create table outcomes (run integer, step integer, body text, primary key (run, step)) without rowid;";
        rows.execute_batch(setup).expect("a table");
        let url = format!("http://{address}/v1/chat/completions").into();
        Self { client, rows: Arc::new(Mutex::new(rows)), url }
    }

    /// Runs one conversation of `calls` calls.
    pub(crate) async fn talk(self, run: usize, calls: usize) {
        for step in 0..calls {
            let prompt = format!("Say what you think of number {step}.");
            let asked = json!({"model": "m", "messages": [{"role": "user", "content": prompt}]}).to_string();
            let sending = self.client.post(&*self.url).header(CONTENT_TYPE, "application/json").body(asked);
            let answer = sending.send().await.expect("an answer").bytes().await.expect("a whole answer");
            let answer: Value = serde_json::from_slice(&answer).expect("JSON");
            let text = answer["choices"][0]["message"]["content"].as_str().expect("a text");
            let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            let mut insert = rows.prepare_cached("insert into outcomes values (?1, ?2, ?3)").expect("a statement");
            insert.execute((run as i64, step as i64, text)).expect("a row");
        }
    }
}

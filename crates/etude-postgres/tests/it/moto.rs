//! An independent server of the S3 protocol: `moto`, a package for Python.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running server with one bucket.
#[derive(Debug)]
pub(crate) struct Moto {
    child: Child,
    address: String,
}

impl Moto {
    /// Starts `ETUDE_MOTO`, the program `moto_server` of the package `moto[server]`. Without it the test is skipped, or fails if
    /// `ETUDE_REQUIRE_MOTO` is set.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = std::env::var_os("ETUDE_MOTO") else {
            assert!(std::env::var_os("ETUDE_REQUIRE_MOTO").is_none(), "ETUDE_MOTO must name `moto_server`");
            eprintln!("skipped: ETUDE_MOTO does not name `moto_server` of the Python package `moto[server]`");
            return None;
        };
        let mut child = Command::new(program)
            .args(["-p", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("moto_server can be started");
        let mut lines = BufReader::new(child.stderr.take().expect("its messages")).lines();
        let address = loop {
            let line = lines.next().expect("it says where it listens").expect("a line");
            if let Some((_, address)) = line.split_once("Running on http://") {
                break address.trim().to_owned();
            }
        };
        // Later output must not fill the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let server = Self { child, address };
        server.put("/values");
        Some(server)
    }

    /// URL of the bucket, for `engine.blobs`.
    pub(crate) fn url(&self, prefix: &str) -> String {
        format!("s3://values/{prefix}?region=eu-central-1&endpoint=http://{}", self.address)
    }

    /// Reads an object directly from the server.
    pub(crate) fn object(&self, key: &str) -> Option<Vec<u8>> {
        let (status, body) = self.ask("GET", &format!("/values/{key}"));
        (status == 200).then_some(body)
    }

    /// Removes an object without the engine's knowledge.
    pub(crate) fn remove(&self, key: &str) {
        assert_eq!(self.ask("DELETE", &format!("/values/{key}")).0, 204);
    }

    /// Replaces the bytes of an object.
    pub(crate) fn spoil(&self, key: &str, bytes: &str) {
        assert_eq!(self.send("PUT", &format!("/values/{key}"), bytes).0, 200);
    }

    /// Stops or continues the server: while stopped, it accepts connections and does not respond.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, if is_frozen { Signal::STOP } else { Signal::CONT }).expect("it is there");
    }

    fn put(&self, path: &str) {
        assert_eq!(self.ask("PUT", path).0, 200, "{path}");
    }

    fn ask(&self, method: &str, path: &str) -> (u16, Vec<u8>) {
        self.send(method, path, "")
    }

    /// No signature is needed where everything is allowed; the header assigns the request to an account.
    fn send(&self, method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let credential =
            "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        let (host, len) = (&self.address, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {credential}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it listens");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("the end of the head");
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        (status, answer[end + 4..].to_vec())
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

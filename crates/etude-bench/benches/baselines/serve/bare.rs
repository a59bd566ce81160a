//! Baseline servers: a route of axum with the same bytes, and a loop that writes them to sockets.

use std::convert::Infallible;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;

/// `--child-routes FILE`: an axum server whose route `/v1/runs/{id}` has the bytes of the file; `/quiet` never responds.
pub(crate) fn routes(file: &str) {
    let body = Bytes::from(fs::read(file).expect("a file"));
    let respond = move || {
        let body = body.clone();
        async move { ([(CONTENT_TYPE, "application/json")], body) }
    };
    let quiet = || async {
        std::future::pending::<()>().await;
        Ok::<Body, Infallible>(Body::empty())
    };
    let app: Router = Router::new().route("/v1/runs/{id}", get(respond)).route("/quiet", get(quiet));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        println!("{}", listener.local_addr().expect("an address").port());
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let service = TowerToHyperService::new(app.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
}

/// `--child-writer FILE COUNT`: waits for COUNT connections and a line on stdin, then writes each piece of the file to all of
/// them, at its time. The file is JSON: `[[µs, "bytes"], …]`.
pub(crate) fn writer(file: &str, count: &str) {
    let pieces: Vec<(u64, String)> = serde_json::from_slice(&fs::read(file).expect("a file")).expect("pieces");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    println!("{}", listener.local_addr().expect("an address").port());
    let accept = |_| {
        let (mut socket, _) = listener.accept().expect("a connection");
        let _ = socket.set_nodelay(true);
        let mut head = [0; 4096];
        assert!(socket.read(&mut head).expect("a request") > 0);
        socket
    };
    let mut sockets: Vec<_> = (0..count.parse::<usize>().expect("a number")).map(accept).collect();
    std::io::stdin().read_line(&mut String::new()).expect("a line");
    let begin = Instant::now();
    for (at, piece) in pieces {
        thread::sleep(Duration::from_micros(at).saturating_sub(begin.elapsed()));
        for socket in &mut sockets {
            socket.write_all(piece.as_bytes()).expect("written");
        }
    }
}

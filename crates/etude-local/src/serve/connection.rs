//! One connection: one call, and an eye on whether the caller is still there.

use std::io::Read;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use etude_core::model::Request;

use super::shared::{Job, Shared};
use crate::protocol::{self, Call, Reply};
use crate::socket::Stream;

/// Reads the call of `stream` and answers it. What goes wrong with the stream ends it: the other side sees that.
pub(super) fn attend(mut stream: Stream, shared: &Shared) {
    let Ok(Some(call)) = protocol::receive::<Call>(&mut stream) else { return };
    let reply = match call {
        Call::Status => Some(Reply::Status(shared.status())),
        Call::Stop => {
            shared.stop();
            Some(Reply::Stopping)
        }
        Call::Generate { client, request } => generate(&stream, client, Request::from(*request), shared),
    };
    if let Some(reply) = reply {
        drop(protocol::send(&mut stream, &reply));
    }
    // Dropping it would not close it: the observer has it, too.
    drop(stream.shutdown(Shutdown::Both));
}

/// The reply to a call for an answer; none if it was given up, or if the model panicked.
fn generate(stream: &Stream, client: String, request: Request, shared: &Shared) -> Option<Reply> {
    let given_up = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let mut watched = stream.try_clone().ok()?;
    let flag = Arc::clone(&given_up);
    // Nothing more is sent by the caller: when this returns, they have gone, or the reply has been sent.
    let watcher = thread::spawn(move || {
        drop(watched.read(&mut [0]));
        flag.store(true, Ordering::Relaxed);
    });
    if !shared.push(client, Job { request, reply: sender, given_up }) {
        return Some(Reply::Ending);
    }
    let reply = receiver.recv().ok();
    drop(watcher);
    reply
}

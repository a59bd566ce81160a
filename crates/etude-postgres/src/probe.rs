//! The check of object storage: writes an object of its own, reads it and removes it.

use crate::check::{Check, Status};
use crate::error::Fault;
use crate::link::Connection;
use crate::migrate::FORMAT;
use crate::objects::{Credentials, Objects};
use crate::rules;

/// Where large values are, and whether they can be kept there from here.
pub(crate) async fn blobs(connection: &mut Connection, format: u32, credentials: &Credentials) -> Result<Check, Fault> {
    let check = |status, found: String, message, cost, hint| Check { id: "blobs", status, found, message, cost, hint };
    if format != FORMAT {
        let message = "what the schema says of object storage is not known";
        return Ok(check(Status::Skipped, "no schema of this version".to_owned(), message, "", ""));
    }
    let Some(url) = rules::url(connection).await? else {
        let message = "large values are in the database, at most 64 MiB each";
        return Ok(check(Status::Ok, "chunks".to_owned(), message, "", ""));
    };
    let probed = match Objects::open(&url, credentials) {
        Ok(objects) => objects.probe().await,
        Err(error) => Err(error),
    };
    let message = "large values and bundles must be written, read and removed there";
    Ok(match probed {
        Ok(()) => check(Status::Ok, url, message, "", ""),
        Err(error) => check(
            Status::Error,
            format!("{url}: {error}"),
            message,
            "runs with large values stop and wait",
            "correct the access from here, or `engine.blobs` and `etude engine apply`",
        ),
    })
}

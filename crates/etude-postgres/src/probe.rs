//! Checks of object storage, with a probe object, and of a worker before it begins.

use std::io;

use etude_runtime::blob::Unavailable;
use etude_runtime::engine::Error;

use crate::check::{Check, Status};
use crate::error::Fault;
use crate::grant::{self, RoleKind};
use crate::link::{Connection, attempt};
use crate::migrate::FORMAT;
use crate::objects::{Credentials, Objects};
use crate::rules;
use crate::store::Store;

/// Checks the storage of large values, with a write and a read from here.
pub(crate) async fn blobs(connection: &mut Connection, format: u32, credentials: &Credentials) -> Result<Check, Fault> {
    let check = |status, found: String, message, cost, hint| Check { id: "blobs", status, found, message, cost, hint };
    if format != FORMAT {
        let message = "the object storage settings of the schema are unknown";
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
    let message = "this machine must be able to write, read and remove large values and bundles there";
    Ok(match probed {
        Ok(()) => check(Status::Ok, url, message, "", ""),
        Err(error) => check(
            Status::Error,
            format!("{url}: {error}"),
            message,
            "runs with large values stop and wait",
            "fix the access from this machine, or change `engine.blobs` and run `etude engine apply`",
        ),
    })
}

/// Checks that the logged-in role may drive runs, and that large values can be kept and read from here.
pub(crate) async fn work(store: &Store) -> Result<(), Error> {
    let schema = store.link.address().schema();
    let (role, may) = attempt!(store.link, |connection| grant::may_work(connection, schema, &store.access));
    if !may {
        return Err(not_a_worker(store, &role));
    }
    let Some(url) = attempt!(store.link, |connection| rules::url(connection)) else { return Ok(()) };
    let probed = match store.depot.objects(Some(&url)) {
        Ok(objects) => objects.probe().await,
        Err(error) => Err(error),
    };
    probed.map_err(|error| of_probe(&url, &error))
}

/// Checks that large values can be reached from here, by a read of an object that need not exist.
pub(crate) async fn values(store: &Store) -> Result<(), Error> {
    let Some(url) = attempt!(store.link, |connection| rules::url(connection)) else { return Ok(()) };
    let reached = match store.depot.objects(Some(&url)) {
        Ok(objects) => objects.reach().await,
        Err(error) => Err(error),
    };
    reached.map_err(|error| of_probe(&url, &error))
}

fn not_a_worker(store: &Store, role: &str) -> Error {
    let login = "log in as a worker: the schema owner runs `etude engine grant worker ROLE`";
    let (what, hint) = match store.access.kind {
        Some(RoleKind::Tenant) => {
            (format!("is the tenant `{}`, and a tenant cannot execute runs", store.access.tenant), login)
        }
        Some(RoleKind::Worker) => {
            ("lacks privileges of a worker".to_owned(), "run `etude engine migrate` as the owner of the schema")
        }
        None => ("does not have the privileges of a worker".to_owned(), login),
    };
    Error::Refused { why: format!("the role `{role}` of the database {what}"), hint: hint.to_owned() }
}

fn of_probe(url: &str, error: &io::Error) -> Error {
    match Unavailable::of(error) {
        Some(cause) if cause.is_refused => Error::Refused {
            why: format!("cannot store and read large values at {url}: {cause}"),
            hint: "fix the access from this machine, or change `engine.blobs` and run `etude engine apply`; see `etude engine check`"
                .to_owned(),
        },
        Some(cause) => Error::ValuesAway(format!("{url}: {cause}")),
        None => Error::Store { path: url.to_owned(), why: error.to_string() },
    }
}

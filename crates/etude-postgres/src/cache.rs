//! Cached outputs of steps.

use std::io;

use etude_core::data::{Json, Stored};
use etude_core::digest::Digest;
use etude_runtime::blob::{BlobStore as _, INLINE_LIMIT, put};
use etude_runtime::clock::now_ms;
use etude_runtime::engine::{CacheLabel, CacheQuery, CacheRow, Error};

use crate::error::Fault;
use crate::link::{Connection, Parameter, attempt};
use crate::rows;
use crate::store::Store;

/// A cached text, or its place in a blob.
enum Found {
    Text(String),
    Blob { blob: Digest, offset: u64, len: u64, digest: Digest },
}

impl Store {
    /// Looks up an output that is at most `ttl_ms` old.
    pub(crate) fn recall(&self, key: Digest, ttl_ms: Option<u64>) -> Result<Option<Json>, Error> {
        let ttl = ttl_ms.and_then(|ttl| i64::try_from(ttl).ok());
        let oldest = ttl.map_or(i64::MIN, |ttl| now_ms().saturating_sub(ttl));
        let found = self
            .link
            .wait(async { Ok::<_, Error>(attempt!(self.link, |connection| find(connection, key, oldest))) })?;
        match found {
            None => Ok(None),
            Some(Found::Text(text)) => Ok(Some(Json::trusted(text))),
            Some(Found::Blob { blob, offset, len, digest }) => match self.blobs.open(blob) {
                Ok(source) => Ok(Some(Json::stored(Stored { blob, offset, len, digest, source }))),
                // A missing value is a cache miss.
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(cause) => Err(self.blob_error(&cause)),
            },
        }
    }

    /// Caches an output of a step.
    pub(crate) fn remember(&self, key: Digest, output: &Json, label: &CacheLabel) -> Result<(), Error> {
        let (body, blob, offset, digest) = match (output.as_stored(), output.inline()) {
            (Some(stored), _) => (None, Some(stored.blob), stored.offset, Some(stored.digest)),
            (None, Some(text)) if text.len() > INLINE_LIMIT => {
                let (digest, _) = put(&*self.blobs, text.as_bytes()).map_err(|cause| self.blob_error(&cause))?;
                (None, Some(digest), 0, Some(digest))
            }
            (None, text) => (Some(text.unwrap_or("null")), None, 0, None),
        };
        let sql = "insert into cache (key, body, blob, \"offset\", length, digest, created_at_ms, app, pipeline, step)
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
            on conflict (key) do update set body = excluded.body, blob = excluded.blob, \"offset\" = excluded.\"offset\",
                length = excluded.length, digest = excluded.digest, created_at_ms = excluded.created_at_ms, app = excluded.app,
                pipeline = excluded.pipeline, step = excluded.step, hits = 0";
        let parameters: [Parameter<'_>; 10] = [
            &&key.as_bytes()[..],
            &body.map(str::as_bytes),
            &blob.as_ref().map(|blob| &blob.as_bytes()[..]),
            &rows::from_length(offset),
            &rows::from_length(output.len()),
            &digest.as_ref().map(|digest| &digest.as_bytes()[..]),
            &now_ms(),
            &label.app.as_bytes(),
            &label.pipeline.as_bytes(),
            &label.step.as_bytes(),
        ];
        self.link.wait(async {
            attempt!(self.link, |connection| connection.execute(sql, &parameters));
            Ok(())
        })
    }

    /// The cached outputs that match `query`, newest first.
    pub(crate) async fn cached(&self, query: &CacheQuery) -> Result<Vec<CacheRow>, Error> {
        Ok(attempt!(self.link, |connection| cached(connection, query)))
    }

    /// Removes the cached outputs that match `query`. Returns their number.
    pub(crate) async fn forget(&self, query: &CacheQuery) -> Result<u64, Error> {
        let sql = format!("delete from cache where {CONDITION}");
        let (app, pipeline) = (query.app.as_deref().map(str::as_bytes), query.pipeline.as_deref().map(str::as_bytes));
        let parameters: [Parameter<'_>; 3] = [&app, &pipeline, &query.created_before_ms];
        Ok(attempt!(self.link, |connection| connection.execute(&sql, &parameters)))
    }

    fn blob_error(&self, cause: &io::Error) -> Error {
        Error::Store { path: self.link.address().to_string(), why: cause.to_string() }
    }
}

const CONDITION: &str = "($1::bytea is null or app = $1) and ($2::bytea is null or pipeline = $2)
    and ($3::bigint is null or created_at_ms < $3)";

async fn find(connection: &mut Connection, key: Digest, oldest: i64) -> Result<Option<Found>, Fault> {
    let sql = "update cache set hits = hits + 1 where key = $1 and created_at_ms >= $2
        returning body, blob, \"offset\", length, digest";
    let Some(row) = connection.query_opt(sql, &[&&key.as_bytes()[..], &oldest]).await? else { return Ok(None) };
    let body: Option<Vec<u8>> = row.try_get(0)?;
    Ok(Some(match body {
        Some(body) => Found::Text(rows::text(body)?),
        None => {
            let blob: Vec<u8> = row.try_get(1)?;
            // A record will refer to the value. No prune removes it for a day from now on (K-48).
            let sql = "update blobs set uploaded_at = clock_timestamp() where hash = $1 and not is_going";
            if connection.execute(sql, &[&blob]).await? == 0 {
                return Ok(None);
            }
            Found::Blob {
                blob: rows::digest(&blob)?,
                offset: rows::length(row.try_get(2)?),
                len: rows::length(row.try_get(3)?),
                digest: rows::digest(row.try_get(4)?)?,
            }
        }
    }))
}

async fn cached(connection: &mut Connection, query: &CacheQuery) -> Result<Vec<CacheRow>, Fault> {
    let sql = format!(
        "select app, pipeline, step, created_at_ms, length, hits from cache where {CONDITION} order by created_at_ms desc, step"
    );
    let (app, pipeline) = (query.app.as_deref().map(str::as_bytes), query.pipeline.as_deref().map(str::as_bytes));
    let rows = connection.query(&sql, &[&app, &pipeline, &query.created_before_ms]).await?;
    let one = |row: &tokio_postgres::Row| {
        Ok(CacheRow {
            label: CacheLabel {
                app: rows::text(row.try_get(0)?)?,
                pipeline: rows::text(row.try_get(1)?)?,
                step: rows::text(row.try_get(2)?)?,
            },
            created_at_ms: row.try_get(3)?,
            bytes: rows::length(row.try_get(4)?),
            hits: rows::length(row.try_get(5)?),
        })
    };
    rows.iter().map(one).collect()
}

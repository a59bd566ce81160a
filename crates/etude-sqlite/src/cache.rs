//! The cache of outputs.

use std::io;

use etude_core::data::{Json, Stored};
use etude_core::digest::Digest;
use etude_runtime::blob::BlobStore as _;
use etude_runtime::clock::now_ms;
use etude_runtime::engine::{CacheLabel, CacheQuery, CacheRow, Error};
use rusqlite::OptionalExtension as _;

use crate::error::file_error;
use crate::journal::Journal;
use crate::rows;
use crate::text::Place;

/// A row of `cache`: the text, or its blob, offset, length and digest.
type Entry = Result<String, (Digest, u64, u64, Digest)>;

impl Journal {
    /// Looks up an output that is not older than `ttl_ms`.
    pub(crate) fn recall(&self, key: Digest, ttl_ms: Option<u64>) -> Result<Option<Json>, Error> {
        let ttl = ttl_ms.and_then(|ttl| i64::try_from(ttl).ok());
        let oldest = ttl.map_or(i64::MIN, |ttl| now_ms().saturating_sub(ttl));
        let entry = self.pool.read(|connection| {
            connection
                .prepare_cached(
                    "select body, blob, offset, length, digest from cache where key = ?1 and created_at_ms >= ?2",
                )?
                .query_row((&key.as_bytes()[..], oldest), |row| {
                    let body: Option<String> = row.get(0)?;
                    Ok(match body {
                        Some(body) => Entry::Ok(body),
                        None => Err((
                            rows::digest(row, 1)?,
                            rows::length(row, 2)?,
                            rows::length(row, 3)?,
                            rows::digest(row, 4)?,
                        )),
                    })
                })
                .optional()
        })?;
        if entry.is_some() {
            // A lost count does no harm.
            let _ = self.pool.write(|connection| {
                connection
                    .prepare_cached("update cache set hits = hits + 1 where key = ?1")?
                    .execute([&key.as_bytes()[..]])
            });
        }
        match entry {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(Json::trusted(text))),
            Some(Err((blob, offset, len, digest))) => {
                // A record will refer to the value, even if the cache forgets it meanwhile. A value that cannot be renewed can
                // still be read.
                self.blobs.has(blob);
                // The cache syncs no value, so that a loss of power may have emptied it.
                if self.blobs.is_lost(blob) {
                    return Ok(None);
                }
                match self.blobs.open(blob) {
                    Ok(source) => Ok(Some(Json::stored(Stored { blob, offset, len, digest, source }))),
                    // A cache may forget.
                    Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(cause) => Err(file_error(&self.dir.join("blobs"), &cause)),
                }
            }
        }
    }

    /// Caches an output. It is not synced, because it can be computed again.
    pub(crate) fn remember(&self, key: Digest, output: &Json, label: &CacheLabel) -> Result<(), Error> {
        let (place, offset, digest) = match (output.as_stored(), output.inline()) {
            (Some(stored), _) => (Place::Blob(stored.blob), stored.offset, Some(stored.digest)),
            (None, text) => {
                let place = self.place(text.unwrap_or("null"))?;
                (place, 0, place.digest())
            }
        };
        let blob = place.digest();
        self.pool.write(|connection| {
            connection
                .prepare_cached(
                    "insert or replace into cache
                     (key, body, blob, offset, length, digest, created_at_ms, app, pipeline, step)
                     values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                )?
                .execute((
                    &key.as_bytes()[..],
                    place.body(),
                    blob.as_ref().map(|blob| &blob.as_bytes()[..]),
                    rows::from_length(offset),
                    rows::from_length(output.len()),
                    digest.as_ref().map(|digest| &digest.as_bytes()[..]),
                    now_ms(),
                    &label.app,
                    &label.pipeline,
                    &label.step,
                ))
        })?;
        // The row refers to a value that was kept for it.
        self.blobs.let_go(blob.iter().filter(|_| output.as_stored().is_none()));
        Ok(())
    }

    /// The cached outputs that match `query`, newest first.
    pub(crate) fn cached(&self, query: &CacheQuery) -> Result<Vec<CacheRow>, Error> {
        self.pool.read(|connection| {
            let mut statement = connection.prepare_cached(
                "select app, pipeline, step, created_at_ms, coalesce(length, length(cast(body as blob)), 0), hits
                 from cache where (?1 is null or app = ?1) and (?2 is null or pipeline = ?2)
                 and (?3 is null or created_at_ms < ?3) order by created_at_ms desc, step",
            )?;
            let rows = statement.query_map((&query.app, &query.pipeline, query.created_before_ms), |row| {
                let label = CacheLabel { app: row.get(0)?, pipeline: row.get(1)?, step: row.get(2)? };
                let (created_at_ms, hits) = (row.get(3)?, rows::length(row, 5)?);
                Ok(CacheRow { label, created_at_ms, bytes: rows::length(row, 4)?, hits })
            })?;
            rows.collect()
        })
    }

    /// Removes the cached outputs that match `query`. The next prune removes their blobs.
    pub(crate) fn forget(&self, query: &CacheQuery) -> Result<u64, Error> {
        let removed = self.pool.write(|connection| {
            connection.execute(
                "delete from cache where (?1 is null or app = ?1) and (?2 is null or pipeline = ?2)
                 and (?3 is null or created_at_ms < ?3)",
                (&query.app, &query.pipeline, query.created_before_ms),
            )
        })?;
        Ok(removed as u64)
    }
}

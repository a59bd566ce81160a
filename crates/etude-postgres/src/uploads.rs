//! Values that tenants upload (K-56). Each tenant has its own copy: another tenant's copy of a value gives no right to
//! read it.

use etude_core::digest::Digest;

use crate::blobs::CHUNK;
use crate::error::Fault;
use crate::link::Connection;
use crate::rows;

/// Keeps a value of a tenant, or renews it.
pub(crate) async fn keep(connection: &mut Connection, tenant: &str, digest: Digest, bytes: &[u8]) -> Result<(), Fault> {
    let hash = &digest.as_bytes()[..];
    connection.begin();
    let sql = "insert into uploads (tenant, hash, length, uploaded_at) values ($1, $2, $3, clock_timestamp())
        on conflict (tenant, hash) do update set uploaded_at = excluded.uploaded_at returning xmax::text = '0'";
    let row = connection.query_opt(sql, &[&tenant, &hash, &rows::from_length(bytes.len() as u64)]).await?;
    if row.is_some_and(|row| row.get(0)) {
        for (number, chunk) in (0_i32..).zip(bytes.chunks(CHUNK)) {
            let sql = "insert into upload_chunks (tenant, hash, chunk, body) values ($1, $2, $3, $4)";
            connection.execute(sql, &[&tenant, &hash, &number, &chunk]).await?;
        }
    }
    connection.commit().await
}

/// The value of a tenant's upload, among the uploads that are visible here. Bytes with another hash are skipped.
pub(crate) async fn find(connection: &mut Connection, digest: Digest) -> Result<Option<Vec<u8>>, Fault> {
    let hash = &digest.as_bytes()[..];
    let tenants = connection.query("select tenant from uploads where hash = $1 order by tenant", &[&hash]).await?;
    for row in tenants {
        let tenant: String = row.try_get(0)?;
        let sql = "select body from upload_chunks where tenant = $1 and hash = $2 order by chunk";
        let mut bytes = Vec::new();
        for row in connection.query(sql, &[&tenant, &hash]).await? {
            bytes.extend_from_slice(row.try_get(0)?);
        }
        if Digest::of(&bytes) == digest {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

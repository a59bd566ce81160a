//! Messages for runs.

use etude_runtime::engine::{Error, Signal, Signalled};

use crate::error::Fault;
use crate::link::{Connection, attempt};
use crate::rows;
use crate::store::{self, Store};

impl Store {
    /// Leaves a signal; the first one of a key counts.
    pub(crate) async fn signal(&self, run_id: &str, signal: &Signal) -> Result<Signalled, Error> {
        let token = store::random();
        let run = self.find(run_id).await?;
        let left = attempt!(self.link, |connection| leave(connection, run.row.number, signal, token));
        left.ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }
}

/// `None` if the run is pruned at this moment.
async fn leave(connection: &mut Connection, run: i64, signal: &Signal, token: i64) -> Result<Option<Signalled>, Fault> {
    let sql = "insert into signals (run, key, body, token, created_at_ms)
        select run, $2, $3, $4, now_ms() from runs where run = $1 on conflict (run, key) do nothing";
    let left = connection.execute(sql, &[&run, &signal.key, &signal.body.as_bytes(), &token]).await?;
    if left == 1 {
        return Ok(Some(Signalled::Accepted));
    }
    let sql = "select body, token from signals where run = $1 and key = $2";
    let Some(row) = connection.query_opt(sql, &[&run, &signal.key]).await? else { return Ok(None) };
    let by: i64 = row.try_get(1)?;
    Ok(Some(match by == token {
        // An attempt whose reply was lost.
        true => Signalled::Accepted,
        false => Signalled::TooLate(rows::text(row.try_get(0)?)?),
    }))
}

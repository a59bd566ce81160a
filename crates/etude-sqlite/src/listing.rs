//! Looking at runs.

use std::collections::BTreeSet;

use etude_core::digest::Digest;
use etude_runtime::engine::{Error, Query, RunRow, RunState, RunView};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use crate::journal::Journal;
use crate::rows::{self, RUN_COLUMNS, Run};

impl Journal {
    /// The runs that a query asks for, newest first.
    pub(crate) fn list(&self, query: &Query) -> Result<Vec<RunRow>, Error> {
        let runs = self.pool.read(|connection| select(connection, query))?;
        // Who is there now was there before: one look at each holder is enough.
        let mut there = BTreeSet::new();
        let mut one = |run: Run| {
            let others = run.lock_owner.as_ref().filter(|name| !self.is_own(name));
            let is_live = others.is_some_and(|name| there.contains(name)) || self.is_held(&run);
            if is_live || run.state != RunState::Running {
                there.extend(others.filter(|_| is_live).cloned());
                return Ok(Some(row_of(&run, is_live)));
            }
            // One that was let go of since its row was read would seem to be interrupted.
            let now = match self.find(&run.id) {
                Err(Error::Unknown(_)) => return Ok(None),
                found => found?,
            };
            let is_asked_for = query.states.is_empty() || query.states.contains(&now.state);
            Ok(is_asked_for.then(|| row_of(&now, !now.is_as(&run) && self.is_held(&now))))
        };
        runs.into_iter().filter_map(|run| one(run).transpose()).collect()
    }

    /// How many runs a query matches, whatever its limit.
    pub(crate) fn count(&self, query: &Query) -> Result<u64, Error> {
        self.pool.read(|connection| {
            let (conditions, values) = conditions(query);
            let sql = format!("select count(*) from runs where {conditions}");
            connection.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| rows::length(row, 0))
        })
    }

    /// The result document of a run.
    pub(crate) fn result(&self, run_id: &str) -> Result<Option<String>, Error> {
        let number = self.number(run_id)?;
        let result = self.pool.read(|connection| result(connection, number))?;
        result.map(|result| result.or_else(|(blob, len)| self.fetch(blob, len))).transpose()
    }

    /// Everything about the run that `prefix` names or begins to name.
    pub(crate) fn view(&self, prefix: &str) -> Result<RunView, Error> {
        loop {
            let (run, mut view) = self.view_once(prefix)?;
            view.row.is_live = self.is_held(&run);
            if view.row.is_live || run.state != RunState::Running || self.find(&run.id)?.is_as(&run) {
                return Ok(view);
            }
            // Let go of, or taken by somebody, between the two looks: what was seen would seem to be interrupted.
        }
    }

    /// The same from one moment, without output on who has it; and the row.
    fn view_once(&self, prefix: &str) -> Result<(Run, RunView), Error> {
        // All from one state of the journal: a run that goes on meanwhile must not seem to have a result too early.
        let found = self.pool.snapshot(|connection| {
            let Some(run) = find(connection, prefix)? else {
                return Ok(None);
            };
            let run = match run {
                Ok(run) => run,
                Err(count) => return Ok(Some(Err(count))),
            };
            let records = rows::records(connection, run.number)?;
            let signals = rows::signals(connection, run.number)?;
            let result = result(connection, run.number)?;
            let created = run.created(connection)?;
            Ok(Some(Ok((run, created, records, signals, result))))
        })?;
        let (row, run, records, signals, result) = match found {
            Some(Ok(found)) => found,
            Some(Err(count)) => {
                return Err(Error::Ambiguous { prefix: prefix.to_owned(), count });
            }
            None => return Err(Error::Unknown(prefix.to_owned())),
        };
        let result = result.map(|result| result.or_else(|(blob, len)| self.fetch(blob, len))).transpose()?;
        let view = RunView { row: row_of(&row, false), run, records, signals, result };
        Ok((row, view))
    }
}

fn row_of(run: &Run, is_live: bool) -> RunRow {
    RunRow {
        id: run.id.clone(),
        app: run.app.clone(),
        target: run.target.clone(),
        state: run.state,
        is_live,
        created_at_ms: run.created_at_ms,
        changed_at_ms: run.changed_at_ms,
    }
}

/// The run of this id, or the only one whose id begins so; how many there are, if there are several.
fn find(connection: &Connection, prefix: &str) -> rusqlite::Result<Option<Result<Run, u64>>> {
    if let Some(run) = Run::find(connection, prefix)? {
        return Ok(Some(Ok(run)));
    }
    if prefix.is_empty() {
        return Ok(None);
    }
    // Every id that begins so lies between the prefix and the prefix followed by the last character there is.
    let range = "from runs where id >= ?1 and id < ?1 || char(0x10ffff)";
    let count = format!("select count(*) {range}");
    let count = connection.prepare_cached(&count)?.query_row([prefix], |row| rows::length(row, 0))?;
    match count {
        0 => Ok(None),
        1 => {
            let sql = format!("select {RUN_COLUMNS} {range}");
            connection.prepare_cached(&sql)?.query_row([prefix], Run::from_row).map(|run| Some(Ok(run)))
        }
        count => Ok(Some(Err(count))),
    }
}

/// The result document of a run: its text, or the blob that holds it with its length.
fn result(connection: &Connection, number: i64) -> rusqlite::Result<Option<Result<String, (Digest, u64)>>> {
    connection
        .prepare_cached("select body, blob, length from results where run = ?1")?
        .query_row([number], |row| {
            let body: Option<String> = row.get(0)?;
            Ok(match body {
                Some(body) => Ok(body),
                None => Err((rows::digest(row, 1)?, rows::length(row, 2)?)),
            })
        })
        .optional()
}

/// The `where` clause of a query, with the values of its parameters.
fn conditions(query: &Query) -> (String, Vec<Value>) {
    let mut conditions = vec!["true".to_owned()];
    let mut values = Vec::new();
    let mut value = |value: Value| {
        values.push(value);
        format!("?{}", values.len())
    };
    if let Some(app) = &query.app {
        conditions.push(format!("app = {}", value(app.clone().into())));
    }
    if let Some(target) = &query.target {
        conditions.push(format!("target = {}", value(target.clone().into())));
    }
    if !query.states.is_empty() {
        let words: Vec<_> = query.states.iter().map(|state| value(state.word().to_owned().into())).collect();
        conditions.push(format!("state in ({})", words.join(", ")));
    }
    if let Some(before) = query.created_before_ms {
        conditions.push(format!("created_at_ms < {}", value(before.into())));
    }
    if let Some(since) = query.created_since_ms {
        conditions.push(format!("created_at_ms >= {}", value(since.into())));
    }
    (conditions.join(" and "), values)
}

/// The rows of the runs that a query asks for, newest first.
pub(crate) fn select(connection: &Connection, query: &Query) -> rusqlite::Result<Vec<Run>> {
    let (conditions, mut values) = conditions(query);
    values.push(query.limit.map_or(-1, i64::from).into());
    let limit = format!("?{}", values.len());
    let sql = format!(
        "select {RUN_COLUMNS} from runs where {conditions} order by created_at_ms desc, number desc limit {limit}"
    );
    connection.prepare_cached(&sql)?.query_map(params_from_iter(values), Run::from_row)?.collect()
}

//! Reading runs: lists, counts and single runs.

use std::collections::BTreeSet;

use etude_core::digest::Digest;
use etude_runtime::engine::{Cause, Counts, Cursor, Error, Query, Record, RunRow, RunState, RunView};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use crate::journal::Journal;
use crate::rows::{self, RUN_COLUMNS, Run, Unreadable};

impl Journal {
    /// The runs that match a query, newest first.
    pub(crate) fn list(&self, query: &Query) -> Result<Vec<RunRow>, Error> {
        let Some(limit) = query.limit else {
            return self.page(query).map(|(rows, _)| rows);
        };
        // The journal does not know if a process has a run, and pages leave out damaged runs: this reads pages until there are
        // enough rows.
        let (mut rows, mut query) = (Vec::new(), query.clone());
        while (rows.len() as u64) < u64::from(limit) {
            let (page, last) = self.page(&query)?;
            rows.extend(page);
            query.after = last;
            if last.is_none() {
                break;
            }
        }
        rows.truncate(limit as usize);
        Ok(rows)
    }

    /// The runs that match a query, and the start of the next page, if there may be one.
    fn page(&self, query: &Query) -> Result<(Vec<RunRow>, Option<Cursor>), Error> {
        let runs = self.pool.read(|connection| select(connection, query))?;
        let is_full = query.limit.is_some_and(|limit| runs.len() as u64 >= u64::from(limit));
        let last = runs.last().filter(|_| is_full).map(place_of);
        let runs = self.readable(runs);
        let asks = |row: &RunRow| {
            let is_running = row.state == RunState::Running;
            query.is_interrupted.is_none_or(|is_interrupted| !is_running || row.is_live != is_interrupted)
        };
        let rows = self.rows(runs, |state| query.states.is_empty() || query.states.contains(&state))?;
        Ok((rows.into_iter().filter(asks).collect(), last))
    }

    /// The runs without damaged ones, which are noted.
    pub(crate) fn readable(&self, runs: Vec<Result<Run, Unreadable>>) -> Vec<Run> {
        let mut damaged = Vec::new();
        let readable = runs.into_iter().filter_map(|run| run.map_err(|unreadable| damaged.push(unreadable.run)).ok());
        let readable = readable.collect();
        self.damaged.note(damaged);
        readable
    }

    /// These runs with the state of their drivers' locks. Runs that have left the requested states meanwhile are left out.
    pub(crate) fn rows(&self, runs: Vec<Run>, is_asked_for: impl Fn(RunState) -> bool) -> Result<Vec<RunRow>, Error> {
        // A holder that is alive now was alive before: one look at each holder is enough.
        let mut there = BTreeSet::new();
        let mut one = |run: Run| {
            let others = run.lock_owner.as_ref().filter(|name| !self.is_own(name));
            let is_live = others.is_some_and(|name| there.contains(name)) || self.is_held(&run);
            if is_live || run.state != RunState::Running {
                there.extend(others.filter(|_| is_live).cloned());
                return Ok(Some(row_of(run, is_live)));
            }
            // A run that was released since its row was read would appear as interrupted.
            let now = match self.find(&run.id) {
                Err(Error::Unknown(_)) => return Ok(None),
                found => found?,
            };
            let is_live = !now.is_as(&run) && self.is_held(&now);
            Ok(is_asked_for(now.state).then(|| row_of(now, is_live)))
        };
        runs.into_iter().filter_map(|run| one(run).transpose()).collect()
    }

    /// The number of runs that match a query, ignoring its limit.
    pub(crate) fn count(&self, query: &Query) -> Result<u64, Error> {
        if query.is_interrupted.is_some() {
            return Ok(self.list(&Query { limit: None, ..query.clone() })?.len() as u64);
        }
        self.pool.read(|connection| {
            let Selection { from, conditions, values, .. } = Selection::new(query, None);
            let sql = format!("select count(*) from {from} where {conditions}");
            let all =
                connection.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| rows::length(row, 0))?;
            Ok(all.saturating_sub(unreadable(connection, query)?.len() as u64))
        })
    }

    /// The number of runs of each status that match a query, ignoring its limit.
    pub(crate) fn counts(&self, query: &Query) -> Result<Counts, Error> {
        let query = Query { limit: None, after: None, ..query.clone() };
        let asks = |state: RunState| query.states.is_empty() || query.states.contains(&state);
        let by_state = self.pool.read(|connection| {
            let Selection { from, conditions, values, .. } = Selection::new(&query, None);
            let sql = format!("select state, count(*) from {from} where {conditions} group by state");
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map(params_from_iter(values), |row| Ok((row.get(0)?, rows::length(row, 1)?)))?;
            let mut by_state = rows.collect::<rusqlite::Result<Vec<(String, u64)>>>()?;
            for damaged in unreadable(connection, &query)? {
                by_state.iter_mut().filter(|(word, _)| *word == damaged.state).for_each(|(_, number)| *number -= 1);
            }
            Ok(by_state)
        })?;
        let mut counts = Counts::default();
        for (word, number) in by_state {
            if let Some(state) = RunState::from_word(&word).filter(|state| *state != RunState::Running) {
                counts.add(state, false, number);
            }
        }
        if asks(RunState::Running) {
            for row in self.list(&Query { states: vec![RunState::Running], ..query.clone() })? {
                counts.add(row.state, row.is_live, 1);
            }
        }
        Ok(counts)
    }

    /// The row of the run with this complete id.
    pub(crate) fn row(&self, run_id: &str) -> Result<RunRow, Error> {
        let rows = self.rows(vec![self.find(run_id)?], |_| true)?;
        rows.into_iter().next().ok_or_else(|| Error::Unknown(run_id.to_owned()))
    }

    /// The result document of a run.
    pub(crate) fn result(&self, run_id: &str) -> Result<Option<String>, Error> {
        let number = self.number(run_id)?;
        let result = self.pool.read(|connection| result(connection, number))?;
        result.map(|result| result.or_else(|(blob, len)| self.fetch(blob, len))).transpose()
    }

    /// The view of the run with the id or id prefix `prefix`.
    pub(crate) fn view(&self, prefix: &str) -> Result<RunView, Error> {
        self.read_view(prefix, true)
    }

    /// The same without its records and signals.
    pub(crate) fn outline(&self, prefix: &str) -> Result<RunView, Error> {
        self.read_view(prefix, false)
    }

    /// The records with `key`, in order: an effect that was done again has several.
    pub(crate) fn records_of(&self, run_id: &str, key: &str) -> Result<Vec<Record>, Error> {
        let number = self.number(run_id)?;
        self.pool.read(|connection| rows::records_of(connection, number, key))
    }

    fn read_view(&self, prefix: &str, is_whole: bool) -> Result<RunView, Error> {
        loop {
            let (run, mut view) = self.view_once(prefix, is_whole)?;
            view.row.is_live = self.is_held(&run);
            if view.row.is_live || run.state != RunState::Running || self.find(&run.id)?.is_as(&run) {
                return Ok(view);
            }
            // If the run was released or taken between the two reads, it would appear as interrupted, so read it again.
        }
    }

    /// The same from one snapshot, without the state of its lock; and the row.
    fn view_once(&self, prefix: &str, is_whole: bool) -> Result<(Run, RunView), Error> {
        // All from one state of the journal: a run that continues meanwhile must not appear to have a result too early.
        let found = self.pool.snapshot(|connection| {
            let Some(run) = find(connection, prefix)? else {
                return Ok(None);
            };
            let run = match run {
                Ok(run) => run,
                Err(count) => return Ok(Some(Err(count))),
            };
            let (records, signals) = match is_whole {
                true => (rows::records(connection, run.number)?, rows::signals(connection, run.number)?),
                false => (Vec::new(), Vec::new()),
            };
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
        let view = RunView { row: row_of(row.clone(), false), run, records, signals, result };
        Ok((row, view))
    }
}

/// The damaged runs that match a query, ignoring its limit.
fn unreadable(connection: &Connection, query: &Query) -> rusqlite::Result<Vec<Unreadable>> {
    let Selection { from, conditions, values, .. } = Selection::new(query, None);
    let sql = format!("select {RUN_COLUMNS} from {from} where {conditions} and {}", rows::is_suspect());
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), Run::readable)?;
    rows.filter_map(|run| run.map(Result::err).transpose()).collect()
}

fn row_of(run: Run, is_live: bool) -> RunRow {
    RunRow {
        id: run.id,
        number: run.number,
        app: run.app,
        target: run.target,
        state: run.state,
        is_live,
        worker: None,
        created_at_ms: run.created_at_ms,
        started_at_ms: run.started_at_ms,
        changed_at_ms: run.changed_at_ms,
        change: run.change,
        placement: run.placement,
    }
}

fn cursor_of(run: &Run) -> Cursor {
    Cursor { created_at_ms: run.created_at_ms, number: run.number }
}

/// The place of a run in lists.
fn place_of(run: &Result<Run, Unreadable>) -> Cursor {
    run.as_ref().map_or_else(|unreadable| unreadable.cursor, cursor_of)
}

/// The run with this id, or the only one whose id begins so; `Err` has the number of runs if there are several.
fn find(connection: &Connection, prefix: &str) -> rusqlite::Result<Option<Result<Run, u64>>> {
    if let Some(run) = Run::find(connection, prefix)? {
        return Ok(Some(Ok(run)));
    }
    if prefix.is_empty() {
        return Ok(None);
    }
    // All matching ids are between the prefix and the prefix followed by the last character of Unicode.
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
pub(crate) fn result(connection: &Connection, number: i64) -> rusqlite::Result<Option<Result<String, (Digest, u64)>>> {
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

/// A query as SQL.
struct Selection {
    from: String,
    conditions: String,
    values: Vec<Value>,
    /// The columns that order the list.
    order: [&'static str; 2],
}

impl Selection {
    /// Selects by `query`; `state`, if given, replaces the query's states.
    fn new(query: &Query, state: Option<RunState>) -> Self {
        let mut parts = Parts::default();
        let mut labels = query.labels.iter();
        let (from, [age, number]) = match labels.next() {
            // In the order of the index of labels.
            Some((key, value)) => {
                let (key, value) = (parts.value(key.clone()), parts.value(value.clone()));
                let of = format!(
                    "(select created_at_ms as age, run as labelled from labels where key = {key} and value = {value})"
                );
                (format!("{of} cross join runs on number = labelled"), ["age", "labelled"])
            }
            None => ("runs".to_owned(), ["created_at_ms", "number"]),
        };
        for (key, value) in labels {
            let (key, value) = (parts.value(key.clone()), parts.value(value.clone()));
            let sql = format!("exists (select 1 from labels where key = {key} and value = {value} and run = number)");
            parts.conditions.push(sql);
        }
        let states = state.map_or_else(|| query.states.clone(), |state| vec![state]);
        parts.any_of("state", states.iter().map(|state| state.word().to_owned()).collect());
        parts.any_of("app", query.apps.clone());
        parts.compare("target", "=", query.target.clone());
        parts.compare("id", "=", query.id.clone());
        parts.compare("limit_group", "=", query.limit_group.clone());
        parts.compare("coalesce(tenant, 'default')", "=", query.tenant.clone());
        parts.compare(age, "<", query.created_before_ms);
        parts.compare(age, ">=", query.created_since_ms);
        match query.cause {
            Some(Cause::Cli) => parts.conditions.push("cause is null".to_owned()),
            cause => parts.compare("cause", "=", cause.map(|cause| cause.word().to_owned())),
        }
        if let Some(text) = &query.text {
            let text = parts.value(text.clone());
            parts.conditions.push(format!(
                "((id >= {text} and id < {text} || char(0x10ffff))
                  or instr(substr(target, instr(target, ':') + 1), {text}) > 0
                  or (runs.labels is not null and exists
                      (select 1 from labels where run = number and instr(key || ':' || value, {text}) > 0)))"
            ));
        }
        if let Some(Cursor { created_at_ms, number: last }) = query.after {
            let (at, last) = (parts.value(created_at_ms), parts.value(last));
            parts.conditions.push(format!("({age}, {number}) < ({at}, {last})"));
        }
        let Parts { conditions, values } = parts;
        let conditions = if conditions.is_empty() { "true".to_owned() } else { conditions.join(" and ") };
        Self { from, conditions, values, order: [age, number] }
    }

    /// The selected rows, newest first.
    fn rows(self, connection: &Connection, limit: Option<u32>) -> rusqlite::Result<Vec<Result<Run, Unreadable>>> {
        let (sql, values) = self.statement(limit);
        connection.prepare_cached(&sql)?.query_map(params_from_iter(values), Run::readable)?.collect()
    }

    /// The SQL that selects the rows, and the values of its parameters.
    fn statement(self, limit: Option<u32>) -> (String, Vec<Value>) {
        let Self { from, conditions, mut values, order: [age, number] } = self;
        values.push(limit.map_or(-1, i64::from).into());
        let limit = values.len();
        let sql = format!(
            "select {RUN_COLUMNS} from {from} where {conditions} order by {age} desc, {number} desc limit ?{limit}"
        );
        (sql, values)
    }
}

/// Conditions and the values of their parameters.
#[derive(Default)]
struct Parts {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Parts {
    /// The placeholder of a new parameter with this value.
    fn value(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    fn compare(&mut self, column: &str, operator: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            let value = self.value(value);
            self.conditions.push(format!("{column} {operator} {value}"));
        }
    }

    /// Requires one of these values; an empty list allows any.
    fn any_of(&mut self, column: &str, values: Vec<String>) {
        let names: Vec<String> = values.into_iter().map(|value| self.value(value)).collect();
        match &names[..] {
            [] => {}
            [name] => self.conditions.push(format!("{column} = {name}")),
            _ => self.conditions.push(format!("{column} in ({})", names.join(", "))),
        }
    }
}

/// The rows of the runs that match a query, newest first.
pub(crate) fn select(connection: &Connection, query: &Query) -> rusqlite::Result<Vec<Result<Run, Unreadable>>> {
    if query.states.len() < 2 || query.limit.is_none() {
        return Selection::new(query, None).rows(connection, query.limit);
    }
    // Within each state, the index of states has the order of the list.
    let mut runs = Vec::new();
    for state in &query.states {
        runs.extend(Selection::new(query, Some(*state)).rows(connection, query.limit)?);
    }
    runs.sort_by_key(|run| std::cmp::Reverse(place_of(run)));
    runs.truncate(query.limit.map_or(usize::MAX, |limit| limit as usize));
    Ok(runs)
}

#[cfg(test)]
mod tests;

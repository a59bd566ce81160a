//! Lists, counts and views of runs.

use etude_runtime::engine::{
    COSTS, Cause, Counts, Cursor, DamagedRun, Error, Query, Record, RunRow, RunState, RunView,
};
use etude_runtime::record::{ATTEMPT, REOPENED};

use crate::connection::Value;
use crate::error::Fault;
use crate::grant::book_of;
use crate::link::{Connection, Parameter, attempt};
use crate::rows::{self, IS_LIVE, Run, columns};
use crate::store::Store;

impl Store {
    /// The runs that match a query, newest first.
    pub(crate) async fn list(&self, query: &Query) -> Result<Vec<RunRow>, Error> {
        let (rows, damaged) = attempt!(self.link, |connection| select(connection, query));
        self.damaged.note(damaged);
        Ok(rows)
    }

    /// The plan of [`Store::list`].
    pub(crate) async fn plan_of_list(&self, query: &Query) -> Result<String, Error> {
        Ok(attempt!(self.link, |connection| plan(connection, query)))
    }

    /// Number of runs that match a query; its limit is ignored.
    pub(crate) async fn count(&self, query: &Query) -> Result<u64, Error> {
        Ok(attempt!(self.link, |connection| count(connection, query)))
    }

    /// Number of runs per status that match a query; its limit is ignored.
    pub(crate) async fn counts(&self, query: &Query) -> Result<Counts, Error> {
        let query = Query { limit: None, after: None, ..query.clone() };
        Ok(attempt!(self.link, |connection| counts(connection, &query)))
    }

    /// Cost of the runs of a tenant that were created at `since_ms` or later, in US dollars.
    pub(crate) async fn cost_since(&self, tenant: &str, since_ms: i64) -> Result<f64, Error> {
        Ok(attempt!(self.link, |connection| cost_since(connection, tenant, since_ms)))
    }

    /// The ids of the same runs that have been continued and have no result again yet.
    pub(crate) async fn continued_since(&self, tenant: &str, since_ms: i64) -> Result<Vec<String>, Error> {
        Ok(attempt!(self.link, |connection| continued_since(connection, tenant, since_ms)))
    }

    /// The result document of a run.
    pub(crate) async fn result(&self, run_id: &str) -> Result<Option<String>, Error> {
        let run = self.find(run_id).await?;
        Ok(attempt!(self.link, |connection| rows::result(connection, run.row.number)))
    }

    /// Everything about the run that `prefix` names or begins to name.
    pub(crate) async fn view(&self, prefix: &str) -> Result<RunView, Error> {
        Ok(attempt!(self.link, |connection| view(connection, prefix, true)))
    }

    /// Like [`Store::view`], without records and signals.
    pub(crate) async fn outline(&self, prefix: &str) -> Result<RunView, Error> {
        Ok(attempt!(self.link, |connection| view(connection, prefix, false)))
    }

    /// The records of a run with this key.
    pub(crate) async fn records_of(&self, run_id: &str, key: &str) -> Result<Vec<Record>, Error> {
        let run = self.find(run_id).await?;
        Ok(attempt!(self.link, |connection| rows::records_of(connection, run.row.number, key)))
    }
}

/// The runs that match a query, and those that would but cannot be read.
async fn select(connection: &mut Connection, query: &Query) -> Result<(Vec<RunRow>, Vec<DamagedRun>), Fault> {
    let (mut found, mut damaged, mut query) = (Vec::new(), Vec::new(), query.clone());
    loop {
        let (sql, selection) = statement(&query);
        connection.next_is_list();
        let rows = connection.query(&sql, &selection.parameters()).await?;
        let before = damaged.len();
        rows::readable(&rows, &mut found, &mut damaged)?;
        // A full page without its damaged runs has room for others.
        let missing = damaged.len() - before;
        let is_full = query.limit.is_some_and(|limit| rows.len() as u64 >= u64::from(limit));
        let Some(last) = rows.last().filter(|_| is_full && missing > 0) else { return Ok((found, damaged)) };
        query.after = Some(Cursor { created_at_ms: last.try_get("created_at_ms")?, number: last.try_get("run")? });
        query.limit = Some(u32::try_from(missing).unwrap_or(u32::MAX));
    }
}

/// The statement of a list. Each long part of it has an index in the order of the list, so that the first page of any
/// number of runs is a scan of one index (K-59). With a label, that is the index of labels.
fn statement(query: &Query) -> (String, Selection) {
    let labels = query.labels.iter().skip(1).cloned().collect();
    let mut selection = Selection::new(&Query { labels, ..query.clone() });
    let limit = selection.value(query.limit.map(i64::from));
    let (from, order) = match query.labels.first() {
        None => ("runs".to_owned(), "created_at_ms desc, run desc"),
        Some((key, value)) => {
            let (key, value) = (selection.bytes(key), selection.bytes(value));
            let after = query.after.as_ref().map_or_else(String::new, |after| {
                let (at, last) = (selection.value(after.created_at_ms), selection.value(after.number));
                format!(" and (created_at_ms, run) < ({at}, {last})")
            });
            let listed = format!(
                "(select run, created_at_ms as listed_at from labels where key = {key} and value = {value}{after}) as listed
                 join runs using (run)"
            );
            (listed, "listed.listed_at desc, listed.run desc")
        }
    };
    let sql =
        format!("select {} from {from} where {} order by {order} limit {limit}", columns(), selection.conditions());
    (sql, selection)
}

/// The query plan of a list.
pub(crate) async fn plan(connection: &mut Connection, query: &Query) -> Result<String, Fault> {
    let (sql, selection) = statement(query);
    connection.next_is_list();
    let rows = connection.query(&format!("explain {sql}"), &selection.parameters()).await?;
    let lines = rows.iter().map(|row| row.try_get::<_, String>(0)).collect::<Result<Vec<_>, _>>()?;
    Ok(lines.join("\n"))
}

async fn count(connection: &mut Connection, query: &Query) -> Result<u64, Fault> {
    let selection = Selection::new(query);
    let sql = format!("select count(*) from runs where {}", selection.conditions());
    connection.next_is_list();
    let row = connection.query_opt(&sql, &selection.parameters()).await?;
    Ok(row.map_or(Ok(0), |row| row.try_get(0).map(rows::length))?)
}

/// The sum of `usage.cost_usd` of result documents. An output may have escapes of characters that no text of the
/// database can hold: each is replaced by another escape, which changes neither the structure nor the names that are
/// read.
async fn cost_since(connection: &mut Connection, tenant: &str, since_ms: i64) -> Result<f64, Fault> {
    if tenant.contains('\0') {
        return Ok(0.0);
    }
    let sql = r"select
        (select coalesce(sum((replace(convert_from(body, 'UTF8'), '\u', '\n')::json
                -> 'members' -> 'usage' ->> 'cost_usd')::float8), 0)
            from runs join results using (run)
            where tenant = $1 and created_at_ms >= $2 and state not in ('queued', 'running', 'moved'))
        + (select coalesce(sum((replace(convert_from(body, 'UTF8'), '\u', '\n')::json ->> 'cost_usd')::float8), 0)
            from entries where book = $3 and at_ms >= $2)";
    connection.next_is_list();
    let row = connection.query_opt(sql, &[&tenant, &since_ms, &book_of(tenant, COSTS)]).await?;
    Ok(row.map_or(Ok(0.0), |row| row.try_get(0))?)
}

/// Runs in progress whose earlier attempts have no result document any more.
async fn continued_since(connection: &mut Connection, tenant: &str, since_ms: i64) -> Result<Vec<String>, Fault> {
    if tenant.contains('\0') {
        return Ok(Vec::new());
    }
    let sql = "select id from runs
        where tenant = $1 and created_at_ms >= $2 and state in ('queued', 'running')
            and exists (select 1 from records where records.run = runs.run and records.key in ($3, $4))";
    connection.next_is_list();
    let rows = connection.query(sql, &[&tenant, &since_ms, &ATTEMPT, &REOPENED]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

async fn counts(connection: &mut Connection, query: &Query) -> Result<Counts, Fault> {
    let selection = Selection::new(query);
    let sql = format!(
        "select state, state = 'running' and {IS_LIVE}, count(*) from runs where {} group by 1, 2",
        selection.conditions()
    );
    connection.next_is_list();
    let mut counts = Counts::default();
    for row in connection.query(&sql, &selection.parameters()).await? {
        let word: String = row.try_get(0)?;
        if let Some(state) = RunState::from_word(&word) {
            counts.add(state, row.try_get(1)?, rows::length(row.try_get(2)?));
        }
    }
    Ok(counts)
}

/// Reads from one snapshot: a run that continues meanwhile must not seem to have a result too early.
async fn view(connection: &mut Connection, prefix: &str, is_whole: bool) -> Result<RunView, Fault> {
    connection.begin_as("begin transaction isolation level repeatable read read only");
    let view = view_within(connection, prefix, is_whole).await;
    connection.roll_back().await?;
    view
}

async fn view_within(connection: &mut Connection, prefix: &str, is_whole: bool) -> Result<RunView, Fault> {
    let run = find(connection, prefix).await?;
    let number = run.row.number;
    let (records, signals) = match is_whole {
        true => (rows::records(connection, number).await?, rows::signals(connection, number).await?),
        false => (Vec::new(), Vec::new()),
    };
    Ok(RunView {
        run: run.created(connection).await?,
        records,
        signals,
        result: rows::result(connection, number).await?,
        row: run.row,
    })
}

/// The run of this id, or the only one whose id begins with it.
async fn find(connection: &mut Connection, prefix: &str) -> Result<Run, Fault> {
    if let Some(run) = Run::find(connection, prefix).await? {
        return Ok(run);
    }
    let unknown = || Fault::Engine(Error::Unknown(prefix.to_owned()));
    if prefix.is_empty() || prefix.contains('\0') {
        return Err(unknown());
    }
    let begins = "id >= $1 and starts_with(id, $1)";
    let sql = format!("select count(*) from runs where {begins}");
    let count = connection.query_opt(&sql, &[&prefix]).await?;
    match count.map_or(Ok(0), |row| row.try_get(0).map(rows::length))? {
        0 => Err(unknown()),
        1 => {
            let sql = format!("select {} from runs where {begins}", columns());
            connection.query_opt(&sql, &[&prefix]).await?.as_ref().map_or_else(|| Err(unknown()), Run::from_row)
        }
        count => Err(Error::Ambiguous { prefix: prefix.to_owned(), count }.into()),
    }
}

/// A query as SQL conditions and values.
#[derive(Default)]
pub(crate) struct Selection {
    conditions: Vec<String>,
    values: Vec<Box<dyn Value + Sync + Send>>,
}

impl Selection {
    pub(crate) fn new(query: &Query) -> Self {
        let mut selection = Self::default();
        for (key, value) in &query.labels {
            let (key, value) = (selection.bytes(key), selection.bytes(value));
            selection.conditions.push(format!(
                "exists (select 1 from labels where labels.key = {key} and labels.value = {value} and labels.run = runs.run)"
            ));
        }
        selection.any_of("state", query.states.iter().map(|state| state.word().to_owned()).collect());
        selection.any_of("app", query.apps.clone());
        selection.any_of("target", query.target.iter().cloned().collect());
        selection.any_of("id", query.id.iter().cloned().collect());
        if let Some(group) = &query.limit_group {
            let group = selection.bytes(group);
            selection.conditions.push(format!("limit_group = {group}"));
        }
        selection.any_of("tenant", query.tenant.iter().cloned().collect());
        selection.compare("created_at_ms <", query.created_before_ms);
        selection.compare("created_at_ms >=", query.created_since_ms);
        match query.cause {
            None => {}
            Some(Cause::Cli) => selection.conditions.push("cause is null".to_owned()),
            Some(cause) => selection.any_of("cause", vec![cause.word().to_owned()]),
        }
        if let Some(is_interrupted) = query.is_interrupted {
            let live = if is_interrupted { "not " } else { "" };
            selection.conditions.push(format!("(state <> 'running' or {live}{IS_LIVE})"));
        }
        if let Some(text) = &query.text {
            let text = selection.bytes(text);
            selection.conditions.push(format!(
                "(substring(convert_to(id, 'UTF8') from 1 for length({text})) = {text}
                  or position({text} in convert_to(substr(target, position(':' in target) + 1), 'UTF8')) > 0
                  or (runs.labels is not null and exists (select 1 from labels where labels.run = runs.run
                      and position({text} in labels.key || '\\x3a'::bytea || labels.value) > 0)))"
            ));
        }
        if let Some(Cursor { created_at_ms, number }) = query.after {
            let (at, last) = (selection.value(created_at_ms), selection.value(number));
            selection.conditions.push(format!("(created_at_ms, run) < ({at}, {last})"));
        }
        selection
    }

    fn conditions(&self) -> String {
        if self.conditions.is_empty() { "true".to_owned() } else { self.conditions.join(" and ") }
    }

    fn parameters(&self) -> Vec<Parameter<'_>> {
        self.values.iter().map(|value| &**value as Parameter<'_>).collect()
    }

    /// The name of a parameter with this value.
    fn value(&mut self, value: impl Value + Sync + Send + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    fn bytes(&mut self, text: &str) -> String {
        let name = self.value(text.as_bytes().to_vec());
        format!("{name}::bytea")
    }

    fn compare(&mut self, comparison: &str, value: Option<i64>) {
        if let Some(value) = value {
            let value = self.value(value);
            self.conditions.push(format!("{comparison} {value}"));
        }
    }

    /// Adds a condition for any of these values; an empty list adds none. No column holds a text with a NUL.
    fn any_of(&mut self, column: &str, mut values: Vec<String>) {
        if !values.is_empty() {
            values.retain(|value| !value.contains('\0'));
            // Equality keeps the order of an index.
            let condition = match <[String; 1]>::try_from(values) {
                Ok([value]) => format!("{column} = {}", self.value(value)),
                Err(values) => format!("{column} = any({}::text[])", self.value(values)),
            };
            self.conditions.push(condition);
        }
    }
}

/// The finished runs of a query that no session has.
pub(crate) async fn finished(connection: &mut Connection, query: &Query) -> Result<Vec<RunRow>, Fault> {
    let asked = |state: &RunState| query.states.is_empty() || query.states.contains(state);
    let states: Vec<_> = RunState::ALL.into_iter().filter(|state| state.is_final() && asked(state)).collect();
    // An empty list would match every state.
    if states.is_empty() {
        return Ok(Vec::new());
    }
    let (mut rows, _) = select(connection, &Query { states, ..query.clone() }).await?;
    rows.retain(|row| !row.is_live);
    Ok(rows)
}

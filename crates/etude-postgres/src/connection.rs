//! A connection: its statements and its transactions.
//!
//! Behind a pooler that shares sessions, each transaction may have another session. Session state is then sent with
//! each transaction: the settings, and each statement without a name (ADR 0121).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use crate::error::Fault;
pub(crate) use crate::value::{Parameter, Value};

/// Settings of each session.
///
/// A process that is stopped inside a transaction must not block others. All statements except lists read few rows by
/// an index: compiling one, or planning it each time, costs more than running it. Their plans use indexes regardless of
/// the statistics: a table that was empty at the last analysis may have a million rows before the next one, and until
/// then an append would read them all.
///
/// A role or a server may limit the time of statements and of idle sessions, or have another level of isolation. A long
/// statement, such as one of a prune, must not fail for that, and a transaction that counts runs after it has waited for
/// a lock must see those that others have committed meanwhile (K-33).
pub(crate) const SETTINGS: &str = "set statement_timeout = 0; set idle_session_timeout = 0; \
    set default_transaction_isolation = 'read committed'; \
    set idle_in_transaction_session_timeout = 3000; set lock_timeout = 3000; set jit = off; \
    set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_bitmapscan = off";

/// A default of the session has no effect where each transaction may have another session.
pub(crate) const BEGIN: &str = "begin isolation level read committed";

/// A list may read many rows, and the best index depends on the query, so each list is planned for itself.
const FOR_LISTS: &str = "begin isolation level read committed; set local plan_cache_mode = force_custom_plan; set local enable_seqscan = on; set local enable_bitmapscan = on";

/// A connection with its prepared statements.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    /// Version of TLS, if the connection is encrypted.
    encryption: Option<&'static str>,
    /// Settings of each transaction, if each may have another session.
    settings: Option<Arc<str>>,
    statements: HashMap<String, Statement>,
    /// The statement that begins a transaction, sent before the next statement.
    begins: Option<&'static str>,
    /// True if a commit is sent after the next statement.
    ends: bool,
    /// True if the next statement belongs to a transaction.
    is_within: bool,
}

impl Connection {
    /// Opens a connection that keeps its session, and applies the settings.
    pub(crate) async fn kept(client: Client, encryption: Option<&'static str>, schema: &str) -> Result<Self, Fault> {
        client.batch_execute(&settings(schema)).await?;
        Ok(Self::new(client, encryption, None))
    }

    /// Opens a connection whose transactions may each have another session.
    pub(crate) fn shared(client: Client, encryption: Option<&'static str>, schema: &str) -> Self {
        let settings = settings(schema).replace("set ", "set local ");
        Self::new(client, encryption, Some(settings.into()))
    }

    fn new(client: Client, encryption: Option<&'static str>, settings: Option<Arc<str>>) -> Self {
        Self { client, encryption, settings, statements: HashMap::new(), begins: None, ends: false, is_within: false }
    }

    /// Version of TLS, if the connection is encrypted.
    pub(crate) fn encryption(&self) -> Option<&'static str> {
        self.encryption
    }

    /// True if the connection keeps one session for its whole life.
    pub(crate) fn keeps_session(&self) -> bool {
        self.settings.is_none()
    }

    /// True if the connection is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Begins a transaction together with the next statement: it is sent first, and its reply is not awaited separately.
    pub(crate) fn begin(&mut self) {
        self.begin_as(BEGIN);
    }

    /// Like [`Connection::begin`], with the given beginning, which may include settings of the transaction.
    pub(crate) fn begin_as(&mut self, begins: &'static str) {
        self.begins = Some(begins);
        self.is_within = true;
    }

    /// Marks the next statement as a list, planned with [`FOR_LISTS`].
    pub(crate) fn next_is_list(&mut self) {
        self.begin_as(FOR_LISTS);
        self.commit_with_next();
    }

    /// Commits the transaction together with the next statement. If the statement fails, nothing is committed.
    pub(crate) fn commit_with_next(&mut self) {
        self.ends = true;
    }

    /// Commits the transaction.
    pub(crate) async fn commit(&mut self) -> Result<(), Fault> {
        self.end("commit").await
    }

    /// Rolls the transaction back.
    pub(crate) async fn roll_back(&mut self) -> Result<(), Fault> {
        self.end("rollback").await
    }

    async fn end(&mut self, word: &'static str) -> Result<(), Fault> {
        self.batch(word).await?;
        self.is_within = false;
        Ok(())
    }

    pub(crate) async fn query(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Fault> {
        if self.keeps_session() {
            let (statement, values) = (self.statement(sql).await?, untyped(parameters));
            return self.send(|client| client.query(&statement, &values)).await;
        }
        let values = typed(parameters);
        self.send(|client| client.query_typed(sql, &values)).await
    }

    pub(crate) async fn query_opt(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Option<Row>, Fault> {
        Ok(self.query(sql, parameters).await?.into_iter().next())
    }

    pub(crate) async fn execute(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64, Fault> {
        if self.keeps_session() {
            let (statement, values) = (self.statement(sql).await?, untyped(parameters));
            return self.send(|client| client.execute(&statement, &values)).await;
        }
        let values = typed(parameters);
        self.send(|client| client.execute_typed(sql, &values)).await
    }

    /// Runs statements without parameters, inside a transaction.
    pub(crate) async fn batch(&mut self, sql: &str) -> Result<(), Fault> {
        self.send(|client| client.batch_execute(sql)).await
    }

    async fn send<'c, T, F>(&'c mut self, statement: impl FnOnce(&'c Client) -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>> + 'c,
    {
        let (begins, ends) = self.frame();
        let client = &self.client;
        let word = |word: Option<Cow<'static, str>>| async move {
            match word {
                Some(word) => client.batch_execute(&word).await,
                None => Ok(()),
            }
        };
        // Statements are sent in the order in which their futures are polled first.
        let (begun, done, ended) = futures_util::future::join3(word(begins), statement(client), word(ends)).await;
        begun?;
        let done = done?;
        ended?;
        Ok(done)
    }

    /// The statements sent before and after the next one.
    fn frame(&mut self) -> (Option<Cow<'static, str>>, Option<Cow<'static, str>>) {
        let begins = self.begins.take();
        let (begins, ends) = match &self.settings {
            None => (begins.map(Cow::Borrowed), std::mem::take(&mut self.ends)),
            // A statement outside a transaction gets one of its own, for the settings.
            Some(settings) => {
                let is_alone = !self.is_within;
                let begins =
                    begins.or(is_alone.then_some(BEGIN)).map(|begins| Cow::Owned(with_settings(begins, settings)));
                (begins, std::mem::take(&mut self.ends) || is_alone)
            }
        };
        if ends {
            self.is_within = false;
        }
        (begins, ends.then_some(Cow::Borrowed("commit")))
    }

    async fn statement(&mut self, sql: &str) -> Result<Statement, Fault> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

/// The settings of a session for a schema.
fn settings(schema: &str) -> String {
    format!("set search_path = {schema}; {SETTINGS}")
}

/// Beginning of a transaction with the common settings, followed by its own.
fn with_settings(begins: &str, settings: &str) -> String {
    match begins.split_once(';') {
        Some((begins, own)) => format!("{begins}; {settings};{own}"),
        None => format!("{begins}; {settings}"),
    }
}

fn untyped<'p>(parameters: &[Parameter<'p>]) -> Vec<&'p (dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| parameter.as_sql()).collect()
}

fn typed<'p>(parameters: &[Parameter<'p>]) -> Vec<(&'p (dyn ToSql + Sync), Type)> {
    parameters.iter().map(|parameter| (parameter.as_sql(), parameter.type_of())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_sets_what_a_session_would_keep_and_then_its_own() {
        let settings = settings("fleet").replace("set ", "set local ");
        assert!(settings.starts_with("set local search_path = fleet; set local statement_timeout = 0;"));
        assert_eq!(settings.matches("set local ").count(), settings.matches(';').count() + 1);
        assert_eq!(with_settings("begin", "set local a = 1"), "begin; set local a = 1");
        assert_eq!(
            with_settings("begin; set local a = 2", "set local a = 1"),
            "begin; set local a = 1; set local a = 2"
        );
    }
}

//! A connection: its statements and its transactions.
//!
//! Behind a pooler that shares sessions, each transaction may have another session. What a session would keep is then sent with each
//! transaction: its settings, and each statement without a name (ADR 0121).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use crate::error::Fault;
pub(crate) use crate::value::{Parameter, Value};

/// What is set for each session.
///
/// A process that is stopped inside a transaction must not keep others from working. All statements but lists read few rows by an index: to
/// compile one, or to plan it each time, costs more than to run it. And their plans are those of indexes whatever the statistics say: a table
/// that was empty when it was looked at may have a million rows before the server looks again, and until then an append would read them all.
pub(crate) const SETTINGS: &str = "set idle_in_transaction_session_timeout = 3000; set lock_timeout = 3000; set jit = off; \
    set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_bitmapscan = off";

const BEGIN: &str = "begin";

/// A list may read many rows, and which index is good depends on what is looked for: each is planned for itself.
const FOR_LISTS: &str = "begin; set local plan_cache_mode = force_custom_plan; set local enable_seqscan = on; set local enable_bitmapscan = on";

/// A connection with its prepared statements.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    /// How it is encrypted, if it is.
    encryption: Option<&'static str>,
    /// What each transaction sets, if each may have another session.
    settings: Option<Arc<str>>,
    statements: HashMap<String, Statement>,
    /// What begins a transaction, and is sent before the next statement.
    begins: Option<&'static str>,
    /// A commit is sent after the next statement.
    ends: bool,
    /// The next statement belongs to a transaction.
    is_within: bool,
}

impl Connection {
    /// A connection that keeps its session, with its settings.
    pub(crate) async fn kept(client: Client, encryption: Option<&'static str>, schema: &str) -> Result<Self, Fault> {
        client.batch_execute(&settings(schema)).await?;
        Ok(Self::new(client, encryption, None))
    }

    /// A connection whose transactions may each have another session.
    pub(crate) fn shared(client: Client, encryption: Option<&'static str>, schema: &str) -> Self {
        let settings = settings(schema).replace("set ", "set local ");
        Self::new(client, encryption, Some(settings.into()))
    }

    fn new(client: Client, encryption: Option<&'static str>, settings: Option<Arc<str>>) -> Self {
        Self { client, encryption, settings, statements: HashMap::new(), begins: None, ends: false, is_within: false }
    }

    /// How it is encrypted, if it is.
    pub(crate) fn encryption(&self) -> Option<&'static str> {
        self.encryption
    }

    /// Whether it has one session for as long as it lives.
    pub(crate) fn keeps_session(&self) -> bool {
        self.settings.is_none()
    }

    /// Whether it is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Begins a transaction, together with the next statement: it is sent before that, and no reply of its own is waited for.
    pub(crate) fn begin(&mut self) {
        self.begin_as(BEGIN);
    }

    /// The same, with a statement that begins it, which may be followed by settings for it.
    pub(crate) fn begin_as(&mut self, begins: &'static str) {
        self.begins = Some(begins);
        self.is_within = true;
    }

    /// The next statement is a list: it is planned as [`FOR_LISTS`] says.
    pub(crate) fn next_is_list(&mut self) {
        self.begin_as(FOR_LISTS);
        self.commit_with_next();
    }

    /// Commits the transaction after the next statement, together with it. If that fails, nothing is committed.
    pub(crate) fn commit_with_next(&mut self) {
        self.ends = true;
    }

    /// Commits the transaction.
    pub(crate) async fn commit(&mut self) -> Result<(), Fault> {
        self.end("commit").await
    }

    /// Ends the transaction as if it had never begun.
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

    /// Statements without parameters, inside a transaction.
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

    /// What is sent before and after the next statement.
    fn frame(&mut self) -> (Option<Cow<'static, str>>, Option<Cow<'static, str>>) {
        let begins = self.begins.take();
        let (begins, ends) = match &self.settings {
            None => (begins.map(Cow::Borrowed), std::mem::take(&mut self.ends)),
            // A statement that belongs to no transaction gets one of its own, for the settings.
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

/// What a session with a schema sets.
fn settings(schema: &str) -> String {
    format!("set search_path = {schema}; {SETTINGS}")
}

/// What begins a transaction with the settings of all transactions, which those of this one follow.
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
        assert!(
            settings
                .starts_with("set local search_path = fleet; set local idle_in_transaction_session_timeout = 3000;")
        );
        assert_eq!(settings.matches("set local ").count(), settings.matches(';').count() + 1);
        assert_eq!(with_settings(BEGIN, "set local a = 1"), "begin; set local a = 1");
        assert_eq!(
            with_settings("begin; set local a = 2", "set local a = 1"),
            "begin; set local a = 1; set local a = 2"
        );
    }
}

-- Format 4 of the journal. Never edit this file: journals made by it must open for ever. Add 0005.sql instead.

-- What a run was submitted with, and when it began. Runs of before were begun by the command line when they were created.
-- `cause` is null for the command line, `labels` a JSON object or null.
alter table runs add column cause text;
alter table runs add column submitter text;
alter table runs add column labels text;
alter table runs add column again_of text;
alter table runs add column priority integer not null default 0;
alter table runs add column not_before_ms integer;
alter table runs add column queue_timeout_ms integer;
alter table runs add column limit_group text;
alter table runs add column limit_max integer;
alter table runs add column tenant text;
alter table runs add column queue text;
alter table runs add column bundle blob;
alter table runs add column started_at_ms integer;

-- The place in the queue of a run that counts for the limit of all runs: the time of its submission in milliseconds, minus a minute
-- for each unit of priority. Null for a run that its own process began.
alter table runs add column rank integer;

-- Number of the last change of state, once a program follows them: see `served.sql`.
alter table runs add column change integer not null default 0;

-- How many processes have died with the run since it has had this number of records, counted by each that takes it then.
alter table runs add column deaths integer not null default 0;
alter table runs add column deaths_at integer;

update runs set started_at_ms = created_at_ms;

-- App and target are looked at here, before a row is.
drop index runs_by_age;
create index runs_by_age on runs (created_at_ms, app, target);

-- Runs that count and have a driver, or had one that died.
create index runs_held on runs (holder) where rank is not null and holder is not null;

-- A row for each queued run, in the order in which they begin.
create table queue (
    queue         text    not null,
    rank          integer not null,
    run           integer not null unique,
    not_before_ms integer not null,
    expires_at_ms integer,
    limit_group   text,
    limit_max     integer,
    primary key (queue, rank, run)
) strict, without rowid;

create index queue_by_expiry on queue (expires_at_ms) where expires_at_ms is not null;

-- Keys that only one run has: of an idempotent request, a tick, a delivery; with the hash of the request.
create table keys (
    key    text not null primary key,
    digest blob,
    run    integer not null
) strict, without rowid;

create index keys_by_run on keys (run);

-- The labels of runs, for lists in the order of their creation.
create table labels (
    key           text    not null,
    value         text    not null,
    created_at_ms integer not null,
    run           integer not null,
    primary key (key, value, created_at_ms, run)
) strict, without rowid;

create index labels_by_run on labels (run);

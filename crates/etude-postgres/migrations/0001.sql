-- Format 1 of the schema. Never edit this file: databases made by it must work for ever. Add 0002.sql instead.
--
-- Times are milliseconds since 1970 in UTC, by the clock of the database where the database sets them. Digests are BLAKE3 hashes of
-- 32 bytes. Text that may hold a NUL, which PostgreSQL has no text for, is `bytea`.

-- Number of the format. Every program looks at it first.
create table format (version integer not null);

create function now_ms() returns bigint language sql volatile
    return (extract(epoch from clock_timestamp()) * 1000)::bigint;

-- Processes that have runs, or had some within the last hour. `lease_until` is the end of the lease, by the clock of the database.
-- `lock` is the key of an advisory lock that the process holds for as long as its connection lives.
create table workers (
    worker      text        not null primary key,
    lock        bigint      not null,
    started_at  timestamptz not null,
    beat_at     timestamptz not null,
    lease_until timestamptz not null
);

-- One row per run. `epoch` counts its claims, `session` is the random number of the latest one: only the session of that number
-- changes the row. Appends neither change nor lock a row here.
create table runs (
    run              bigint generated always as identity primary key,
    id               text    collate "C" not null unique,
    app              text    not null,
    target           text    not null,
    abi              bigint  not null,
    state            text    not null,
    epoch            bigint  not null,
    session          bigint  not null,
    worker           text,
    created_at_ms    bigint  not null,
    changed_at_ms    bigint  not null,
    started_at_ms    bigint,
    change           bigint  not null default 0,
    cause            text,
    submitter        text,
    labels           text,
    again_of         text,
    priority         integer not null default 0,
    not_before_ms    bigint,
    queue_timeout_ms bigint,
    limit_group      bytea,
    limit_max        bigint,
    tenant           text,
    queue            text,
    key              text,
    bundle           bytea,
    rank             bigint,
    deaths           integer not null default 0,
    deaths_at        integer
);

create index runs_by_age on runs (created_at_ms, run);
create index runs_by_state on runs (state, created_at_ms, run);
create index runs_by_change on runs (change);
create index runs_held on runs (worker) where worker is not null;

-- What each run was created with.
create table headers (
    run  bigint not null primary key,
    body bytea  not null
);

-- Result documents.
create table results (
    run  bigint not null primary key,
    body bytea  not null
);

-- The journal proper. Positions of a run begin at 1 and have no gaps. A record is accepted only after one of the same session, so
-- that its position is the fencing token: a session that takes a run from another one writes a record with the key `!claim` first.
-- `blobs` is the list of digests that the record refers to, end to end.
create table records (
    run     bigint  not null,
    seq     integer not null,
    session bigint  not null,
    key     text    not null,
    request bytea   not null,
    body    bytea   not null,
    blobs   bytea,
    primary key (run, seq)
);

-- Messages for runs. The first one of a key counts. `token` tells the sender whether it is its own.
create table signals (
    id            bigint generated always as identity primary key,
    run           bigint not null,
    key           text   not null,
    body          bytea  not null,
    token         bigint not null,
    created_at_ms bigint not null,
    unique (run, key)
);

-- A row for each queued run, in the order in which they begin.
create table queue (
    queue         text   not null,
    rank          bigint not null,
    run           bigint not null unique,
    not_before_ms bigint not null,
    expires_at_ms bigint,
    limit_group   bytea,
    limit_max     bigint,
    primary key (queue, rank, run)
) with (fillfactor = 70);

create index queue_by_expiry on queue (expires_at_ms) where expires_at_ms is not null;

-- Keys that only one run has: of an idempotent request, a tick, a delivery; with the hash of the request.
create table keys (
    key    bytea  not null primary key,
    digest bytea,
    run    bigint not null
);

create index keys_by_run on keys (run);

-- The labels of runs, for lists in the order of their creation.
create table labels (
    key           bytea  not null,
    value         bytea  not null,
    created_at_ms bigint not null,
    run           bigint not null,
    primary key (key, value, created_at_ms, run)
);

create index labels_by_run on labels (run);

-- The ledger: ticks, deliveries and notices.
create table entries (
    book   text   collate "C" not null,
    key    text   collate "C" not null,
    at_ms  bigint not null,
    state  text   not null,
    due_ms bigint,
    run    text,
    body   bytea  not null,
    primary key (book, key)
);

create index entries_by_age on entries (book, at_ms, key);
create index entries_by_due on entries (book, due_ms) where due_ms is not null;
create index entries_by_run on entries (book, run) where run is not null;

-- Cached outputs: the text in `body`, or `length` bytes at `offset` of the value `blob`, with their hash.
create table cache (
    key           bytea  not null primary key,
    body          bytea,
    blob          bytea,
    "offset"      bigint,
    length        bigint not null,
    digest        bytea,
    created_at_ms bigint not null,
    app           bytea  not null,
    pipeline      bytea  not null,
    step          bytea  not null,
    hits          bigint not null default 0
);

create index cache_by_blob on cache (blob) where blob is not null;
create index cache_by_age on cache (created_at_ms);

-- Large values, by their hash, in chunks.
create table blobs (
    hash        bytea       not null primary key,
    length      bigint      not null,
    uploaded_at timestamptz not null
);

create table chunks (
    hash  bytea   not null,
    chunk integer not null,
    body  bytea   not null,
    primary key (hash, chunk)
);

alter table chunks alter column body set storage external;

-- Which runs need which values.
create table blob_refs (
    blob bytea  not null,
    run  bigint not null,
    primary key (blob, run)
);

create index blob_refs_by_run on blob_refs (run);

-- Changes of state are numbered in the order of their commits, as others see it: who assigns a number shares a lock until its
-- commit, and who reads them waits for all that have it. The lock's key is the word "etud" and the schema.
create sequence changes;

create function note_change() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(1702131044, hashtext(tg_table_schema));
    new.change := nextval(format('%I.changes', tg_table_schema));
    return new;
end
$$;

create trigger runs_created before insert on runs for each row execute function note_change();

-- That a driver takes or leaves a running run is a change, because the run was or is interrupted.
create trigger runs_changed before update of state, worker on runs for each row
when (new.state <> old.state or (new.state = 'running' and new.worker is distinct from old.worker))
execute function note_change();

-- Grows with each statement that writes what others follow, before its commit.
create sequence writes;

create function note_write() returns trigger language plpgsql as $$
begin
    perform nextval(format('%I.writes', tg_table_schema));
    return null;
end
$$;

create trigger records_written after insert or delete on records execute function note_write();
create trigger runs_written after insert or update or delete on runs execute function note_write();
create trigger signals_written after insert on signals execute function note_write();
create trigger entries_written after insert or update on entries execute function note_write();

insert into format values (1);

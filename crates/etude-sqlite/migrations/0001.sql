-- Format 1 of the journal. Never edit this file: journals made by it must open for ever. Add 0002.sql instead.
--
-- Times are milliseconds since 1970 in UTC. Digests are BLAKE3 hashes of 32 bytes.

pragma application_id = 0x65747564; -- "etud"

-- One row per run, kept small so that listings stay fast. `epoch` grows with each claim; only the session that
-- knows the current one may write. Numbers are never used twice, so that an old session cannot hit a new run.
create table runs (
    number        integer primary key autoincrement,
    id            text    not null unique,
    app           text    not null,
    target        text    not null,
    abi           integer not null,
    state         text    not null,
    epoch         integer not null,
    created_at_ms integer not null,
    changed_at_ms integer not null
) strict;

create index runs_by_age on runs (created_at_ms);

-- What each run was created with.
create table headers (
    run  integer primary key,
    body text not null
) strict;

-- Result documents: in `body`, or the `length` bytes of the blob `blob` if they are large.
create table results (
    run    integer primary key,
    body   text,
    blob   blob,
    length integer
) strict;

-- The journal proper. Run and position share one integer key, so that an append touches one B-tree only and the
-- records of a run lie next to each other. `blobs` is the list of digests that the record refers to, end to end.
create table records (
    id      integer primary key,
    key     text not null,
    request blob not null,
    body    text not null,
    blobs   blob,
    run     integer generated always as (id >> 32) virtual,
    seq     integer generated always as (id & 0xffffffff) virtual
) strict;

-- Which runs need which blobs.
create table blob_refs (
    blob blob    not null,
    run  integer not null,
    primary key (blob, run)
) strict, without rowid;

-- Messages for runs. The first one of a key counts.
create table signals (
    id            integer primary key,
    run           integer not null,
    key           text    not null,
    body          text    not null,
    created_at_ms integer not null,
    unique (run, key)
) strict;

-- Cached outputs: the text in `body`, or `length` bytes at `offset` of the blob `blob`, with their hash.
create table cache (
    key           blob not null unique,
    body          text,
    blob          blob,
    offset        integer,
    length        integer,
    digest        blob,
    created_at_ms integer not null
) strict;

create index cache_by_blob on cache (blob) where blob is not null;
create index cache_by_age on cache (created_at_ms);

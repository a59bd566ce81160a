-- What a journal has from the first time on that a server keeps ticks, deliveries or notices in it. Part of format 4; never edit
-- this file.

create table if not exists entries (
    book   text    not null,
    key    text    not null,
    at_ms  integer not null,
    state  text    not null,
    due_ms integer,
    run    text,
    body   text    not null,
    primary key (book, key)
) strict, without rowid;

create index if not exists entries_by_age on entries (book, at_ms, key);
create index if not exists entries_by_due on entries (book, due_ms) where due_ms is not null;
create index if not exists entries_by_run on entries (book, run) where run is not null;

-- Format 2 of the journal. Never edit this file: journals made by it must open for ever. Add 0003.sql instead.

-- Which open journal has the run: the name of its file in `locks`, without the suffix. It means nothing if nobody has that file
-- locked any more.
alter table runs add column holder text;

-- The numbers of signals are never used twice, so that a larger one is news whatever was pruned.
create table signals_2 (
    id            integer primary key autoincrement,
    run           integer not null,
    key           text    not null,
    body          text    not null,
    created_at_ms integer not null,
    unique (run, key)
) strict;

insert into signals_2 select id, run, key, body, created_at_ms from signals;
drop table signals;
alter table signals_2 rename to signals;

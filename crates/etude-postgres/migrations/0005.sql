-- Format 5 of the schema. Never edit this file: databases made by it must work for ever. Add 0006.sql instead.
--
-- Object storage, and lists by target.

-- Where large values are: the URL of object storage; null: in the table `chunks`. One row.
create table storage (
    url text
);

insert into storage values (null);

-- As the other tables (format 4): all who may read it see the row, the owner changes it.
alter table storage enable row level security;
create policy workers on storage to current_user using (true) with check (true);
create policy readers on storage for select using (true);

-- `place` is the first part of the name of the value's object: `values` or `bundles`; null: its bytes are in `chunks`. The row comes
-- before the object. `is_going`: a prune is removing the object.
alter table blobs
    add place    text,
    add is_going boolean not null default false;

create index blobs_going on blobs (hash) where is_going;

create index runs_of_target on runs (target, created_at_ms, run);

-- Each claim leaves a dead row. They go before there are many: a table that is claimed from ten million times stays small.
alter table queue set (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

update format set version = 5;

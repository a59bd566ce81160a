-- Format 2 of the schema. Never edit this file: databases made by it must work for ever. Add 0003.sql instead.
--
-- What workers say of themselves, restarts of the server, and a queue that is claimed without a sort.

alter table workers
    add host        text    not null default '',
    add pid         bigint  not null default 0,
    add version     text    not null default '',
    add abi         bigint  not null default 0,
    add queues      text[]  not null default '{}',
    add places      bigint  not null default 0,
    add live        bigint  not null default 0,
    add is_draining boolean not null default false;

-- The start of the server as the last heartbeat saw it, and the time of that heartbeat. One row. After a restart, leases count as
-- they stood at that heartbeat, until the first heartbeat has extended them: a database that is down takes no run from a worker.
create table server (
    started_at timestamptz not null,
    beat_at    timestamptz not null
);

insert into server values (pg_postmaster_start_time(), clock_timestamp());

create function is_alive(lease_until timestamptz) returns boolean language sql volatile
    return lease_until > clock_timestamp() or exists (
        select 1 from server where started_at <> pg_postmaster_start_time() and lease_until > server.beat_at);

-- The workers that have died with the run since its last record, without the one that still stands in `worker`.
alter table runs add dead text[] not null default '{}';

update runs set queue = 'default' where queue is null;
update runs set tenant = 'default' where tenant is null;
alter table runs
    alter queue  set default 'default', alter queue  set not null,
    alter tenant set default 'default', alter tenant set not null;

-- A row for each run that can continue and that no worker has: queued runs, and suspended runs with a bundle that have a deadline or
-- an answer. `is_asleep` until `not_before_ms`: what cannot be claimed is in no index that claims read.
alter table queue
    add abi        bigint  not null default 0,
    add is_bundled boolean not null default false,
    add is_asleep  boolean not null default false;

update queue set abi = runs.abi, is_bundled = runs.bundle is not null, is_asleep = queue.not_before_ms > now_ms()
from runs where runs.run = queue.run;

create index queue_ready on queue (queue, rank, run) where is_bundled and not is_asleep;
create index queue_asleep on queue (not_before_ms) where is_asleep;

update format set version = 2;

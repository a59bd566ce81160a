-- Format 3 of the schema. Never edit this file: databases made by it must work for ever. Add 0004.sql instead.
--
-- What `etude engine apply` writes: the queues and tenants of a fleet, with their limits.

-- The queues to which runs may be submitted. `default` is one of them from the start.
create table queues (
    queue             text    not null primary key,
    priority          integer not null default 0,
    max_live          bigint,
    max_per_tenant    bigint,
    max_per_app       bigint,
    is_untrusted      boolean not null default false,
    allow_network     boolean not null default true,
    allow_unsandboxed boolean not null default true,
    allow_yolo        boolean not null default false,
    allow_folders     text[]  not null default '{}'
);

insert into queues (queue, max_live) values ('default', 500);

-- The live runs of a queue that may have one label at once.
create table queue_labels (
    queue    text   not null references queues on delete cascade,
    key      bytea  not null,
    value    bytea  not null,
    max_live bigint not null,
    primary key (queue, key, value)
);

-- The limit of live runs of a tenant in all queues, and its quotas.
create table tenants (
    tenant              text   not null primary key,
    max_live            bigint,
    max_queued          bigint,
    max_records_per_day bigint,
    max_bytes           bigint,
    max_usd_per_day     double precision
);

-- Runs from a queue that count for limits: from their claim until they end, wait, sleep or are handed over. Those of a dead worker
-- keep its name, and count until they are taken over.
create view counted as
    select run, queue, tenant, app from runs where worker is not null and rank is not null and state <> 'queued';

create index runs_of_tenant on runs (tenant, created_at_ms, run);
create index runs_queued on runs (tenant) where state = 'queued';
create index runs_counted on runs (queue, tenant) where worker is not null and rank is not null and state <> 'queued';
create index runs_counted_by_tenant on runs (tenant) where worker is not null and rank is not null and state <> 'queued';

-- Whether every step of a queue runs in a sandbox, and which of its runs may not be claimed now: all of them, those of the tenants,
-- of the apps, of the labels (`KEY=VALUE`). Until the
-- end of the transaction no one else claims within these limits. Each query here sees what was committed before it began, and so
-- what those have claimed who had the lock before.
--
-- As long as a queue is far from its limit, claims share the lock: none of them can be one too many, because each connection of the
-- server has one at most.
create function closed_in(
    of_queue text, out is_full boolean, out is_sandboxed boolean, out full_tenants text[], out full_apps text[], out full_labels bytea[]
) language plpgsql volatile set search_path from current as $$
declare
    settings  queues%rowtype;
    has_parts boolean;
    reserve   bigint := current_setting('max_connections')::bigint;
    of_schema integer := hashtext(current_schema());
begin
    is_full := false;
    full_tenants := '{}';
    full_apps := '{}';
    full_labels := '{}';
    select * into settings from queues where queue = of_queue;
    is_sandboxed := coalesce(settings.is_untrusted, false);
    has_parts := settings.max_per_tenant is not null or settings.max_per_app is not null
        or exists (select 1 from queue_labels where queue = of_queue);
    if settings.max_live is not null or has_parts then
        if has_parts or settings.max_live - reserve <= (select count(*) from counted where queue = of_queue) then
            reserve := 0;
            perform pg_advisory_xact_lock(of_schema # 1702131050, hashtext(of_queue));
        else
            perform pg_advisory_xact_lock_shared(of_schema # 1702131050, hashtext(of_queue));
        end if;
        is_full := coalesce(settings.max_live - reserve <= (select count(*) from counted where queue = of_queue), false);
    end if;
    if is_full then
        return;
    end if;
    if settings.max_per_tenant is not null then
        full_tenants := array(
            select tenant from counted where queue = of_queue group by tenant having count(*) >= settings.max_per_tenant);
    end if;
    if settings.max_per_app is not null then
        full_apps := array(
            select app from counted where queue = of_queue group by app having count(*) >= settings.max_per_app);
    end if;
    full_labels := array(
        select one.key || '\x3d'::bytea || one.value from queue_labels as one
        where one.queue = of_queue and one.max_live <= (
            select count(*) from counted where counted.queue = of_queue and exists (
                select 1 from labels where labels.run = counted.run and labels.key = one.key and labels.value = one.value)));
    if exists (select 1 from tenants where max_live is not null) then
        perform pg_advisory_xact_lock(1702131051, of_schema);
        full_tenants := full_tenants || array(
            select tenant from tenants
            where max_live <= (select count(*) from counted where counted.tenant = tenants.tenant));
    end if;
end
$$;

update format set version = 3;

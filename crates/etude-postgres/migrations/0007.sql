-- Format 7 of the schema. Never edit this file: databases made by it must work for ever. Add 0008.sql instead.
--
-- Claims of several runs in one statement, and past runs of other versions of the interpreter without a look at each. `closed_in` stays for
-- programs of format 6 that are running: the locks are the same.

-- How many runs of a queue may be claimed now, if `wanted` are; whether every step of them runs in a sandbox; and which may not be claimed:
-- those of the tenants, of the apps, of the labels (`KEY=VALUE`). Until the end of the transaction no one else claims within these limits. Each
-- query here sees what was committed before it began, and so what those have claimed who had the lock before.
--
-- As long as a queue is far from its limit, claims of one run share the lock: none of them can be one too many, because each connection of
-- the server has one at most. Where parts of a queue have limits, each claim changes what the next one may take: it is of one run.
create function room_in(
    of_queue text, wanted bigint,
    out room bigint, out is_sandboxed boolean, out full_tenants text[], out full_apps text[], out full_labels bytea[]
) language plpgsql volatile set search_path from current as $$
declare
    settings    queues%rowtype;
    has_parts   boolean;
    has_tenants boolean := exists (select 1 from tenants where max_live is not null);
    reserve     bigint := current_setting('max_connections')::bigint;
    of_schema   integer := hashtext(current_schema());
begin
    full_tenants := '{}';
    full_apps := '{}';
    full_labels := '{}';
    if wanted = 0 then
        room := 0;
        return;
    end if;
    select * into settings from queues where queue = of_queue;
    is_sandboxed := coalesce(settings.is_untrusted, false);
    has_parts := settings.max_per_tenant is not null or settings.max_per_app is not null
        or exists (select 1 from queue_labels where queue = of_queue);
    room := case when has_parts or has_tenants then least(wanted, 1) else wanted end;
    if settings.max_live is not null or has_parts then
        if has_parts or room > 1 or settings.max_live - reserve <= (select count(*) from counted where queue = of_queue) then
            reserve := 0;
            perform pg_advisory_xact_lock(of_schema # 1702131050, hashtext(of_queue));
        else
            perform pg_advisory_xact_lock_shared(of_schema # 1702131050, hashtext(of_queue));
        end if;
        if settings.max_live is not null then
            room := greatest(0, least(room, settings.max_live - reserve - (select count(*) from counted where queue = of_queue)));
        end if;
    end if;
    if room = 0 then
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
    if has_tenants then
        perform pg_advisory_xact_lock(1702131051, of_schema);
        full_tenants := full_tenants || array(
            select tenant from tenants
            where max_live <= (select count(*) from counted where counted.tenant = tenants.tenant));
    end if;
end
$$;

-- Workers claim runs of their version alone (K-62): an index leads to these.
drop index queue_ready;
create index queue_ready on queue (queue, abi, rank, run) where is_bundled and not is_asleep;
drop index queue_by_tenant;
create index queue_by_tenant on queue (queue, abi, tenant, rank, run) where is_bundled and not is_asleep;

-- As in format 6, by these indexes. One version as a range keeps the planner from the index of all versions.
create or replace function first_open(
    of_queue text, of_abi bigint, full_tenants text[], out from_rank bigint, out from_run bigint
) language plpgsql volatile set search_path from current set enable_sort = off set plan_cache_mode = force_generic_plan as $$
declare
    max_rows    integer := 32;
    max_tenants integer := 16;
    passed      bigint;
    place       bigint[];
begin
    loop
        select one.rank, one.run into from_rank, from_run from (
            select rank, run, tenant from queue
            where queue = of_queue and is_bundled and not is_asleep and abi between of_abi and of_abi
            order by abi, rank, run limit max_rows) as one
        where one.tenant <> all (full_tenants) order by one.rank, one.run limit 1;
        exit when found;
        with recursive heads as (
            (select tenant, rank, run from queue
                where queue = of_queue and is_bundled and not is_asleep and abi = of_abi
                order by tenant, rank, run limit 1)
            union all
            select next.* from heads cross join lateral (
                select tenant, rank, run from queue
                where queue = of_queue and tenant > heads.tenant and is_bundled and not is_asleep and abi = of_abi
                order by tenant, rank, run limit 1) as next)
        select count(*), min(array[rank, run]) filter (where tenant <> all (full_tenants)) into passed, place
        from (select * from heads limit max_tenants) as some_heads;
        if passed < max_tenants then
            from_rank := coalesce(place[1], 9223372036854775807);
            from_run := coalesce(place[2], 9223372036854775807);
            exit;
        end if;
        max_rows := max_rows * 8;
        max_tenants := max_tenants * 8;
    end loop;
end
$$;

update format set version = 7;

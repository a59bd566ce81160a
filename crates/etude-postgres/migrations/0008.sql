-- Format 8 of the schema. Never edit this file: databases made by it must work for ever. Add 0009.sql instead.
--
-- Claims of several runs where tenants have limits. `room_in` stays for programs of format 7 that are running: the locks are the same.

-- How many runs of a queue may be claimed now, if `wanted` are; whether every step of them runs in a sandbox; which may not be claimed: those
-- of the tenants, of the apps, of the labels (`KEY=VALUE`); and whether `room_of_tenant` says how many of a tenant may be. Until the end of the
-- transaction no one else claims within these limits. Each query here sees what was committed before it began, and so what those have claimed
-- who had the lock before.
--
-- As long as a queue is far from its limit, claims of one run share the lock: none of them can be one too many, because each connection of
-- the server has one at most. Where apps or labels have limits, each claim changes what the next one may take: it is of one run.
create function room_of_queue(
    of_queue text, wanted bigint,
    out room bigint, out is_sandboxed boolean, out has_shares boolean, out full_tenants text[], out full_apps text[], out full_labels bytea[]
) language plpgsql volatile set search_path from current as $$
declare
    settings    queues%rowtype;
    has_parts   boolean;
    has_tenants boolean := exists (select 1 from tenants where max_live is not null);
    reserve     bigint := current_setting('max_connections')::bigint;
    of_schema   integer := hashtext(current_schema());
begin
    has_shares := false;
    full_tenants := '{}';
    full_apps := '{}';
    full_labels := '{}';
    if wanted = 0 then
        room := 0;
        return;
    end if;
    select * into settings from queues where queue = of_queue;
    is_sandboxed := coalesce(settings.is_untrusted, false);
    has_parts := settings.max_per_app is not null or exists (select 1 from queue_labels where queue = of_queue);
    room := case when has_parts then least(wanted, 1) else wanted end;
    has_shares := room > 1 and (has_tenants or settings.max_per_tenant is not null);
    if settings.max_live is not null or has_parts or settings.max_per_tenant is not null then
        if has_parts or settings.max_per_tenant is not null or room > 1
            or settings.max_live - reserve <= (select count(*) from counted where queue = of_queue)
        then
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

-- How many runs of a tenant may be claimed now from a queue, by the limits of tenants alone. Called after `room_of_queue` in one statement,
-- it sees what that has waited for, and what it counts holds until the end of the transaction.
create function room_of_tenant(of_queue text, of_tenant text) returns bigint language plpgsql volatile set search_path from current as $$
declare
    most    bigint := (select max_live from tenants where tenant = of_tenant);
    most_in bigint := (select max_per_tenant from queues where queue = of_queue);
begin
    return least(
        9223372036854775807,
        most - case when most is not null then (select count(*) from counted where tenant = of_tenant) end,
        most_in - case when most_in is not null then (select count(*) from counted where queue = of_queue and tenant = of_tenant) end);
end
$$;

update format set version = 8;

-- Format 10 of the schema. Never edit this file: databases made by it must work for ever. Add 0011.sql instead.
--
-- Claims behind full tenants that go on where the last one ended (K-34): their cost grows with what has changed since then, and not with the
-- number of waiting tenants.

-- The transaction that has written the row last, so that a search finds what came after the last one. Rows from before this format
-- came before each search.
alter table queue add written xid8 not null default '0';
alter table queue alter column written set default pg_current_xact_id();

create or replace function note_tenant() returns trigger language plpgsql set search_path from current as $$
begin
    new.tenant := coalesce(tenant_of(new.run), 'default');
    new.written := pg_current_xact_id();
    return new;
end
$$;

-- Each change may make a row one that can be claimed.
drop trigger queue_tenant on queue;
create trigger queue_tenant before insert or update on queue for each row execute function note_tenant();

-- Its last condition keeps the planner from it where rows are wanted in the order of the queue.
create index queue_by_writing on queue (queue, abi, written) where is_bundled and not is_asleep and written > '0';

-- As in format 7, but the search goes on at the place that the last one of the same session of the database has found. Rows before that
-- place were of tenants that were full, but for rows that a transaction has written that had not ended then. So there are two kinds of rows
-- to look at before it: those, and the first one of each tenant that has room again.
--
-- What a session knows is a setting of it, which ends with it: numbers of transactions may repeat after a failover, which no
-- session survives. A transaction that is rolled back sets it back.
create or replace function first_open(
    of_queue text, of_abi bigint, full_tenants text[], out from_rank bigint, out from_run bigint
) language plpgsql volatile set search_path from current set enable_sort = off set plan_cache_mode = force_generic_plan as $$
declare
    -- Before the first look at the queue.
    horizon     text := pg_snapshot_xmin(pg_current_snapshot())::text;
    of_search   text[] := array['queue'::regclass::oid::text, of_queue, of_abi::text];
    setting     text := 'etude.place_' || to_hex(hashtext(of_search::text));
    known       text[] := nullif(current_setting(setting, true), '');
    max_rows    integer := 32;
    max_tenants integer := 16;
    max_written integer := 256;
    begin_rank  bigint := -9223372036854775808;
    begin_run   bigint := -9223372036854775808;
    were_full   text[];
    passed      bigint;
    place       bigint[];
begin
    if known[1:3] = of_search then
        begin_rank := known[5];
        begin_run := known[6];
        were_full := known[7];
        select count(*), min(array[rank, run]) filter (where (rank, run) < (begin_rank, begin_run) and tenant <> all (full_tenants))
            into passed, place
        from (
            select rank, run, tenant from queue
            where queue = of_queue and is_bundled and not is_asleep and abi between of_abi and of_abi
                and written > '0' and written >= known[4]::xid8
            order by abi, written limit max_written) as one;
        if passed = max_written then
            begin_rank := -9223372036854775808;
            begin_run := -9223372036854775808;
            place := null;
        elsif were_full <> full_tenants then
            select min(array[head.rank, head.run]) into place from (
                select head.rank, head.run
                from (select unnest(were_full) except select unnest(full_tenants)) as open (name) cross join lateral (
                    select rank, run from queue
                    where queue = of_queue and tenant between open.name and open.name
                        and is_bundled and not is_asleep and abi = of_abi
                    order by tenant, rank, run limit 1) as head
                where (head.rank, head.run) < (begin_rank, begin_run)
                union all
                select place[1], place[2] where place is not null) as head;
        end if;
        from_rank := place[1];
        from_run := place[2];
    end if;
    while from_rank is null loop
        select one.rank, one.run into from_rank, from_run from (
            select rank, run, tenant from queue
            where queue = of_queue and is_bundled and not is_asleep and abi between of_abi and of_abi
                and (abi, rank, run) >= (of_abi, begin_rank, begin_run)
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
        end if;
        max_rows := max_rows * 8;
        max_tenants := max_tenants * 8;
    end loop;
    perform set_config(setting, (of_search || array[horizon, from_rank::text, from_run::text, full_tenants::text])::text, false);
end
$$;

update format set version = 10;

-- Format 6 of the schema. Never edit this file: databases made by it must work for ever. Add 0007.sql instead.
--
-- Claims that pass over the rows of tenants at their limits without a look at each (K-34).

-- Whose run it is, in the queue itself. The trigger sets it: programs of format 5 do not know the column, and a tenant cannot choose it.
alter table queue add tenant text not null default 'default';
update queue set tenant = runs.tenant from runs where runs.run = queue.run and runs.tenant <> queue.tenant;

-- Bound to the table, whatever temporary table a tenant has made. Volatile, so that it sees a run of the same statement.
create function tenant_of(of_run bigint) returns text language sql volatile
    return (select tenant from runs where run = of_run);

create function note_tenant() returns trigger language plpgsql set search_path from current as $$
begin
    new.tenant := coalesce(tenant_of(new.run), 'default');
    return new;
end
$$;

create trigger queue_tenant before insert or update of run, tenant on queue for each row execute function note_tenant();

create index queue_by_tenant on queue (queue, tenant, rank, run) where is_bundled and not is_asleep;

-- The place in a queue of the first row that may be claimed although these tenants are full: no row before it may. If there is none, a place
-- after all rows. Rows for another version of the interpreter do not count, if one is given.
--
-- There are two ways to it: from row to row in the order of the queue, and from tenant to tenant, to the first row of each. The first is
-- short if few rows of full tenants are in front, the second one if few tenants have rows. Each is tried in turn, further each time.
--
-- Called after `closed_in` in one statement, each query here sees what that has waited for. Plans are those of indexes, whatever the
-- statistics say.
create function first_open(
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
            where queue = of_queue and is_bundled and not is_asleep and (of_abi is null or abi = of_abi)
            order by rank, run limit max_rows) as one
        where one.tenant <> all (full_tenants) order by one.rank, one.run limit 1;
        exit when found;
        with recursive heads as (
            (select tenant, rank, run from queue
                where queue = of_queue and is_bundled and not is_asleep and (of_abi is null or abi = of_abi)
                order by tenant, rank, run limit 1)
            union all
            select next.* from heads cross join lateral (
                select tenant, rank, run from queue
                where queue = of_queue and tenant > heads.tenant and is_bundled and not is_asleep and (of_abi is null or abi = of_abi)
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

update format set version = 6;

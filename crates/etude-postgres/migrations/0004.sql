-- Format 4 of the schema. Never edit this file: databases made by it must work for ever. Add 0005.sql instead.
--
-- Tenants and workers as roles of the database (K-56). The role that owns the tables sees all of them. A worker does, too. A tenant sees
-- the runs of its own, and what belongs to them. Rights on the tables are given by `etude engine grant`.

-- What `etude engine grant` has made of roles, by their names: a role that is renamed has no rights here.
create table roles (
    role   text not null primary key,
    kind   text not null check (kind in ('worker', 'tenant')),
    tenant text check ((tenant is not null) = (kind = 'tenant'))
);

-- The tenant that has logged in. `set role` does not change it. The body is bound to the tables now: no path of a caller matters.
create function own_tenant() returns text language sql stable security definer
    return (select tenant from roles where role = session_user);

-- Whether a run is one of the tenant that has logged in. Volatile, so that it sees the run that the same statement has inserted.
create function is_own(of_run bigint) returns boolean language sql volatile security definer
    return exists (select 1 from runs where run = of_run and tenant = own_tenant());

-- A key belongs to a tenant (K-29).
alter table keys add tenant text not null default 'default';
update keys set tenant = runs.tenant from runs where runs.run = keys.run;
alter table keys drop constraint keys_pkey, add primary key (tenant, key);

-- The ledger, too. Books of other tenants than `default` begin with the tenant and U+001F, so that two tenants have two rows of one key.
alter table entries add tenant text not null default 'default';

-- Who has registered as a worker: tenants do while they cancel a run that has not begun.
alter table workers add tenant text default own_tenant();

-- Values that tenants have uploaded. Each has its own: that another one has the same value gives no one the right to read it, and bytes
-- that are not those of their hash are no one else's.
create table uploads (
    tenant      text        not null,
    hash        bytea       not null,
    length      bigint      not null,
    uploaded_at timestamptz not null,
    primary key (tenant, hash)
);

create index uploads_by_hash on uploads (hash);

create table upload_chunks (
    tenant text    not null,
    hash   bytea   not null,
    chunk  integer not null,
    body   bytea   not null,
    primary key (tenant, hash, chunk),
    foreign key (tenant, hash) references uploads on delete cascade
);

alter table upload_chunks alter column body set storage external;

create index runs_by_bundle on runs (bundle) where bundle is not null;

-- Whether the tenant that has logged in may name this value: it has uploaded it. To name a value in a run is to see it.
create function has_uploaded(of_hash bytea) returns boolean language sql stable security definer
    return exists (select 1 from uploads where hash = of_hash and tenant = own_tenant());

-- Whether the header of a run names no value but an upload of the tenant. Its text is JSON; a NUL in it, which `jsonb` has no text for,
-- is in no hash.
create function names_own_value(body bytea) returns boolean language sql stable security definer
    return (
        select header -> 'input_at' is null or has_uploaded(decode(header -> 'input_at' ->> 0, 'hex'))
        from (select regexp_replace(convert_from(body, 'UTF8'), '(?<!\\)((?:\\\\)*)\\u0000', '\1 ', 'g')::jsonb as header) as parsed);

do $$
declare
    of_table text;
begin
    foreach of_table in array array[
        'format', 'roles', 'workers', 'server', 'queues', 'queue_labels', 'tenants', 'runs', 'headers', 'results', 'records',
        'signals', 'queue', 'keys', 'labels', 'entries', 'cache', 'blobs', 'chunks', 'blob_refs', 'uploads', 'upload_chunks']
    loop
        execute format('alter table %I enable row level security', of_table);
        -- `etude engine grant worker` adds roles to this policy. With the constant, plans of workers are those of the owner.
        execute format('create policy workers on %I to current_user using (true) with check (true)', of_table);
    end loop;
    -- What all may read that may read the table.
    foreach of_table in array array['format', 'workers', 'server', 'queues', 'queue_labels'] loop
        execute format('create policy readers on %I for select using (true)', of_table);
    end loop;
    -- What belongs to a run. Its rows are seen by those who see the run; they are written to runs of the tenant.
    foreach of_table in array array['headers', 'results', 'records', 'signals', 'queue', 'labels', 'blob_refs'] loop
        execute format(
            'create policy tenants_read on %1$I for select using (exists (select 1 from runs where runs.run = %1$I.run))', of_table);
        execute format(
            'create policy tenants_remove on %1$I for delete using (exists (select 1 from runs where runs.run = %1$I.run))', of_table);
    end loop;
    foreach of_table in array array['results', 'queue'] loop
        execute format(
            'create policy tenants_change on %1$I for update using (exists (select 1 from runs where runs.run = %1$I.run))
                with check (is_own(run))', of_table);
    end loop;
    foreach of_table in array array['results', 'signals', 'queue', 'labels'] loop
        execute format('create policy tenants_add on %I for insert with check (is_own(run))', of_table);
    end loop;
    foreach of_table in array array['keys', 'entries', 'uploads', 'upload_chunks'] loop
        execute format(
            'create policy tenants on %I using (tenant = (select own_tenant())) with check (tenant = (select own_tenant()))', of_table);
    end loop;
end
$$;

create policy own on roles for select using (role = session_user);
create policy tenants on tenants for select using (tenant = (select own_tenant()));
create policy tenants_add on workers for insert with check (tenant = (select own_tenant()));
create policy tenants_change on workers for update using (tenant = (select own_tenant()));
create policy tenants_remove on workers for delete using (tenant = (select own_tenant()));

create policy tenants_read on runs for select using (tenant = (select own_tenant()));
create policy tenants_add on runs for insert
    with check (tenant = (select own_tenant()) and (bundle is null or has_uploaded(bundle)));
create policy tenants_change on runs for update using (tenant = (select own_tenant()));
create policy tenants_remove on runs for delete using (tenant = (select own_tenant()));

create policy tenants_add on headers for insert with check (is_own(run) and names_own_value(body));
-- Marks of claims: what steps have done is written by workers.
create policy tenants_add on records for insert with check (key = '!claim' and blobs is null and is_own(run));

create policy tenants_read on blobs for select using (
    exists (select 1 from blob_refs where blob_refs.blob = blobs.hash) or exists (select 1 from runs where runs.bundle = blobs.hash));
create policy tenants_read on chunks for select using (
    exists (select 1 from blob_refs where blob_refs.blob = chunks.hash) or exists (select 1 from runs where runs.bundle = chunks.hash));

update format set version = 4;

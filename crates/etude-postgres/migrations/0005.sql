-- Never edit this file: databases made by it must work for ever. Add the next number instead.
--
-- Object storage.

-- Where large values are: the URL of object storage; null: in the table `chunks`. One row.
create table storage (
    url text
);

insert into storage values (null);

-- `place` is the first part of the name of the value's object: `values` or `bundles`; null: its bytes are in `chunks`. The row comes
-- before the object. `is_going`: a prune is removing the object.
alter table blobs
    add place    text,
    add is_going boolean not null default false;

create index blobs_going on blobs (hash) where is_going;

update format set version = version + 1;

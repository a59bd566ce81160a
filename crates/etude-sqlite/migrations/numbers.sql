-- What a journal has besides `served.sql` from the first time on that a program accepts runs in it or follows them. It replaces the
-- triggers of `served.sql`, which gave the number of a removed run again after the clock was set back. Part of format 4; never edit
-- this file.

-- The largest number of a change that a removed run had. One row.
create table if not exists removed_change (
    id     integer primary key check (id = 1),
    change integer not null
) strict;

insert or ignore into removed_change (id, change) values (1, 0);

drop trigger if exists runs_changed;
drop trigger if exists runs_created;

-- Each change of state has a number that is larger than all before it, of any run, removed or not. It is never used twice: it is at
-- least the number of microseconds since 1970. That a driver takes or leaves a running run is a change, because the run was or is
-- interrupted.
create trigger runs_changed after update of state, holder on runs
when new.state <> old.state or (new.state = 'running' and new.holder is not old.holder)
begin
    update runs
    set change = max(cast(unixepoch('subsec') * 1000000 as integer), (select max(change) from runs) + 1,
                     (select change from removed_change) + 1)
    where number = new.number;
end;

create trigger runs_created after insert on runs
begin
    update runs
    set change = max(cast(unixepoch('subsec') * 1000000 as integer), (select max(change) from runs) + 1,
                     (select change from removed_change) + 1)
    where number = new.number;
end;

-- Last, because it shows that all of these are there.
create trigger if not exists runs_removed after delete on runs
when old.change > (select coalesce(max(change), 0) from runs)
begin
    update removed_change set change = max(change, old.change);
end;

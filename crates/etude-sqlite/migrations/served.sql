-- What a journal has from the first time on that a program accepts runs in it or follows them. A journal that only the command line
-- uses goes without: each index would be pages more to write for each run. Part of format 4; never edit this file.

create index if not exists runs_by_state on runs (state, created_at_ms, app, target);
create index if not exists runs_by_change on runs (change);

-- Each change of state has a number that is larger than all before it, of any run. It is never used twice: it is at least the number
-- of microseconds since 1970. That a driver takes or leaves a running run is a change, because the run was or is interrupted.
create trigger if not exists runs_changed after update of state, holder on runs
when new.state <> old.state or (new.state = 'running' and new.holder is not old.holder)
begin
    update runs
    set change = max(cast(unixepoch('subsec') * 1000000 as integer), (select max(change) from runs) + 1)
    where number = new.number;
end;

-- Last, because it shows that all of these are there.
create trigger if not exists runs_created after insert on runs
begin
    update runs
    set change = max(cast(unixepoch('subsec') * 1000000 as integer), (select max(change) from runs) + 1)
    where number = new.number;
end;

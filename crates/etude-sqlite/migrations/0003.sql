-- Format 3 of the journal. Never edit this file: journals made by it must open for ever. Add 0004.sql instead.

-- Whose a cached output is, and how often it was used. Outputs of before belong to no app, pipeline and step.
alter table cache add column app text not null default '';
alter table cache add column pipeline text not null default '';
alter table cache add column step text not null default '';
alter table cache add column hits integer not null default 0;

"""The tables and functions of a store in PostgreSQL."""

# One schema has the stores of all servers that share a database; `space` is the namespace of each. Times are Unix seconds by the
# clock of the database; nothing expires where the time is null.
#
# A write locks the row of its process (FOR KEY SHARE), and so does who buries that (FOR UPDATE): the one waits for the other,
# and a write that comes later finds the process buried. Renewing a lease changes no key, and waits for neither.

from __future__ import annotations

from typing import Final

MONTH: Final = 30 * 86400
"""Seconds for which a buried process is known: it must not be frozen for longer."""
YOUNG: Final = 2
"""Seconds for which a new store buries no process: living processes have yet to renew their leases."""
LOCK_MILLISECONDS: Final = 400
"""How long a function waits for a transaction of another process, which may wait for this one."""
SLICE: Final = 500
"""Expired rows that are deleted at once."""

FENCED: Final = -1
CONFLICT: Final = 0

_TABLES: Final = """
create table trio_mcp.spaces (space text primary key, born float8 not null);
create table trio_mcp.nodes (
  space text, node text, until float8 not null, about bytea not null default '', buried_at float8, primary key (space, node)
);
create table trio_mcp.records (
  space text, kind text, key text collate "C", owner text not null, version bigint not null, written_at float8 not null,
  expires_at float8, value bytea not null, primary key (space, kind, key)
);
create index records_by_owner on trio_mcp.records (space, kind, owner, key);
create index records_by_expiry on trio_mcp.records (expires_at);
create table trio_mcp.logs (
  id bigint generated always as identity primary key, space text not null, kind text not null, key text not null,
  first bigint not null, newest bigint not null, written_at float8 not null, expires_at float8, unique (space, kind, key)
);
create index logs_by_expiry on trio_mcp.logs (expires_at);
create table trio_mcp.entries (log bigint, number bigint, value bytea not null, primary key (log, number));
-- What is encrypted cannot be compressed.
alter table trio_mcp.records alter value set storage external;
alter table trio_mcp.entries alter value set storage external;

create function trio_mcp.now() returns float8 language sql volatile as $$ select extract(epoch from clock_timestamp())::float8 $$;
"""

_WRITE: Final = """
create function trio_mcp.write(space_ text, nodes_ text[], changes jsonb, data bytea[]) returns int language plpgsql as $$
declare
  change jsonb;
  t float8 := trio_mcp.now();
  item int := 1;
  done bigint;
  first_ bigint;
  number_ int;
  keep bigint;
  log_ trio_mcp.logs;
begin
  perform 1 from trio_mcp.nodes where space = space_ and node = any (nodes_) for key share;
  if exists (select 1 from trio_mcp.nodes where space = space_ and node = any (nodes_) and buried_at is not null) then
    return -1;
  end if;
  begin
    for change in select jsonb_array_elements(changes) loop
      case (change->>0)
      when 'P' then
        if (change->>3)::bigint = 0 then
          delete from trio_mcp.records where space = space_ and kind = change->>1 and key = change->>2 and expires_at <= t;
          insert into trio_mcp.records (space, kind, key, owner, version, written_at, expires_at, value)
            values (space_, change->>1, change->>2, change->>5, 1, t, (change->>4)::float8, data[item]) on conflict do nothing;
        else
          update trio_mcp.records set owner = change->>5, version = version + 1, written_at = t,
            expires_at = (change->>4)::float8, value = data[item]
            where space = space_ and kind = change->>1 and key = change->>2 and version = (change->>3)::bigint
            and (expires_at is null or expires_at > t);
        end if;
        get diagnostics done = row_count;
        item := item + 1;
      when 'R' then
        delete from trio_mcp.records where space = space_ and kind = change->>1 and key = change->>2
          and (change->>3 is null or (version = (change->>3)::bigint and (expires_at is null or expires_at > t)));
        get diagnostics done = row_count;
        if change->>3 is null then done := 1; end if;
      when 'E' then
        perform 1 from trio_mcp.records where space = space_ and kind = change->>1 and key = change->>2
          and version = (change->>3)::bigint and (expires_at is null or expires_at > t) for share;
        get diagnostics done = row_count;
      when 'F' then
        delete from trio_mcp.logs where space = space_ and kind = change->>1 and key = change->>2 returning id into done;
        delete from trio_mcp.entries where log = done;
        done := 1;
      else
        first_ := (change->>3)::bigint;
        keep := (change->>5)::bigint;
        number_ := (change->>6)::int;
        insert into trio_mcp.logs (space, kind, key, first, newest, written_at)
          values (space_, change->>1, change->>2, first_, first_ - 1, t) on conflict do nothing;
        select * into log_ from trio_mcp.logs where space = space_ and kind = change->>1 and key = change->>2 for update;
        -- After a gap, or when it has expired, nothing of it may be read any more.
        if first_ < log_.first or first_ > log_.newest + 1 or log_.expires_at <= t then
          delete from trio_mcp.entries where log = log_.id;
          log_.first := first_;
        elsif first_ <= log_.newest then
          delete from trio_mcp.entries where log = log_.id and number >= first_;
        end if;
        insert into trio_mcp.entries (log, number, value)
          select log_.id, first_ + each, data[item + each] from generate_series(0, number_ - 1) each;
        item := item + number_;
        log_.newest := first_ + number_ - 1;
        if log_.newest - keep >= log_.first then
          log_.first := log_.newest - keep + 1;
          delete from trio_mcp.entries where log = log_.id and number < log_.first;
        end if;
        update trio_mcp.logs set first = log_.first, newest = log_.newest, written_at = t, expires_at = (change->>4)::float8
          where id = log_.id;
        done := 1;
      end case;
      if done = 0 then raise exception using errcode = 'TM001'; end if;
    end loop;
    return 1;
  exception when sqlstate 'TM001' then
    return 0;
  end;
end $$;
"""

_PROCESSES: Final = f"""
create function trio_mcp.renew(space_ text, seconds float8, names text[], abouts bytea[], out now float8, out buried text[])
language plpgsql as $$
declare t float8 := trio_mcp.now();
begin
  -- A lease that a crash of the database takes back is renewed in a moment.
  perform set_config('synchronous_commit', 'off', true);
  insert into trio_mcp.spaces values (space_, t) on conflict do nothing;
  insert into trio_mcp.nodes (space, node, until, about)
    select space_, name, t + seconds, about from unnest(names, abouts) as said (name, about)
    on conflict (space, node) do update set until = excluded.until, about = excluded.about
    where trio_mcp.nodes.buried_at is null;
  now := t;
  buried := array(select node from trio_mcp.nodes where space = space_ and node = any (names) and buried_at is not null);
end $$;

create function trio_mcp.bury(space_ text, node_ text, may_bury boolean, is_own boolean) returns boolean language plpgsql as $$
declare
  t float8 := trio_mcp.now();
  found_ trio_mcp.nodes;
  born_ float8;
begin
  insert into trio_mcp.nodes (space, node, until) values (space_, node_, 0) on conflict do nothing;
  select * into found_ from trio_mcp.nodes where space = space_ and node = node_ for update;
  if found_.buried_at is not null then return true; end if;
  select born into born_ from trio_mcp.spaces where space = space_;
  if not is_own and (not may_bury or found_.until > t or born_ is null or t < born_ + {YOUNG}) then return false; end if;
  update trio_mcp.nodes set buried_at = t where space = space_ and node = node_;
  return true;
end $$;

create function trio_mcp.sweep() returns int language plpgsql as $$
declare
  t float8 := trio_mcp.now();
  gone bigint[];
  number_ int;
begin
  perform set_config('synchronous_commit', 'off', true);
  delete from trio_mcp.records where (space, kind, key) in (
    select space, kind, key from trio_mcp.records where expires_at <= t limit {SLICE} for update skip locked);
  get diagnostics number_ = row_count;
  gone := array(select id from trio_mcp.logs where expires_at <= t limit {SLICE} for update skip locked);
  delete from trio_mcp.entries where log = any (gone);
  delete from trio_mcp.logs where id = any (gone);
  delete from trio_mcp.nodes where until < t - {MONTH} and coalesce(buried_at, 0) < t - {MONTH};
  return greatest(number_, cardinality(gone));
end $$;
"""  # noqa: S608

# Not for a connection: behind a pool, that may belong to others, too.
_LOCKS: Final = "".join(
    f"alter function trio_mcp.{name} set lock_timeout = {LOCK_MILLISECONDS};"
    for name in ("write", "renew", "bury", "sweep")
)

MIGRATIONS: Final = (_TABLES + _WRITE + _PROCESSES, _LOCKS)
"""What brings the schema from each version to the next."""

START: Final = """
create schema if not exists trio_mcp;
create table if not exists trio_mcp.schema (version int not null);
insert into trio_mcp.schema select 0 where not exists (select 1 from trio_mcp.schema);
"""

_LIVE: Final = "(expires_at is null or expires_at > trio_mcp.now())"
_COLUMNS: Final = "select key, value, owner, expires_at, version from trio_mcp.records where space = %s and kind = %s"

WRITE: Final = "select trio_mcp.write(%s, %s, %s::jsonb, %b::bytea[])"
READ: Final = f"{_COLUMNS} and key = %s and {_LIVE}"
LIST: Final = f"{_COLUMNS} and key > %s and {_LIVE} order by key limit %s"
LIST_OF: Final = f"{_COLUMNS} and key > %s and {_LIVE} and owner = %s order by key limit %s"
ENTRIES: Final = (
    "select first, newest, value from trio_mcp.logs left join trio_mcp.entries on log = id and number > %s "  # noqa: S608
    f"where space = %s and kind = %s and key = %s and {_LIVE} order by number limit %s"
)
RENEW: Final = "select * from trio_mcp.renew(%s, %s, %s::text[], %b::bytea[])"
BURY: Final = "select trio_mcp.bury(%s, %s, trio_mcp.now() <= %s, %s)"
NODES: Final = (
    "select node, about from trio_mcp.nodes where space = %s and until > trio_mcp.now() and buried_at is null"
)
SWEEP: Final = "select trio_mcp.sweep()"
NOTIFY: Final = "select pg_notify(%s, %s)::text"

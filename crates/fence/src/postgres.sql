-- The fence of Tenure for PostgreSQL 14 and later. Running it again changes nothing.
--
--   begin;
--   select tenure_fence.pass('ledger', 1043);     -- an error, and nothing can be written, if 1043 is stale
--   update ledger set paid = true where id = 7;
--   commit;
--
-- The row of a floor stays locked until the transaction ends, so floor and data change together, and a
-- transaction with another token waits for that. Errors: TF412 stale, TF409 used, TF421 other incarnation,
-- TF400 no token, TF428 nothing passed in this transaction.

create schema if not exists tenure_fence;

create table if not exists tenure_fence.floor (
    lock        text    not null,
    slot        bigint  not null default -1,   -- -1: the lock has no slots
    exclusive   bigint  not null default 0,    -- 0: none yet
    shared      bigint  not null default 0,
    used        bigint  not null default 0,
    incarnation text,
    passed_by   xid8,                          -- the transaction that passed last, and when it began:
    passed_at   timestamptz,                   -- a restored database may count transactions anew
    primary key (lock, slot)
) with (fillfactor = 50);

create or replace function tenure_fence.admit(
    a_lock text, a_token bigint, a_slot bigint, a_mode text, a_once boolean, a_incarnation text, a_write boolean
) returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    f        tenure_fence.floor;
    newest   bigint;
    lowest   bigint;
    kept     text;
begin
    if a_lock is null or a_slot is null or a_once is null or coalesce(a_mode, '') not in ('exclusive', 'shared') then
        raise exception 'a lock, and a mode that is exclusive or shared, are needed' using errcode = '22023';
    end if;
    -- Bits 0 to 47 count within an epoch, from 1.
    if a_token is null or a_token <= 0 or a_token & 281474976710655 = 0 then
        raise exception '% is no token', a_token using errcode = 'TF400';
    end if;
    insert into tenure_fence.floor (lock, slot) values (a_lock, a_slot) on conflict do nothing;
    select * into f from tenure_fence.floor o where o.lock = a_lock and o.slot = a_slot for update;
    if not found then
        raise exception 'the floor of "%" was made by a concurrent transaction', a_lock using errcode = '40001';
    end if;
    kept := f.exclusive || ' ' || f.shared || ' ' || f.used || ' ' || coalesce(f.incarnation, '-');
    newest := greatest(f.exclusive, f.shared);
    lowest := case a_mode when 'shared' then greatest(f.exclusive, (newest >> 48 << 48) | 1) else newest end;
    if a_token < lowest then
        raise exception 'token % of "%" is stale: the highest token seen is %', a_token, a_lock, lowest
            using errcode = 'TF412', detail = kept;
    end if;
    if newest > 0 and a_token >> 48 = newest >> 48 and f.incarnation <> a_incarnation then
        raise exception 'epoch % belongs to incarnation %, not %', a_token >> 48, f.incarnation, a_incarnation
            using errcode = 'TF421', detail = kept;
    end if;
    if a_write and a_once and a_token <= f.used then
        raise exception 'token % of "%" may write once, and % has written', a_token, a_lock, f.used
            using errcode = 'TF409', detail = kept;
    end if;
    update tenure_fence.floor o set
        exclusive = case a_mode when 'exclusive' then a_token else o.exclusive end,
        shared = case a_mode when 'shared' then greatest(o.shared, a_token) else o.shared end,
        used = case when a_write then greatest(o.used, a_token) else o.used end,
        incarnation = case when newest = 0 or a_token >> 48 > newest >> 48 then a_incarnation
                           else coalesce(a_incarnation, o.incarnation) end,
        passed_by = case when a_write then pg_current_xact_id() else o.passed_by end,
        passed_at = case when a_write then transaction_timestamp() else o.passed_at end
    where o.lock = a_lock and o.slot = a_slot;
end $$;

-- Lets this transaction write under a token, or ends it with an error.
create or replace function tenure_fence.pass(
    lock text, token bigint, slot bigint default -1, mode text default 'exclusive', once boolean default false,
    incarnation text default null
) returns void language sql as $$
    select tenure_fence.admit(lock, token, slot, mode, once, incarnation, true)
$$;

-- Raises the floor without writing: once it is committed, nothing older passes.
create or replace function tenure_fence.raise_floor(
    lock text, token bigint, slot bigint default -1, mode text default 'exclusive', incarnation text default null
) returns void language sql as $$
    select tenure_fence.admit(lock, token, slot, mode, false, incarnation, false)
$$;

create or replace function tenure_fence.guard() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (
        select from tenure_fence.floor o where o.lock = tg_argv[0]
        and o.passed_by = pg_current_xact_id() and o.passed_at = transaction_timestamp()
    ) then
        raise exception 'table "%" is protected by lock "%", and this transaction has not passed its fence',
            tg_table_name, tg_argv[0]
            using errcode = 'TF428', hint = 'select tenure_fence.pass(lock, token) first, in the same transaction';
    end if;
    return null;
end $$;

-- From now on a table changes only in transactions that passed the fence of this lock, whatever wrote the SQL.
-- Partitions that are written by their own name need the same.
create or replace function tenure_fence.protect(protected regclass, lock text)
returns void language plpgsql as $$
begin
    execute format(
        'create or replace trigger tenure_fence before insert or update or delete or truncate on %s '
        'for each statement execute function tenure_fence.guard(%L)', protected, lock);
end $$;

create or replace function tenure_fence.unprotect(protected regclass)
returns void language plpgsql as $$
begin
    execute format('drop trigger if exists tenure_fence on %s', protected);
end $$;

-- Every role may pass; none edits a floor by hand. `admit` checks the token itself, so calling it is harmless.
revoke all on tenure_fence.floor from public;
grant select on tenure_fence.floor to public;
grant usage on schema tenure_fence to public;

-- The fence of Tenure for SQLite 3.38 and later. Running it again changes nothing.
--
--   begin immediate;
--   insert into tenure_fence_pass (lock, token) values ('ledger', 1043);   -- aborts if 1043 is stale
--   update ledger set paid = 1 where id = 7;
--   delete from tenure_fence_pass;
--   commit;
--
-- A pass cannot outlive its transaction: it refers to a row that never exists, and that is looked at when the
-- transaction commits. For that, foreign keys must be on (pragma foreign_keys = on), or nothing passes.

create table if not exists tenure_fence_floor (
    lock        text    not null,
    slot        integer not null default -1,   -- -1: the lock has no slots
    exclusive   integer not null default 0,    -- 0: none yet
    shared      integer not null default 0,
    used        integer not null default 0,
    incarnation text,
    primary key (lock, slot)
) strict, without rowid;

create table if not exists tenure_fence_never (id integer primary key, check (0)) strict;

create table if not exists tenure_fence_pass (
    lock        text    not null,
    token       integer not null,
    slot        integer not null default -1,
    mode        text    not null default 'exclusive' check (mode in ('exclusive', 'shared')),
    once        integer not null default 0 check (once in (0, 1)),
    incarnation text,
    touch       text    not null default 'write' check (touch in ('write', 'raise')),
    ends_before_commit integer not null default 0 check (ends_before_commit = 0)
        references tenure_fence_never (id) deferrable initially deferred
) strict;

create trigger if not exists tenure_fence_rule before insert on tenure_fence_pass begin
    select raise(abort, 'TENURE_FENCE_FOREIGN_KEYS_OFF') from pragma_foreign_keys where foreign_keys = 0;
    -- Bits 0 to 47 count within an epoch, from 1.
    select raise(abort, 'TENURE_FENCE_IMPOSSIBLE')
        where typeof(new.token) <> 'integer' or new.token <= 0 or new.token & 281474976710655 = 0;
    insert into tenure_fence_floor (lock, slot) select new.lock, new.slot
        where not exists (select 1 from tenure_fence_floor f where f.lock = new.lock and f.slot = new.slot);
    select raise(abort, 'TENURE_FENCE_STALE') from tenure_fence_floor f
        where f.lock = new.lock and f.slot = new.slot and new.token < case new.mode
            when 'shared' then max(f.exclusive, ((max(f.exclusive, f.shared) >> 48) << 48) | 1)
            else max(f.exclusive, f.shared) end;
    select raise(abort, 'TENURE_FENCE_OTHER_INCARNATION') from tenure_fence_floor f
        where f.lock = new.lock and f.slot = new.slot and max(f.exclusive, f.shared) > 0
        and new.token >> 48 = max(f.exclusive, f.shared) >> 48 and f.incarnation <> new.incarnation;
    select raise(abort, 'TENURE_FENCE_USED') from tenure_fence_floor f
        where f.lock = new.lock and f.slot = new.slot and new.touch = 'write' and new.once and new.token <= f.used;
    update tenure_fence_floor set
        exclusive = case new.mode when 'shared' then exclusive else new.token end,
        shared = case new.mode when 'shared' then max(shared, new.token) else shared end,
        used = case new.touch when 'write' then max(used, new.token) else used end,
        incarnation = case when max(exclusive, shared) = 0 or new.token >> 48 > max(exclusive, shared) >> 48
            then new.incarnation else coalesce(new.incarnation, incarnation) end
        where lock = new.lock and slot = new.slot;
end;

-- A pass is taken or given back, never changed; a floor never falls, whatever wrote the SQL.
create trigger if not exists tenure_fence_pass_stays before update on tenure_fence_pass begin
    select raise(abort, 'TENURE_FENCE_PASS_IS_NOT_CHANGED');
end;
create trigger if not exists tenure_fence_floor_falls before update on tenure_fence_floor
when new.exclusive < old.exclusive or new.shared < old.shared or new.used < old.used begin
    select raise(abort, 'TENURE_FENCE_FLOOR_NEVER_FALLS');
end;
create trigger if not exists tenure_fence_floor_is_new before insert on tenure_fence_floor
when exists (select 1 from tenure_fence_floor f where f.lock = new.lock and f.slot = new.slot) begin
    select raise(abort, 'TENURE_FENCE_FLOOR_NEVER_FALLS');
end;
create trigger if not exists tenure_fence_floor_stays before delete on tenure_fence_floor begin
    select raise(abort, 'TENURE_FENCE_FLOOR_NEVER_FALLS');
end;

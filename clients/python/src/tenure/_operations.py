"""Implements what both twins can ask for beside locks: leases, keys, metadata, views, and force."""

import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from . import _http
from ._ask import Value, check_name, content, is_number
from ._clock import boot_us, read
from ._guards import GuardCore, revoke
from ._hand_on import regrant
from ._held import HeldLease
from ._lease_state import PendingGrant, TooLate
from ._lease_timing import LeaseTiming
from ._loss import UNREACHABLE, Loss
from ._requests import call, request_id, strange
from .errors import Closed, Invalid, Lost, Refused, Unknown
from .values import Drain, Explanation, KeyValue, LockInfo, Past, batch, drain_of, explanation, key_value, lock_info

if TYPE_CHECKING:
    from ._engine import Engine

Json = Dict[str, Any]
# A time of the wall clock, or seconds since 1970.
Time = Union[datetime, float]

# The most revisions in one answer of a member.
_HISTORY_PAGE = 1000


async def connect(engine: "Engine") -> None:
    """Waits until a member has answered."""
    if await engine.session(boot_us() + engine.settings.timeout_us) is None:
        raise engine.no_session()


async def grant_lease(engine: "Engine", timing: LeaseTiming, metadata: Optional[Value]) -> HeldLease:
    """Requests a lease from the cluster."""
    if engine.closing.is_done:
        raise Closed
    asking = PendingGrant(timing)
    lease = str(max(secrets.randbits(63), 1))
    body: Json = {"ttl_ms": timing.ttl_us // 1000, "lease": lease, "client": engine.settings.name}
    if metadata is not None:
        body.update(content("metadata", metadata))
    # Granting by id is harmless to repeat; the lease time counts from the first send.
    asking.sent(read())
    within = min(engine.settings.timeout_us, timing.window_us)
    try:
        reply = await call(engine, "grant_lease", body, within_us=within)
    except Unknown:
        engine.give_back(lease)
        raise
    granted = reply.answer.get("lease_granted")
    if granted is None:
        raise strange()
    state = asking.granted(read())
    if isinstance(state, TooLate):
        engine.give_back(lease)
        raise Lost(Loss(UNREACHABLE, state.after_us))
    held = HeldLease(engine, str(granted["lease"]), str(granted["created"]), state)
    held.is_kept = True
    return held


async def release_lease(held: HeldLease) -> None:
    """Ends a lease. Its guards must be gone, because the work under it must have stopped."""
    if not held.update(lambda state, now: state.is_idle()):
        raise Invalid("LEASE_IN_USE", "the lease has guards")
    held.is_kept = False
    with held.engine.cleaning():
        try:
            await revoke(held)
        except Lost:
            # It had ended before.
            pass
        finally:
            held.lost.end()


async def downgrade(core: GuardCore) -> None:
    """Turns exclusive holds into shared ones, without a gap. The tokens change."""
    if core.is_shared:
        raise Invalid("GUARD_SHARED", "there are other guards of the same hold")
    held = core.held
    for at, lock in enumerate(core.locks):
        body = {"lock": lock.name, "lease": held.id, "token": str(lock.token)}
        seq = await held.seq()
        try:
            reply = await call(held.engine, "downgrade", body, seq=seq)
        finally:
            seq.drop()
        regrant(core, at, int(reply.answer["downgraded"]["token"]), reply.revision)


async def progress(core: GuardCore, number: int) -> Optional[float]:
    """Reports how far the work has come. Returns in how many seconds a larger number is due."""
    if not is_number(number, 0, (1 << 64) - 1):
        raise Invalid("INVALID_FIELD", f"`number` is an integer of 64 bits, not {number!r}")
    held, lock = core.held, core.locks[0]
    body = {"lock": lock.name, "lease": held.id, "token": str(lock.token), "number": str(number)}
    # The number itself makes a repetition harmless.
    reply = await call(held.engine, "progress", body)
    if "progressed" not in reply.answer:
        raise strange()
    left = reply.answer["progressed"].get("left_ms")
    return None if left is None else float(left) / 1000


async def update(core: GuardCore, metadata: Value) -> None:
    """Replaces the metadata of a grant."""
    held, lock = core.held, core.locks[0]
    body = {"lock": lock.name, "lease": held.id, "token": str(lock.token), **content("metadata", metadata)}
    seq = await held.seq()
    try:
        reply = await call(held.engine, "update", body, seq=seq)
    finally:
        seq.drop()
    if "updated" not in reply.answer:
        raise strange()


def write_body(
    key: str,
    if_absent: bool,
    if_modified: Optional[int],
    if_value: Optional[Value],
    core: Optional[GuardCore],
) -> Json:
    """The conditions of a write."""
    body: Json = {"key": check_name(key)}
    given = [if_absent or None, if_modified, if_value]
    if sum(it is not None for it in given) > 1:
        raise Invalid("INVALID_FIELD", "`if_absent`, `if_modified` and `if_value` exclude each other")
    if if_absent:
        body["expect"] = {"absent": True}
    elif if_modified is not None:
        body["expect"] = {"modified": str(if_modified)}
    elif if_value is not None:
        body["expect"] = content("value", if_value)
    if core is not None:
        lost = core.check()
        if lost is not None:
            raise lost
        body["guard"] = {"lock": core.locks[0].name, "token": str(core.locks[0].token)}
    return body


async def put(engine: "Engine", body: Json, value: Value, lease: Optional[str], request: Optional[str]) -> "tuple[int, int]":
    """Writes a key exactly once, and returns the revision of the write and its version."""
    body = {**body, **content("value", value)}
    if lease is not None:
        body["lease"] = lease
    reply = await call(engine, "put", body, key=request or request_id())
    if "put" not in reply.answer:
        raise strange()
    return reply.revision, int(reply.answer["put"]["version"])


async def delete(engine: "Engine", body: Json, request: Optional[str]) -> bool:
    """Deletes a key exactly once, and returns whether it existed."""
    reply = await call(engine, "delete", body, key=request or request_id())
    if "deleted" not in reply.answer:
        raise strange()
    return bool(reply.answer["deleted"]["existed"])


async def get(engine: "Engine", key: str) -> Optional[KeyValue]:
    """Reads a key."""
    reply = await call(engine, "get_key", {"name": key})
    if "key" not in reply.answer:
        raise strange()
    shown = reply.answer["key"].get("key")
    return None if shown is None else key_value(shown)


async def show(engine: "Engine", lock: str) -> LockInfo:
    """Shows who holds a lock, and how many wait."""
    reply = await call(engine, "get_lock", {"name": lock})
    if "lock" not in reply.answer:
        raise strange()
    shown = reply.answer["lock"].get("lock")
    return lock_info(lock, shown, shown or {})


async def explain(engine: "Engine", lock: str, lease: Optional[str]) -> Explanation:
    """Shows who holds a lock, who is before whom, and when it can be free."""
    reply = await call(engine, "explain", {"lock": lock} if lease is None else {"lock": lock, "lease": lease})
    if "explained" not in reply.answer:
        raise strange()
    return explanation(lock, reply.revision, reply.answer["explained"])


async def force(engine: "Engine", lock: str, token: int, reason: str, by: Optional[str], now: bool) -> float:
    """Takes a lock away, and returns for how many seconds it is revoking or delayed at most."""
    body: Json = {"lock": lock, "token": str(token), "reason": reason, "by": by or engine.settings.name}
    if now:
        body["now"] = True
    reply = await call(engine, "force", body, key=request_id())
    if "forced" not in reply.answer:
        raise strange()
    return float(reply.answer["forced"]["left_ms"]) / 1000


async def revoke_lease(engine: "Engine", lease: str, reason: str, by: Optional[str], now: bool) -> None:
    """Revokes a lease of another client."""
    body: Json = {"lease": lease, "reason": reason, "by": by or engine.settings.name}
    if now:
        body["now"] = True
    await call(engine, "revoke", body, key=request_id())


async def resize(engine: "Engine", lock: str, slots: Optional[int], by: Optional[str]) -> None:
    """Sets how many slots a semaphore has, or leaves that to the requests."""
    if slots is not None and not is_number(slots, 1, (1 << 32) - 1):
        raise Invalid("INVALID_SLOTS", f"`slots` is a number of at least 1, not {slots!r}")
    body: Json = {"lock": lock, "slots": slots or 0, "by": by or engine.settings.name}
    reply = await call(engine, "resize", body, key=request_id())
    if "resized" not in reply.answer:
        raise strange()


async def drain(engine: "Engine", prefix: str, reason: str, by: Optional[str]) -> None:
    """Closes a prefix to new grants."""
    body: Json = {"prefix": prefix, "reason": reason, "by": by or engine.settings.name}
    reply = await call(engine, "drain", body, key=request_id())
    if "drained" not in reply.answer:
        raise strange()


async def undrain(engine: "Engine", prefix: str, by: Optional[str]) -> bool:
    """Opens a prefix, and returns whether it was closed."""
    body: Json = {"prefix": prefix, "by": by or engine.settings.name}
    reply = await call(engine, "undrain", body, key=request_id())
    if "undrained" not in reply.answer:
        raise strange()
    return bool(reply.answer["undrained"]["existed"])


async def drains(engine: "Engine") -> List[Drain]:
    """Lists the prefixes that are closed to new grants."""
    page = await _http.call(engine, "GET", "/v1/drains")
    return [drain_of(it) for it in page.get("drains", ())]


async def locks(engine: "Engine", prefix: str) -> List[LockInfo]:
    """Lists the locks that are held or awaited."""
    found: List[LockInfo] = []
    after: Optional[str] = None
    while True:
        path = _http.target("/v1/locks", {"prefix": prefix or None, "after": after, "limit": "500"})
        page = await _http.call(engine, "GET", path)
        shown = page.get("locks", [])
        found += [lock_info(it["lock"], it, it) for it in shown]
        after = page.get("next")
        if not after:
            return found


def history_path(
    name: str, prefix: bool, since: Optional[Time], until: Optional[Time], client: Optional[str], lost: bool
) -> "Tuple[str, Dict[str, Optional[str]]]":
    """Where the past is searched, and for what."""
    query: Dict[str, Optional[str]] = {
        "since": _unix_ms("since", since),
        "until": _unix_ms("until", until),
        "client": client,
        "lost": "true" if lost else None,
    }
    if prefix:
        return "/v1/history", {**query, "prefix": check_name(name) if name else None}
    return f"/v1/locks/{check_name(name)}", {**query, "view": "history", "archive": "true"}


def _unix_ms(field: str, time: Optional[Time]) -> Optional[str]:
    if time is None:
        return None
    seconds = time.timestamp() if isinstance(time, datetime) else time
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e14:
        raise Invalid("INVALID_FIELD", f"`{field}` is a time since 1970, not {time!r}")
    return str(int(seconds * 1000))


async def history(engine: "Engine", path: str, query: Dict[str, Optional[str]], limit: int) -> Past:
    """Reads the newest revisions page by page, and returns them with the newest last."""
    past = Past()
    missing: List[Tuple[int, int]] = []
    while True:
        left = limit - len(past)
        page = await _http.call(engine, "GET", _http.target(path, {**query, "limit": str(min(left, _HISTORY_PAGE))}))
        past += [batch(it) for it in page["changes"][:left]]
        archive = page.get("archive")
        if archive is not None:
            past.archive_begins = None if archive.get("begins") is None else int(archive["begins"])
            past.archive_begins_at = archive.get("begins_at")
            missing += [(int(it["from"]), int(it["next"])) for it in archive["holes"]]
        before = page.get("before")
        if before is None or len(past) == limit:
            break
        last = query.get("before")
        if last is not None and int(before) >= int(last):
            raise strange()
        query = {**query, "before": before}
    past.reverse()
    past.missing = tuple(dict.fromkeys(missing))
    return past


async def ticket(core: GuardCore) -> str:
    """Signs a ticket: a proof of the grant that a fence can check by itself."""
    lost = core.check()
    if lost is not None:
        raise lost
    lock = core.locks[0]
    body = {"lock": lock.name, "lease": core.held.id, "token": str(lock.token)}
    answer = await _http.call(core.engine, "POST", "/v1/tickets", body)
    return str(answer["ticket"])


async def leader(engine: "Engine", election: str) -> Optional[Json]:
    """Returns the current leader as the cluster shows it."""
    try:
        page = await _http.call(engine, "GET", _http.target(f"/v1/elections/{election}"))
    except Refused as error:
        if error.reason == "LOCK_NOT_FOUND":
            return None
        raise
    return page.get("leader")

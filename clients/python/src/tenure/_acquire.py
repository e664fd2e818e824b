"""Turns a lock request into a guard, across as many sessions as it takes.

A request queues in the cluster, not on a session. When a session ends, the client repeats the request on the next one, under
the same number or the same lease, and the cluster answers with its current state. A notice saves a query; only the answer is
authoritative.
"""

import secrets
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple

from . import _loss, _plant
from ._ask import ANY, Ask
from ._clock import boot_us, read
from ._guards import GuardCore, release
from ._held import HeldLease, HeldLock, Seq
from ._lease_state import PendingGrant, TooLate
from ._loss import Loss
from ._requests import AGAIN, NO, call, meaning_of, request_id, strange
from ._session import ANSWER, GONE, GRANTED, Asked, Session
from .errors import NONE, UNKNOWN, Closed, Error, Lost, Refused, Timeout, Unavailable, Unknown

if TYPE_CHECKING:
    from ._engine import Engine

Json = Dict[str, Any]

# The pause after a session ended or a member could not serve, and the bound up to which it grows.
_PAUSE_US = 20_000
_PAUSE_MAX_US = 500_000
# How long members must refuse the credentials before a request that waits is given up.
_DENIED_US = 1_000_000
# The cluster ends a wait by itself. The client waits this much longer for its word, and then ends it.
_SLACK_US = 50_000
# How long a request that does not queue waits for its answer: longer than a change of leader takes.
_AT_ONCE_US = 3_000_000

_GRANT = "grant"
_QUEUED = "queued"
_OVER = "over"


class Update(NamedTuple):
    """The outcome of a message about a request."""

    what: str
    locks: List[HeldLock] = []  # noqa: RUF012 - never changed
    revision: int = 0
    lease: Optional[Json] = None
    ahead: int = 0
    error: Optional[Error] = None
    after_us: int = 0


def update_of(kind: str, said: Json, ask: Ask) -> Update:
    """Reads a message about a request."""
    if kind == GONE:
        return Update(AGAIN)
    if kind == GRANTED:
        return Update(_GRANT, _locks(said, ask), int(said["revision"]))
    if kind != ANSWER:
        return _wait_ended(said)
    if "ended" in said:
        return Update(_OVER)
    if "acquired" in said:
        it = said["acquired"]
        lease = it.get("lease")
        revision = int(said.get("revision") or it.get("header", {}).get("revision") or 0)
        return Update(_GRANT, _locks(it, ask), revision, lease)
    if "queued" in said:
        it = said["queued"]
        return Update(_QUEUED, lease=it.get("lease"), ahead=int(it.get("ahead", 0)))
    if "error" in said:
        return _refused(said["error"])
    return Update(NO, error=strange())


def _wait_ended(said: Json) -> Update:
    """Reads the end of a wait without a grant: replaced by a newer request of its group, refused, or out of time."""
    client = said.get("superseded_by")
    if client:
        lease = said.get("superseded_by_lease")
        message = f"superseded by a newer request of {client}, lease {lease}"
        return Update(NO, error=Refused("SUPERSEDED", message, {"set_by": client, "lease": lease}))
    return _refused(said["error"]) if said.get("error") else Update(_OVER)


def _refused(error: Json) -> Update:
    meaning = meaning_of(error)
    if meaning.what == NO:
        return Update(NO, error=meaning.error)
    return Update(AGAIN, after_us=meaning.after_us, error=meaning.error)


def _locks(it: Json, ask: Ask) -> List[HeldLock]:
    several = it.get("locks")
    if several:
        return [HeldLock(one["lock"], int(one["token"]), one.get("slot")) for one in several]
    return [HeldLock(it.get("lock") or ask.names[0], int(it["token"]), it.get("slot"))]


def deadline(engine: "Engine", ask: Ask) -> Optional[int]:
    """When the caller wants its answer at the latest."""
    times = [it for it in (ask.wait_us, ask.timeout_us) if it]
    if ask.is_try and ask.timeout_us is None:
        times = [min(_AT_ONCE_US, engine.settings.timeout_us)]
    return boot_us() + min(times) if times else None


def _left_ms(ask: Ask, until: Optional[int]) -> Optional[int]:
    if ask.is_try:
        return 0
    return None if until is None else max((until - boot_us()) // 1000, 1)


async def acquire(engine: "Engine", ask: Ask, held: Optional[HeldLease]) -> GuardCore:
    """Waits in the queue and returns the grant: under a lease of the caller, or with a new one of its own."""
    if engine.closing.is_done:
        raise Closed
    try:
        return await (_own(engine, ask) if held is None else _under(held, ask))
    except (Unknown, Unavailable, Refused) as error:
        if (isinstance(error, Refused) and error.reason != "WAIT_TIMEOUT") or not ask.is_limited_by_timeout:
            raise
        assert ask.timeout_us is not None
        # The queue position is given up, and what may still be granted is given back.
        effect = UNKNOWN if isinstance(error, Unknown) else NONE
        raise Timeout(f"not granted within {ask.timeout_us / 1e6:g}s: {error}", effect) from None


async def _own(engine: "Engine", ask: Ask) -> GuardCore:
    until, began = deadline(engine, ask), boot_us()
    reach = began + engine.settings.timeout_us
    if until is not None:
        reach = min(reach, until + _SLACK_US)
    turn = 0
    while True:
        try:
            done = await _own_once(engine, ask, until, reach)
        except Unavailable:
            if turn > 0:
                # This attempt was not sent, but an earlier one was.
                raise _unknown(began) from None
            raise
        if done is not None:
            return done
        turn += 1
        # The first answer came too late to be of use: start again with a new lease, within the time of any other request.
        if boot_us() >= reach or not engine.spend():
            raise _unknown(began)


async def _own_once(engine: "Engine", ask: Ask, until: Optional[int], reach: int) -> Optional[GuardCore]:
    began, asking = boot_us(), PendingGrant(ask.timing)
    # An answer after this leaves too little of the window to be of use.
    worthless = began + ask.timing.window_us * 3 // 4
    orphan = _Orphan(engine)
    body = ask.body(_left_ms(ask, until))
    # A repetition of a request that was replaced by a newer one of its group must not replace that one.
    identity: Json = {"idempotency_key": request_id()} if ask.is_replaceable else {}
    try:
        while True:
            if engine.closing.is_done:
                raise Closed
            session = await (engine.session_at_once(reach) if ask.is_try else engine.session(reach))
            if session is None:
                raise _unknown(began) if orphan.is_sent else engine.no_session()
            if boot_us() >= worthless:
                return None
            if _plant.retry_without_id and orphan.is_sent:
                orphan = _Orphan(engine)
            new_lease = {"ttl_ms": ask.timing.ttl_us // 1000, "lease": orphan.id, "client": engine.settings.name}
            # The clock is read before the send; a repetition under the same lease also counts from here.
            asking.sent(read())
            asked = session.ask({"acquire": {**body, "new_lease": new_lease}, **identity})
            if asked is None:
                await engine.loop.sleep(_PAUSE_US / 1e6)
                continue
            orphan.is_sent = True
            if not await engine.loop.wait(min(worthless, reach), asked.ready()):
                asked.close()
                session.suspect()
                return None
            update = update_of(*asked.take(), ask)
            if update.what == NO:
                orphan.is_sent = False
                asked.close()
                assert update.error is not None
                raise update.error
            if update.what == AGAIN:
                asked.close()
                pause = max(engine.jittered(_PAUSE_US), update.after_us)
                await engine.loop.sleep_until(min(boot_us() + pause, reach))
                continue
            if update.what == _OVER and ask.is_replaceable:
                raise Lost(Loss(_loss.GONE))
            if update.lease is None:
                raise strange()
            state = asking.granted(read())
            if isinstance(state, TooLate):
                return None
            held = HeldLease(engine, str(update.lease["lease"]), str(update.lease["created"]), state)
            orphan.is_sent = False
            return await _own_granted(held, ask, until, update, (session, asked))
    finally:
        orphan.give_back()


async def _own_granted(
    held: HeldLease, ask: Ask, until: Optional[int], update: Update, asked: Tuple[Session, Asked]
) -> GuardCore:
    try:
        if update.what == _QUEUED:
            _tell(held.engine, ask, update.ahead)
            update = await _Standing(held, ask, None, until, queued=True).run(asked)
        else:
            asked[1].close()
        return GuardCore.record(held, True, update.locks, update.revision, [])
    except BaseException:
        # Whatever is left of the request ends with its lease.
        held.engine.revoke_in_background(held)
        raise


class _Orphan:
    """A lease that may have been granted although its caller no longer waits."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        # Chosen here, so that the request can be repeated.
        self.id = str(max(secrets.randbits(63), 1))
        self.is_sent = False

    def give_back(self) -> None:
        if self.is_sent:
            self._engine.give_back(self.id)


class _Numbered:
    """The number of a request under its lease, and the wait that it asked for."""

    def __init__(self, seq: Seq, wait_ms: Optional[int]) -> None:
        self.seq = seq
        self.wait_ms = wait_ms


class _Numbers:
    """Keeps the number of the request that was sent, until it is answered."""

    def __init__(self, held: HeldLease) -> None:
        self._held = held
        self._sent: Optional[_Numbered] = None

    async def request(self, ask: Ask, until: Optional[int], resume: Json) -> Json:
        if self._sent is None or _plant.retry_without_id:
            self._sent = _Numbered(await self._held.seq(), _left_ms(ask, until))
        # A repetition under the same number must be identical.
        body = {**ask.body(self._sent.wait_ms), "lease": self._held.id, **resume}
        return {"acquire": body, **self._sent.seq.identity()}

    def drop(self) -> None:
        if self._sent is not None:
            self._sent.seq.drop()
            self._sent = None


async def _under(held: HeldLease, ask: Ask) -> GuardCore:
    engine = held.engine
    until = deadline(engine, ask)
    ended, permits = await held.acquire_permits(ask.names, boot_us() if ask.is_try else until)
    if ended:
        held.release_permits(permits)
        if engine.closing.is_done:
            raise Closed
        if ended == "lost":
            raise _gone(held)
        if ask.is_try:
            raise Refused("HELD", f"{ask.title}: held by this process under the same lease", {})
        raise _wait_timeout(ask)
    try:
        update = await stand(held, ask, until)
    except BaseException as error:
        if may_stand(error):
            engine.clean_up(_leave(held, ask, permits))
        else:
            held.release_permits(permits)
        raise
    if ask.kind == ANY:
        granted = {lock.name for lock in update.locks}
        held.release_permits([name for name in permits if name not in granted])
        permits = [name for name in permits if name in granted]
    return GuardCore.record(held, False, update.locks, update.revision, permits)


async def stand(held: HeldLease, ask: Ask, until: Optional[int]) -> Update:
    """Queues under a lease of the caller until the request is granted, refused or given up."""
    numbers = _Numbers(held)
    try:
        return await _Standing(held, ask, numbers, until, queued=False).run(None)
    finally:
        # What is sent from here on tells the cluster that the request was given up, if it still arrives.
        numbers.drop()


def may_stand(error: BaseException) -> bool:
    """Whether a request that failed may still stand in the cluster. A refused one is over."""
    return not isinstance(error, (Refused, Unavailable)) or getattr(error, "may_stand", False)


async def _leave(held: HeldLease, ask: Ask, permits: List[str]) -> None:
    """Leaves the queues, and releases what was granted meanwhile.

    If any of the locks was enough, each may be the one that was granted; otherwise the first one stands for all of them.
    """
    try:
        for name in ask.names if ask.kind == ANY else ask.names[:1]:
            if await _leave_one(held, name):
                break
    finally:
        held.release_permits(permits)


async def _leave_one(held: HeldLease, name: str) -> bool:
    """Returns whether there was a place or a hold of this lock to give up."""
    seq = await held.seq()
    try:
        reply = await call(held.engine, "leave", {"lock": name, "lease": held.id}, seq=seq)
    except Refused:
        return False
    finally:
        seq.drop()
    for one in reply.answer.get("left", {}).get("held", ()):
        await release(held, one["lock"], int(one["token"]))
    return True


class _Standing:
    """A request that stands in the cluster."""

    def __init__(self, held: HeldLease, ask: Ask, numbers: Optional[_Numbers], until: Optional[int], queued: bool) -> None:
        self._held = held
        self._engine = held.engine
        self._ask = ask
        self._numbers = numbers
        self._until = until
        self._queued = queued
        self._began = boot_us()
        self._sent = False
        self._newest: Optional[Error] = None

    async def run(self, on: Optional[Tuple[Session, Asked]]) -> Update:
        """Runs until the request is granted, refused or given up. `on` is where it is queued already."""
        asked = None if on is None else on[1]
        self._sent = asked is not None
        try:
            while True:
                if asked is None:
                    asked = await self._send()
                await self._wait(asked)
                update = update_of(*asked.take(), self._ask)
                if update.what == _GRANT:
                    return update
                if update.what == _QUEUED:
                    _tell(self._engine, self._ask, update.ahead)
                    # The request is answered. Keeping its number for the whole wait would block all later ones; a
                    # repetition under another number keeps the place in the queue.
                    if self._numbers is not None:
                        self._numbers.drop()
                    self._queued, self._pause = True, _PAUSE_US
                    continue
                asked.close()
                asked = None
                if update.what == NO:
                    assert update.error is not None
                    raise update.error
                if update.what == _OVER:
                    raise Lost(Loss(_loss.GONE)) if self._until is None else _wait_timeout(self._ask)
                self._newest = update.error
                await self._nap(max(self._engine.jittered(self._pause), update.after_us))
                self._pause = min(self._pause * 2, _PAUSE_MAX_US)
        finally:
            if asked is not None:
                asked.close()

    _pause = _PAUSE_US

    @property
    def _limit(self) -> Optional[int]:
        return None if self._until is None else self._until + _SLACK_US

    def _look(self) -> None:
        """Raises if the wait is over."""
        # Closing the client also ends the lease, so it is looked at first.
        if self._engine.closing.is_done:
            raise Closed
        if self._held.state.check(read()) is not None:
            raise _gone(self._held)
        if self._limit is not None and boot_us() >= self._limit:
            raise self._out_of_time()

    async def _send(self) -> Asked:
        """Sends the request on the current session, as soon as there is one."""
        denied_since: Optional[int] = None
        if self._ask.is_try and not self._sent:
            reach = self._limit or self._began + _AT_ONCE_US
            if await self._engine.session_at_once(reach) is None:
                raise self._engine.no_session()
        while True:
            self._look()
            session = self._engine.connections.now()
            if session is not None:
                # A request that was queued and replaced by a newer one of its group must not replace that one.
                resume: Json = {"resume": True} if self._queued and self._ask.is_replaceable else {}
                if self._numbers is None:
                    body = self._ask.body(_left_ms(self._ask, self._until))
                    request: Json = {"acquire": {**body, "lease": self._held.id, **resume}}
                else:
                    request = await self._numbers.request(self._ask, self._until, resume)
                asked = session.ask(request)
                if asked is not None:
                    self._sent = True
                    return asked
            elif self._engine.connections.denied is None:
                denied_since = None
            else:
                # Credentials that are being replaced may be right a moment later.
                denied_since = denied_since or boot_us()
                if boot_us() - denied_since >= _DENIED_US:
                    raise self._engine.no_session()
            await self._nap(_PAUSE_US)

    async def _wait(self, asked: Asked) -> None:
        """Waits for a message about the request, or raises if the wait is over."""
        ready = asked.ready()
        while not ready.is_done:
            self._look()
            await self._engine.loop.wait(self._limit, ready, self._held.lost_future, self._engine.closing)

    async def _nap(self, time_us: int) -> None:
        until = boot_us() + time_us
        if self._limit is not None:
            until = min(until, self._limit)
        await self._engine.loop.wait(until, self._held.lost_future, self._engine.closing)

    def _out_of_time(self) -> Error:
        """The wait is over by the client's own clock. What may still be granted is given back in the background."""
        if not self._sent:
            return self._engine.no_session()
        if self._queued:
            error: Error = _wait_timeout(self._ask)
            error.may_stand = True  # type: ignore[attr-defined]
            return error
        return self._newest or _unknown(self._began)


def _tell(engine: "Engine", ask: Ask, ahead: int) -> None:
    if ask.on_queued is not None:
        engine.notify(ask.on_queued, ahead)


def _wait_timeout(ask: Ask) -> Refused:
    return Refused("WAIT_TIMEOUT", f"timed out waiting for {ask.title}; the queue position is gone")


def _unknown(began: int) -> Unknown:
    return Unknown(f"no outcome within {(boot_us() - began) / 1e6:.1f}s; it may have happened")


def _gone(held: HeldLease) -> Lost:
    loss = held.update(lambda state, now: state.check(now))
    return Lost(loss or Loss(_loss.GONE))

"""Runs a client: its thread, its sessions, its leases, and what it leaves behind."""

import atexit
import contextlib
import logging
import random
import weakref
from collections import deque
from typing import Any, Callable, Coroutine, Deque, Dict, Iterator, Optional, Sequence, Tuple, TypeVar

from . import _loss, _native, _requests
from ._clock import boot_us
from ._connections import Bell, Connections
from ._guards import confirm, revoke, revoke_id
from ._held import HeldLease
from ._job import Job
from ._loop import Future, Loop
from ._loss import Loss, from_cluster
from ._renew import Renewals
from ._session import Session
from ._settings import Settings
from .errors import Closed, Error, Lost, Refused, StillHeld, Unknown

T = TypeVar("T")
Json = Dict[str, Any]

_log = logging.getLogger("tenure")

# The retry budget, in tenths of a retry. Each answer earns one tenth back, so that retries add at most a tenth to the load of
# a cluster in trouble.
_BUDGET = 1_000
_RETRY_COST = 10
# How many leases a hello may name.
_RESUME_MAX = 4_096
# How long the end of the program waits for releases.
_EXIT_SECONDS = 1.0

_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


class Engine:
    """Everything that one client shares. Methods run on the loop's thread, unless they say otherwise."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.loop = Loop()
        self.leases: Dict[str, HeldLease] = {}
        self.jobs: "set[Job[Any]]" = set()
        self.streams: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self.leader_moved = Bell()
        self.connections = Connections(self, settings.addresses)
        self.renewals = Renewals(self)
        self.closing: Future[None] = Future()
        """Is done when the client was closed: it takes no new requests for locks."""
        self.stopped: Future[None] = Future()
        self.is_stopped = False
        """Whether the client is closed, and its thread ends."""
        self.is_ended = False
        """Whether the thread has ended."""
        self.is_forked = False
        self._cluster: Optional[Tuple[str, int, str]] = None
        self._budget = _BUDGET
        self._cleanups = 0
        self._settled = Bell()
        self._notes: Deque[Tuple[Callable[..., object], Tuple[Any, ...]]] = deque()
        self._is_notifying = False
        self._notes_lock = _native.make_lock()
        self.loop.before_sleep.append(self._flush)
        _engines.add(self)

    def start(self) -> None:
        """Starts the thread. On any thread."""
        self.loop.start(self._ended)
        self.loop.call(lambda: self._spawn(self._keep_running(self.connections.run)))
        self.loop.call(lambda: self._spawn(self._keep_running(self.renewals.run)))

    async def _keep_running(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # A bug in one turn must not end the renewals of all leases.
        while not self.is_stopped:
            try:
                await work()
            except Exception as error:  # noqa: BLE001
                self.notify(_log.error, "a bug in the tenure client; it goes on: %r", error)
                await self.loop.sleep(0.1)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        def report(task: Future[None]) -> None:
            error = task.error()
            if error is not None and not self.is_stopped:
                self.notify(_log.error, "a bug in the tenure client: %r", error)

        self.loop.spawn(work).then(report)

    def caller_span(self) -> Optional[str]:
        """The W3C `traceparent` of the calling thread or task, if there is one. On any thread."""
        if self.settings.traceparent is None:
            return None
        try:
            return self.settings.traceparent() or None
        except Exception as error:  # noqa: BLE001 - a request without a span is better than none
            _log.debug("the caller's span cannot be read: %r", error)
            return None

    def submit(self, work: Callable[[], Coroutine[Any, Any, T]], must_finish: bool = False) -> Job[T]:
        """Runs a coroutine on the engine's thread. On any thread."""
        return Job(self, work, must_finish)

    def _ended(self) -> None:
        self.is_stopped = self.is_ended = True
        for job in list(self.jobs):
            job.fail(Closed())

    def _flush(self) -> None:
        for session in self.connections.alive():
            session.flush()

    # Sessions.

    def hello(self) -> Json:
        """The first message: the client's identity, and the leases that it wants notices about."""
        hello: Json = {"client": self.settings.name}
        if self._cluster is not None:
            cluster, epoch, incarnation = self._cluster
            hello.update(cluster_id=cluster, epoch=epoch, incarnation=incarnation)
        message: Json = {"hello": hello}
        leases = [lease for lease, held in self.leases.items() if held.state.loss is None]
        if leases:
            message["resume"] = {"leases": leases[:_RESUME_MAX]}
        return message

    def recognise(self, met: Tuple[str, int, str]) -> Optional[str]:
        """Checks that a member belongs to our cluster. One that was restored since has ended all of our leases."""
        known = self._cluster
        if known is not None and known[0] != met[0]:
            return "belongs to another cluster"
        if known is not None and known[1] > met[1]:
            return "belongs to the cluster as it was before it was restored"
        self._cluster = met
        if known is not None and known != met:
            self._end_all()
        return None

    def was_closed(self, session: Session, error: Json) -> None:
        """A member ended the session."""
        if error.get("reason") == "RESTORED":
            self._cluster = None
            self._end_all()

    def _end_all(self) -> None:
        for held in list(self.leases.values()):
            held.update(lambda state, now: state.ended(Loss(_loss.GONE), now))

    async def session(self, until_us: int) -> Optional[Session]:
        """Returns a session, as soon as there is one. `None` at the deadline, or when members refuse the credentials."""
        while True:
            session = self.connections.now()
            # A member that refuses the credentials will refuse them again, so nothing is gained by waiting.
            if session is not None or self.connections.denied is not None:
                return session
            if not await self.loop.wait(until_us, self.connections.changed.next(), self.stopped):
                return None
            if self.is_stopped:
                return None

    async def session_at_once(self, until_us: int) -> Optional[Session]:
        """The same for a caller that does not want to wait: also `None` once a whole round of attempts reached no member."""
        before = self.connections.failed_rounds
        while True:
            session = self.connections.now()
            decided = self.connections.denied is not None or self.connections.failed_rounds != before
            if session is not None or decided:
                return session
            if not await self.loop.wait(until_us, self.connections.changed.next(), self.stopped):
                return None

    def no_session(self) -> Error:
        """The error of a request for which there is no session."""
        denied = self.connections.denied
        if denied is not None:
            return Refused(denied.reason, str(denied), denied.detail)
        return _requests.unavailable(self.connections.tried)

    def credentials_refused(self) -> None:
        """Members refuse the credentials."""
        for held in list(self.leases.values()):
            held.update(lambda state, now: state.credentials_refused())

    # Retries.

    def jittered(self, pause_us: int) -> int:
        """The pause, or up to half less: clients that failed together do not come back together."""
        return pause_us - random.randrange(pause_us // 2 + 1)

    def earn(self) -> None:
        """An answer came."""
        self._budget = min(self._budget + 1, _BUDGET)

    def spend(self) -> bool:
        """Takes one retry from the budget, if any is left."""
        if self._budget < _RETRY_COST:
            return False
        self._budget -= _RETRY_COST
        return True

    # Leases.

    def register(self, held: HeldLease) -> None:
        """Looks after a lease from now on."""
        self.leases[held.id] = held
        self.loop.is_watchful = True
        self.renewals.add(held)

    def forget(self, held: HeldLease) -> None:
        """The lease is over, and nothing uses it."""
        if self.leases.get(held.id) is held:
            del self.leases[held.id]
        self.renewals.remove(held)
        self.loop.is_watchful = bool(self.leases)
        self.settled()

    def lock_lost(self, lost: Json, ended: Sequence[Json]) -> None:
        """A member says that a lock is lost, and which leases ended at the same time."""
        token = int(lost["token"])
        held = self.leases.get(lost["lease"]) if "lease" in lost else self._holder_of(lost["lock"], token)
        if held is None:
            return
        lease = held.id
        # The cluster sends the reason of a revoke once, with the lease, and not with each of its locks.
        whole = next((it for it in ended if it.get("lease") == lease), {})
        loss = from_cluster(lost["cause"], lost.get("by"), lost.get("reason") or whole.get("reason"))
        held.update(lambda state, now: state.taken(token, loss))

    def _holder_of(self, lock: str, token: int) -> Optional[HeldLease]:
        return next((held for held in self.leases.values() if token in held.signals), None)

    def lease_ended(self, ended: Json) -> None:
        """A member says that a lease is over."""
        held = self.leases.get(ended["lease"])
        if held is not None:
            loss = from_cluster(ended["cause"], ended.get("by"), ended.get("reason"))
            held.update(lambda state, now: state.ended(loss, now))

    def revoke_in_background(self, held: HeldLease) -> None:
        """Revokes a lease, if no work runs under it."""
        self.clean_up(revoke(held))

    def give_back(self, lease: str) -> None:
        """Revokes a lease that may have been granted and that no caller uses."""
        self.clean_up(revoke_id(self, lease))

    def release_early(self, held: HeldLease) -> None:
        """The planted bug of a client that gives a lost lock back although its work has not stopped."""
        for token, lock, _ in held.state.farewells():
            self.clean_up(confirm(held, lock, token))
        if held.state.loss is not None:
            self.clean_up(revoke_id(self, held.id))

    # What guards and leases leave behind.

    @contextlib.contextmanager
    def cleaning(self) -> Iterator[None]:
        """While this is open, the client is not closed."""
        self._cleanups += 1
        try:
            yield
        finally:
            self._cleanups -= 1
            self.settled()

    def clean_up(self, work: Coroutine[Any, Any, None]) -> None:
        """Finishes something in the background. If it fails, it ends with its lease."""

        async def run() -> None:
            with self.cleaning():
                try:
                    await work
                except (Lost, Closed):
                    pass
                except Error as error:
                    self.warn("cannot release a lock; its lease runs out: %s", error)

        self.loop.spawn(run())

    def settled(self) -> None:
        """Something ended that closing the client may wait for."""
        self._settled.ring()

    async def close(self, within_us: int, at_exit: bool = False) -> None:
        """Takes no new requests, and waits until every guard is gone and every release is acknowledged.

        At the end of the program it does not wait for guards: what uses them has ended, or never will.
        """
        until, began = boot_us() + within_us, boot_us()
        self.closing.set(None)
        for stream in list(self.streams):
            stream.end()
        while True:
            changed = self._settled.next()
            leases = list(self.leases.values())
            used = [held for held in leases if not held.update(lambda state, now: state.is_idle())]
            for held in leases:
                if held not in used and not held.is_revoked:
                    self.revoke_in_background(held)
            if not used and self._cleanups == 0 and not self.leases:
                self.stop()
                return
            if (at_exit and self._cleanups == 0) or not await self.loop.wait(until, changed):
                break
        self._spawn(self._stop_when_idle())
        locks = [lock for held in self.leases.values() for lock in held.state.in_use()]
        if locks:
            raise StillHeld(locks)
        raise Unknown(f"a release was not acknowledged within {(boot_us() - began) / 1e6:.1f}s; it ends with its lease")

    async def _stop_when_idle(self) -> None:
        while self._cleanups or self.leases or self.jobs or any(not it.is_over for it in self.streams):
            for held in list(self.leases.values()):
                idle = held.update(lambda state, now: state.is_idle())
                if idle and not held.is_revoked and not held.is_kept:
                    self.revoke_in_background(held)
            await self.loop.wait(boot_us() + 1_000_000, self._settled.next())
        self.stop()

    def dismiss(self) -> None:
        """The client object is gone: ends the thread once no guard, lease or watch of it is left. On any thread."""
        if not self.is_stopped:
            self.loop.call(lambda: self._spawn(self._stop_when_idle()))

    def stop(self) -> None:
        """Ends the sessions and the thread."""
        self.is_stopped = True
        self.connections.close()
        self.stopped.set(None)
        # The caller of `close` is told first.
        self.loop.soon(lambda: self.loop.soon(self.loop.stop))

    # What the program sees of it.

    def notify(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Calls a function of the program on a thread of its own: it may block, and renewals must not. On any thread."""
        with self._notes_lock:
            self._notes.append((callback, arguments))
            if self._is_notifying:
                return
            self._is_notifying = True
        _native.start_thread(self._notify_all)

    def _notify_all(self) -> None:
        while True:
            with self._notes_lock:
                if not self._notes:
                    self._is_notifying = False
                    return
                callback, arguments = self._notes.popleft()
            try:
                callback(*arguments)
            except Exception:  # noqa: BLE001 - it is the program's
                _log.exception("a callback of the program failed")

    def warn(self, message: str, *arguments: Any) -> None:
        """Logs a warning. On any thread."""
        self.notify(_log.warning, message, *arguments)

    def info(self, message: str, *arguments: Any) -> None:
        """Logs what is good to know. On any thread."""
        self.notify(_log.info, message, *arguments)

    def forked(self) -> None:
        """In a forked child: this engine belongs to the parent, and its thread does not run here."""
        self.is_forked = self.is_stopped = self.is_ended = True
        self._notes_lock = _native.make_lock()
        self._notes.clear()
        self.loop.close_after_fork()
        for held in self.leases.values():
            held.forked()
        self.leases = {}
        self.jobs.clear()


def _forget_in_child() -> None:
    for engine in list(_engines):
        engine.forked()


def _close_all() -> None:
    until = boot_us() + int(_EXIT_SECONDS * 1e6)
    for engine in list(_engines):
        left = until - boot_us()
        if engine.is_stopped or left <= 0:
            continue
        with contextlib.suppress(Error):
            engine.submit(lambda engine=engine, left=left: engine.close(left, at_exit=True)).wait()  # type: ignore[misc]


_native.at_fork_in_child(_forget_in_child)
atexit.register(_close_all)

"""Guards, leases and leaderships for threads."""

from __future__ import annotations

import functools
import logging
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Type, TypeVar, Union

from . import _hand_on, _native, _operations
from ._acquire import acquire
from ._ask import ANY, Ask, Value
from ._base import BaseGuard, BaseLease
from ._clock import boot_us
from ._engine import Engine
from ._fence import raise_for
from ._guards import GuardCore
from ._held import HeldLease
from ._loss import Loss
from ._signal import Signal
from .errors import Error, Lost, Refused

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import LockOptions

__all__ = ["Guard", "Leadership", "Lease", "Lock", "LossEvent"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
GuardT = TypeVar("GuardT", bound="Guard")

_log = logging.getLogger("tenure")


class LossEvent:
    """Is set when a lock or lease is lost, and also when its holder has given it back."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal

    def is_set(self) -> bool:
        """Whether it is over. To decide about the next step use `check`, which compares the clock."""
        return self._signal.loss is not None

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Blocks until it is over, for at most so many seconds. Returns whether it is."""
        waiter = _native.Waiter()

        def wake(_: Loss) -> None:
            waiter.set()

        self._signal.then(wake)
        try:
            return waiter.wait(timeout)
        finally:
            self._signal.forget(wake)

    @property
    def loss(self) -> Optional[Loss]:
        """The loss: its `cause`, and `by` whom and for which `reason` if another client took it."""
        return self._signal.loss


def note_loss(error: Optional[BaseException], lost: Lost) -> None:
    """Adds to the exception of a body that its lock was lost, where the language has notes."""
    add_note = getattr(error, "add_note", None)
    if add_note is not None:
        add_note(f"tenure: {lost}")


class Guard(BaseGuard):
    """A held lock. Leaving its `with` block releases it.

    A guard that is neither released nor left stays held, and is renewed, until the program ends.
    """

    @property
    def lost(self) -> LossEvent:
        """Is set when the lock is lost: `guard.lost.wait()`, `guard.lost.is_set()`."""
        return LossEvent(self._core.signal)

    def release(self) -> None:
        """Releases the lock and waits until the cluster has acknowledged it. The work under it must have stopped.

        If the lock is lost, raises `Lost` at once, and the client tells the cluster in the background that the work has
        stopped. A second call does nothing.
        """
        if self._is_released:
            return
        self.check_fork()
        self._is_released = True
        if self._core.leave():
            self._core.engine.submit(self._core.release, must_finish=True).wait()

    def check_fork(self) -> None:
        """In a forked child: raises `Lost`, because only the parent holds it."""
        if self._core.engine.is_forked:
            self.check()

    def reenter(self) -> Guard:
        """Another guard of the same grant, for a function that takes the lock again. The last one releases it."""
        self.check()
        self._core.reenter()
        return type(self)(self._core)

    def update(self, metadata: Value) -> None:
        """Replaces the metadata of the grant, which other clients can read."""
        self.check_fork()
        self._core.engine.submit(lambda: _operations.update(self._core, metadata)).wait()

    def downgrade(self) -> None:
        """Turns an exclusive hold into a shared one, without a gap. The token changes."""
        self.check_fork()
        self._core.engine.submit(lambda: _operations.downgrade(self._core)).wait()

    def upgrade(self, wait: Optional[float] = None) -> None:
        """Turns a shared hold into an exclusive one, once there is no other holder. The token changes.

        The lock stays held all the time: shared while this waits, before all others in the queue, and shared still if the
        wait is over first. `wait` seconds are spent at most: without it there is no limit, 0 does not wait. If another holder
        waits for the same already, this one is refused with `DEADLOCK`: release the lock then. After any exception but
        `Refused`, `Unavailable` and `Invalid` the guard is lost: stop the work and release it.
        """
        self.check_fork()
        self._core.engine.submit(lambda: _hand_on.upgrade(self._core, wait)).wait()

    def hand_on(self, to: Union[str, BaseLease]) -> int:
        """Gives the hold to the client of another lease, which waits for this lock alone, in the same mode.

        It gets the lock at once, ahead of all others, under the token that this returns; the lock is never free in between.
        The work must have stopped. If that lease does not wait, this is refused with `NOT_WAITING`, and the lock is held as
        before. If the outcome is unknown, the guard is lost.
        """
        self.check_fork()
        lease = to.id if isinstance(to, BaseLease) else to
        token = self._core.engine.submit(lambda: _hand_on.hand_on(self._core, lease)).wait()
        self._is_released = True
        return token

    def progress(self, number: int) -> Optional[float]:
        """Reports how far the work has come, for a lock that was taken with `progress_within`.

        Only a number that is larger than all before counts; before the first report it is 0. Returns in how many seconds a
        larger number is due, or `None` if none was promised. One report counts for all locks of the guard.
        """
        self.check_fork()
        return self._core.engine.submit(lambda: _operations.progress(self._core, number)).wait()

    def ticket(self) -> str:
        """Signs a ticket: a proof of the grant that a fence can check by itself."""
        self.check_fork()
        return self._core.engine.submit(lambda: _operations.ticket(self._core)).wait()

    def __enter__(self: GuardT) -> GuardT:
        self.check()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Releases the lock. An exception of the body passes; without one, a lost lock is raised as `Lost`."""
        if error is None:
            # Work that outlived its lock is never a success.
            if not self._is_released:
                self._release_after_success()
            return
        try:
            self.release()
        except Lost as lost:
            note_loss(error, lost)
        except Error as problem:
            _log.warning("cannot release lock `%s`; its lease runs out: %s", self.name, problem)

    def _release_after_success(self) -> None:
        try:
            self.release()
        except Lost:
            raise
        except Error as problem:
            # The work is done, and it was done under the lock.
            _log.warning("cannot release lock `%s`; its lease runs out: %s", self.name, problem)


class Lock:
    """A request for a lock. `with` waits in the queue, runs the body and releases it; `acquire` returns the guard."""

    def __init__(self, engine: Callable[[], Engine], ask: Ask, held: Optional[HeldLease] = None) -> None:
        self._engine = engine
        self._ask = ask
        self._held = held
        # By thread (by greenlet under gevent), because one request object may be used by several.
        self._entered: Dict[int, List[Guard]] = {}

    def acquire(self) -> Guard:
        """Waits in the queue and returns the guard. The caller releases it."""
        return Guard(self._acquire(self._ask))

    def _acquire(self, ask: Ask) -> GuardCore:
        engine, held = self._engine(), self._held
        if held is not None and held.engine.is_forked:
            raise Lost(held.state.loss or Loss("forked"))
        until_us = None if ask.timeout_us is None else boot_us() + ask.timeout_us
        return raise_for(engine.submit(lambda: acquire(engine, ask, held)).wait(), ask.fence, until_us)

    def try_acquire(self) -> Optional[Guard]:
        """Does not queue. Returns `None` if another client holds it."""
        try:
            return Guard(self._acquire(self._ask.without_wait()))
        except Refused as refused:
            if refused.reason == "HELD":
                return None
            raise

    def __enter__(self) -> Guard:
        guard = self.acquire()
        self._entered.setdefault(threading.get_ident(), []).append(guard)
        return guard

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        me = threading.get_ident()
        guards = self._entered[me]
        guard = guards.pop()
        if not guards:
            del self._entered[me]
        guard.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        """As a decorator: every call waits for the lock, runs, and releases it."""

        @functools.wraps(function)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return locked  # type: ignore[return-value]


class Lease(BaseLease):
    """A lease of the caller. Leaving its `with` block ends it, and with it what is bound to it."""

    @property
    def lost(self) -> LossEvent:
        """Is set when the lease is lost."""
        return LossEvent(self._held.lost)

    def lock(self, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """A request for locks under this lease; the options are those of `Client.lock`."""
        engine = self._held.engine
        return Lock(lambda: engine, Ask(engine.settings, names, **options), self._held)

    def lock_any(self, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """A request for any one of several locks under this lease, as `Client.lock_any`."""
        engine = self._held.engine
        return Lock(lambda: engine, Ask(engine.settings, names, ANY, **options), self._held)

    def try_lock(self, *names: str, **options: Unpack[LockOptions]) -> Optional[Guard]:
        """Does not queue. Returns `None` if another client holds it."""
        return self.lock(*names, **options).try_acquire()

    def release(self) -> None:
        """Ends the lease. Its guards must be gone, because the work under it must have stopped."""
        if not self._held.engine.is_forked:
            self._held.engine.submit(lambda: _operations.release_lease(self._held), must_finish=True).wait()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.release()
        except Error as problem:
            if error is None and not isinstance(problem, Lost):
                _log.warning("cannot end lease %s; it runs out: %s", self.id, problem)


class Leadership(Guard):
    """Leadership of an election: a guard, and the value that others see."""

    def proclaim(self, value: Value) -> None:
        """Replaces the value that others see."""
        self.update(value)

    def resign(self) -> None:
        """Gives leadership up. The work under it must have stopped."""
        self.release()


class Campaign:
    """A candidacy. `with` waits in the queue until this client leads; `acquire` returns the leadership."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._entered: Dict[int, List[Leadership]] = {}

    def acquire(self) -> Leadership:
        """Waits until this client leads. The caller resigns."""
        return Leadership(self._lock._acquire(self._lock._ask))

    def __enter__(self) -> Leadership:
        lead = self.acquire()
        self._entered.setdefault(threading.get_ident(), []).append(lead)
        return lead

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._entered[threading.get_ident()].pop().__exit__(kind, error, trace)

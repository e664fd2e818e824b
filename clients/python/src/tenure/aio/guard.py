"""Guards, leases and leaderships for asyncio."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Awaitable,
    Callable,
    Coroutine,
    Dict,
    Generator,
    List,
    Optional,
    Type,
    TypeVar,
    Union,
)

from .. import _hand_on, _operations
from .._acquire import acquire
from .._ask import ANY, Ask, Value
from .._base import BaseGuard, BaseLease
from .._clock import boot_us
from .._engine import Engine
from .._fence import Fence, given_back, refusing
from .._guards import GuardCore
from .._held import HeldLease
from .._job import Job
from .._loss import RELEASED, Loss
from .._signal import Signal
from ..errors import Error, FenceFailed, Lost, Refused, Timeout
from ..guard import note_loss

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._options import LockOptions

__all__ = ["Guard", "Leadership", "Lease", "Lock", "LossEvent"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
GuardT = TypeVar("GuardT", bound="Guard")

_log = logging.getLogger("tenure")


async def finished(job: Job[T]) -> T:
    """Waits for a job of the engine. If the waiting task is cancelled, the job is given up."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def done() -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:
            # The event loop is closed, so no task waits any more.
            job.abandon()

    job.then(done)
    try:
        await future
    except BaseException:
        job.abandon()
        raise
    return job.result()


class LossEvent:
    """Is set when a lock or lease is lost, and also when its holder has given it back."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal

    def is_set(self) -> bool:
        """Whether it is over. To decide about the next step use `check`, which compares the clock."""
        return self._signal.loss is not None

    async def wait(self) -> Loss:
        """Waits until it is over, and returns the loss."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake(_: Loss) -> None:
            loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(None))

        self._signal.then(wake)
        try:
            await future
        finally:
            self._signal.forget(wake)
        loss = self._signal.loss
        assert loss is not None
        return loss

    @property
    def loss(self) -> Optional[Loss]:
        """The loss: its `cause`, and `by` whom and for which `reason` if another client took it."""
        return self._signal.loss


class _Stopper:
    """Cancels a task when a lock is lost, and tells its own cancellation from that of others."""

    def __init__(self, core: GuardCore) -> None:
        task = asyncio.current_task()
        assert task is not None, "a guard is entered in a task"
        self._core = core
        self._task: asyncio.Task[Any] = task
        self._loop = asyncio.get_running_loop()
        self._is_armed = True
        self._has_cancelled = False
        cancelling = getattr(task, "cancelling", None)
        self._cancelling = 0 if cancelling is None else cancelling()
        core.signal.then(self._lost)

    def _lost(self, loss: Loss) -> None:
        if loss.cause != RELEASED:
            try:
                self._loop.call_soon_threadsafe(self._cancel)
            except RuntimeError:
                # The event loop is closed: nothing of it runs any more.
                pass

    def _cancel(self) -> None:
        if self._is_armed and not self._task.done():
            self._has_cancelled = True
            self._task.cancel()

    def disarm(self, kind: Optional[Type[BaseException]]) -> bool:
        """Cancels nothing any more. Returns whether the exception of the body is this cancellation and no other."""
        self._is_armed = False
        self._core.signal.forget(self._lost)
        if not self._has_cancelled:
            return False
        uncancel = getattr(self._task, "uncancel", None)
        others = uncancel is not None and uncancel() > self._cancelling
        return kind is not None and issubclass(kind, asyncio.CancelledError) and not others


class _Checked(Awaitable[T]):
    """Runs a coroutine, and reads the clock before each of its steps: none runs on an old check after a pause."""

    def __init__(self, core: GuardCore, work: Awaitable[T]) -> None:
        self._core = core
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        thrown: Optional[BaseException] = None
        lost: Optional[Lost] = None
        while True:
            if lost is None:
                lost = self._core.check()
                if lost is not None and thrown is None:
                    # Its cleanup may still wait for something; it cannot go on as if nothing had happened.
                    thrown = asyncio.CancelledError()
            try:
                if thrown is None:
                    waits_for = steps.send(None)
                else:
                    error, thrown = thrown, None
                    waits_for = steps.throw(error)
            except StopIteration as stopped:
                lost = lost or self._core.check()
                if lost is not None:
                    raise lost from None
                return stopped.value  # type: ignore[no-any-return]
            except asyncio.CancelledError:
                if lost is not None:
                    raise lost from None
                raise
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - passed to the coroutine
                thrown = error


class Guard(BaseGuard):
    """A held lock. Leaving its `async with` block releases it; while in it, losing the lock cancels the task.

    A guard that is neither released nor left stays held, and is renewed, until the program ends.
    """

    def __init__(self, core: GuardCore) -> None:
        super().__init__(core)
        self._stoppers: List[_Stopper] = []

    @property
    def lost(self) -> LossEvent:
        """Is set when the lock is lost: `await guard.lost.wait()`, `guard.lost.is_set()`."""
        return LossEvent(self._core.signal)

    async def release(self) -> None:
        """Releases the lock and waits until the cluster has acknowledged it. The work under it must have stopped.

        If the lock is lost, raises `Lost` at once, and the client tells the cluster in the background that the work has
        stopped. A second call does nothing. If the waiting task is cancelled, the release goes on.
        """
        if self._is_released:
            return
        if self._core.engine.is_forked:
            self.check()
        self._is_released = True
        if self._core.leave():
            await finished(self._core.engine.submit(self._core.release, must_finish=True))

    def reenter(self: GuardT) -> GuardT:
        """Another guard of the same grant, for a function that takes the lock again. The last one releases it."""
        self.check()
        self._core.reenter()
        return type(self)(self._core)

    async def run(self, work: Awaitable[T]) -> T:
        """Runs a coroutine, cancels it when the lock is lost, and never starts a step of it after that.

        Reads the clock before each step, so that no step runs on an old check after the process was paused. Returns only if
        the lock was held until the coroutine had ended; otherwise raises `Lost`.
        """
        stopper = _Stopper(self._core)
        try:
            done = await _Checked(self._core, work)
        except BaseException as error:
            if stopper.disarm(type(error)):
                lost = self._core.check()
                if lost is not None:
                    raise lost from None
            raise
        stopper.disarm(None)
        return done

    async def update(self, metadata: Value) -> None:
        """Replaces the metadata of the grant, which other clients can read."""
        await finished(self._core.engine.submit(lambda: _operations.update(self._core, metadata)))

    async def downgrade(self) -> None:
        """Turns an exclusive hold into a shared one, without a gap. The token changes."""
        await finished(self._core.engine.submit(lambda: _operations.downgrade(self._core)))

    async def upgrade(self, wait: Optional[float] = None) -> None:
        """Turns a shared hold into an exclusive one, once there is no other holder. The token changes.

        The lock stays held all the time: shared while this waits, before all others in the queue, and shared still if the
        wait is over first. `wait` seconds are spent at most: without it there is no limit, 0 does not wait. If another holder
        waits for the same already, this one is refused with `DEADLOCK`: release the lock then. After any exception but
        `Refused`, `Unavailable` and `Invalid` the guard is lost: stop the work and release it.
        """
        await finished(self._core.engine.submit(lambda: _hand_on.upgrade(self._core, wait)))

    async def hand_on(self, to: Union[str, BaseLease]) -> int:
        """Gives the hold to the client of another lease, which waits for this lock alone, in the same mode.

        It gets the lock at once, ahead of all others, under the token that this returns; the lock is never free in between.
        The work must have stopped. If that lease does not wait, this is refused with `NOT_WAITING`, and the lock is held as
        before. If the outcome is unknown, the guard is lost.
        """
        lease = to.id if isinstance(to, BaseLease) else to
        token = await finished(self._core.engine.submit(lambda: _hand_on.hand_on(self._core, lease)))
        self._is_released = True
        return token

    async def progress(self, number: int) -> Optional[float]:
        """Reports how far the work has come, for a lock that was taken with `progress_within`.

        Only a number that is larger than all before counts; before the first report it is 0. Returns in how many seconds a
        larger number is due, or `None` if none was promised. One report counts for all locks of the guard.
        """
        return await finished(self._core.engine.submit(lambda: _operations.progress(self._core, number)))

    async def ticket(self) -> str:
        """Signs a ticket: a proof of the grant that a fence can check by itself."""
        return await finished(self._core.engine.submit(lambda: _operations.ticket(self._core)))

    async def __aenter__(self: GuardT) -> GuardT:
        self.check()
        self._stoppers.append(_Stopper(self._core))
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Releases the lock. An exception of the body passes; without one, a lost lock is raised as `Lost`."""
        was_stopped = self._stoppers.pop().disarm(kind)
        lost = self._core.check() if was_stopped else None
        if error is None and self._is_released:
            return
        try:
            await self.release()
        except Lost as problem:
            if error is None or was_stopped:
                raise (lost or problem) from error
            note_loss(error, problem)
        except Error as problem:
            # The work is done, and it was done under the lock.
            _log.warning("cannot release lock `%s`; its lease runs out: %s", self.name, problem)


class Lock:
    """A request for a lock. `async with` waits in the queue, runs the body and releases it; `acquire` returns the guard."""

    def __init__(self, engine: Callable[[], Engine], ask: Ask, held: Optional[HeldLease] = None) -> None:
        self._engine = engine
        self._ask = ask
        self._held = held
        # By task, because one request object may be used by several.
        self._entered: Dict[Any, List[Guard]] = {}

    async def acquire(self) -> Guard:
        """Waits in the queue and returns the guard. The caller releases it."""
        return Guard(await self._acquire(self._ask))

    async def _acquire(self, ask: Ask) -> GuardCore:
        engine, held = self._engine(), self._held
        if held is not None and held.engine.is_forked:
            raise Lost(held.state.loss or Loss("forked"))
        began = boot_us()
        core = await finished(engine.submit(lambda: acquire(engine, ask, held)))
        if ask.fence is not None:
            left_us = None if ask.timeout_us is None else began + ask.timeout_us - boot_us()
            with given_back(core):
                await _raise_for(core, ask.fence, left_us)
        return core

    async def try_acquire(self) -> Optional[Guard]:
        """Does not queue. Returns `None` if another client holds it."""
        try:
            return Guard(await self._acquire(self._ask.without_wait()))
        except Refused as refused:
            if refused.reason == "HELD":
                return None
            raise

    async def __aenter__(self) -> Guard:
        guard = await self.acquire()
        self._entered.setdefault(asyncio.current_task(), []).append(guard)
        try:
            return await guard.__aenter__()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self._leave().__aexit__(kind, error, trace)

    def _leave(self) -> Guard:
        task = asyncio.current_task()
        guards = self._entered[task]
        guard = guards.pop()
        if not guards:
            del self._entered[task]
        return guard

    def __call__(self, function: F) -> F:
        """As a decorator: every call waits for the lock, runs, and releases it."""

        @functools.wraps(function)
        async def locked(*args: Any, **kwargs: Any) -> Any:
            async with self as guard:
                return await guard.run(function(*args, **kwargs))

        return locked  # type: ignore[return-value]


async def _raise_for(core: GuardCore, fence: Fence, left_us: Optional[int]) -> None:
    """Raises the fence for every lock, within the time of any request and what is left of the caller's own."""

    async def raise_all() -> None:
        for lock in core.locks:
            with refusing(core, lock):
                raised = fence(lock)
                if inspect.isawaitable(raised):
                    await raised

    async def raise_under_guard() -> None:
        # If no time is left, this never begins: then no coroutine may have been made that nothing awaits.
        await Guard(core).run(raise_all())

    within_us = core.engine.settings.timeout_us
    is_limited = left_us is not None and left_us < within_us
    within = max(left_us if left_us is not None and is_limited else within_us, 0) / 1e6
    is_late: List[bool] = []
    # It rings before the limit of `wait_for`, because it is set before.
    alarm = asyncio.get_running_loop().call_later(within, is_late.append, True)
    try:
        await asyncio.wait_for(raise_under_guard(), within)
    except (asyncio.TimeoutError, FenceFailed) as failed:
        # A fence that is cancelled at the limit may raise an error of its own.
        if isinstance(failed, FenceFailed) and not is_late:
            raise
        error = Timeout if is_limited else FenceFailed
        raise error(f"the fence was not raised within {within:.1f}s; the lock is given back") from failed
    finally:
        alarm.cancel()


class Lease(BaseLease):
    """A lease of the caller. Leaving its `async with` block ends it, and with it what is bound to it."""

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

    async def try_lock(self, *names: str, **options: Unpack[LockOptions]) -> Optional[Guard]:
        """Does not queue. Returns `None` if another client holds it."""
        return await self.lock(*names, **options).try_acquire()

    async def release(self) -> None:
        """Ends the lease. Its guards must be gone, because the work under it must have stopped."""
        engine = self._held.engine
        if not engine.is_forked:
            await finished(engine.submit(lambda: _operations.release_lease(self._held), must_finish=True))

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self.release()
        except Error as problem:
            if error is None and not isinstance(problem, Lost):
                _log.warning("cannot end lease %s; it runs out: %s", self.id, problem)


class Leadership(Guard):
    """Leadership of an election: a guard, and the value that others see."""

    async def proclaim(self, value: Value) -> None:
        """Replaces the value that others see."""
        await self.update(value)

    async def resign(self) -> None:
        """Gives leadership up. The work under it must have stopped."""
        await self.release()


class Campaign:
    """A candidacy. `async with` waits in the queue until this client leads; `acquire` returns the leadership."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._entered: Dict[Any, List[Leadership]] = {}

    async def acquire(self) -> Leadership:
        """Waits until this client leads. The caller resigns."""
        return Leadership(await self._lock._acquire(self._lock._ask))

    async def __aenter__(self) -> Leadership:
        lead = await self.acquire()
        self._entered.setdefault(asyncio.current_task(), []).append(lead)
        return await lead.__aenter__()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self._entered[asyncio.current_task()].pop().__aexit__(kind, error, trace)

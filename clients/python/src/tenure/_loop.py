"""Runs coroutines, timers and sockets on one thread, by the clock that counts suspend.

A loop of its own rather than asyncio's, because it has to run beside any event loop and under gevent, on sockets and
threads that gevent has not replaced.
"""

import heapq
import logging
import os
import traceback
from collections import deque
from itertools import count
from typing import Any, Callable, Coroutine, Deque, Dict, Generator, Generic, List, Optional, Tuple, TypeVar, cast

from ._clock import boot_us
from ._native import original, start_thread

T = TypeVar("T")
Callback = Callable[[], None]

_log = logging.getLogger("tenure")

# Timers of the operating system do not count while the machine is suspended. While a lease is held the loop looks at the
# clock this often, so that a loss is noticed this soon after the machine wakes up.
STEP_US = 50_000
_READ = 1
_WRITE = 4


class Cancelled(BaseException):
    """Thrown into a coroutine whose caller no longer waits for it."""


class Future(Generic[T]):
    """A result that is not there yet. Used on the loop's thread only, except where a method says otherwise."""

    __slots__ = ("_callbacks", "_error", "_value", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._value: Optional[T] = None
        self._error: Optional[BaseException] = None
        self._callbacks: List[Callable[["Future[T]"], None]] = []

    def set(self, value: T) -> None:
        """Sets the result. Only the first outcome counts."""
        if not self.is_done:
            self._value = value
            self._finish()

    def fail(self, error: BaseException) -> None:
        """Sets an error instead of a result. Only the first outcome counts."""
        if not self.is_done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def result(self) -> T:
        """Returns the result, or raises the error. The future must be done."""
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def error(self) -> Optional[BaseException]:
        """Returns the error, if that is the outcome."""
        return self._error

    def then(self, callback: Callable[["Future[T]"], None]) -> None:
        """Calls back once it is done."""
        if self.is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def forget(self, callback: Callable[["Future[T]"], None]) -> None:
        """Does not call back any more."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def __await__(self) -> "Generator[Future[T], None, T]":
        if not self.is_done:
            yield self
        return self.result()


class Task(Future[T]):
    """A coroutine that runs on the loop."""

    __slots__ = ("_coroutine", "_loop", "_span", "_waits_for")

    def __init__(self, loop: "Loop", coroutine: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self._loop = loop
        self._coroutine = coroutine
        self._span = loop.span
        self._waits_for: Optional[Future[Any]] = None

    def start(self) -> None:
        self._step(None)

    def cancel(self) -> None:
        """Throws `Cancelled` into the coroutine, at the point where it waits."""
        if self.is_done:
            return
        waits_for = self._waits_for
        if waits_for is not None:
            waits_for.forget(self._wake)
            self._waits_for = None
        self._loop.soon(lambda: None if self.is_done else self._step(Cancelled()))

    def _wake(self, _: Future[Any]) -> None:
        self._waits_for = None
        self._loop.soon(lambda: None if self.is_done or self._waits_for is not None else self._step(None))

    def _step(self, error: Optional[BaseException]) -> None:
        if self._waits_for is not None:
            self._waits_for.forget(self._wake)
            self._waits_for = None
        outer, self._loop.span = self._loop.span, self._span
        try:
            awaited = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
        except StopIteration as stopped:
            self.set(stopped.value)
        except BaseException as raised:  # noqa: BLE001 - the outcome of the task
            self.fail(raised)
        else:
            self._waits_for = awaited
            awaited.then(self._wake)
        finally:
            self._loop.span = outer


class Timer:
    """A callback at an instant. `cancel` makes it do nothing."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Optional[Callback] = callback

    def cancel(self) -> None:
        self.callback = None


class _Wake:
    """A pipe that wakes the loop. Stays open as long as any thread may write to it: a closed descriptor may be reused."""

    def __init__(self) -> None:
        self.read, self._write = os.pipe()
        self._is_open = True
        os.set_blocking(self.read, False)
        os.set_blocking(self._write, False)

    def ring(self) -> None:
        try:
            os.write(self._write, b"w")
        except BlockingIOError:
            # A full pipe wakes the loop as well.
            pass

    def drain(self) -> None:
        try:
            while len(os.read(self.read, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.read)
            os.close(self._write)

    def __del__(self) -> None:
        self.close()


class Loop:
    """The loop and its thread."""

    def __init__(self) -> None:
        self._ready: Deque[Callback] = deque()
        self._inbox: Deque[Callback] = deque()
        self._timers: List[Tuple[int, int, Timer]] = []
        self._numbers = count()
        self._handlers: Dict[int, Tuple[int, Callable[[int], None]]] = {}
        self._poll = original("select", "poll")() if hasattr(original_select(), "poll") else None
        self._wake = _Wake()
        self._is_asleep = False
        self._is_stopping = False
        self.span: Optional[str] = None
        """The W3C `traceparent` of the caller whose task runs. Tasks that it starts have it too."""
        self.is_watchful = False
        """Whether a lease is held, so that the clock is looked at every `STEP_US`."""
        self.before_sleep: List[Callback] = []
        """Called before the loop waits: sends what was queued."""
        self.watch(self._wake.read, False, lambda _: self._wake.drain())

    # On any thread.

    def call(self, callback: Callback) -> None:
        """Runs a callback on the loop's thread, soon. May be called on any thread."""
        self._inbox.append(callback)
        if self._is_asleep:
            self._wake.ring()

    def start(self, finish: Callback) -> None:
        """Starts the thread. `finish` runs at its end."""

        def work() -> None:
            try:
                self._run()
            finally:
                finish()

        start_thread(work)

    def stop(self) -> None:
        """Ends the thread."""
        self._is_stopping = True
        self._wake.ring()

    # On the loop's thread.

    def soon(self, callback: Callback) -> None:
        """Runs a callback in the next turn."""
        self._ready.append(callback)

    def at(self, when_us: int, callback: Callback) -> Timer:
        """Runs a callback at an instant of the clock."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (when_us, next(self._numbers), timer))
        return timer

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Task[T]:
        """Runs a coroutine. Its first step happens now."""
        task = Task(self, coroutine)
        task.start()
        return task

    async def sleep_until(self, when_us: int) -> None:
        """Waits until an instant."""
        if when_us > boot_us():
            future: Future[None] = Future()
            timer = self.at(when_us, lambda: future.set(None))
            try:
                await future
            finally:
                timer.cancel()

    async def sleep(self, seconds: float) -> None:
        """Waits for this long."""
        await self.sleep_until(boot_us() + int(seconds * 1e6))

    async def wait(self, until_us: Optional[int], *futures: Future[Any]) -> bool:
        """Waits until any of the futures is done, or until the instant. Returns whether one is done."""
        if any(future.is_done for future in futures):
            return True
        if until_us is not None and until_us <= boot_us():
            return False
        either: Future[bool] = Future()

        def done(_: Future[Any]) -> None:
            either.set(True)

        timer = None if until_us is None else self.at(until_us, lambda: either.set(False))
        for future in futures:
            future.then(done)
        try:
            return await either
        finally:
            if timer is not None:
                timer.cancel()
            for future in futures:
                future.forget(done)

    def in_thread(self, work: Callable[[], T]) -> Future[T]:
        """Runs a function that may block on a thread of its own."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                value = work()
            except BaseException as error:  # noqa: BLE001 - handed to the waiting coroutine
                raised = error
                self.call(lambda: future.fail(raised))
            else:
                self.call(lambda: future.set(value))

        start_thread(run)
        return future

    def watch(self, fd: int, writable: bool, handler: Callable[[int], None]) -> None:
        """Calls the handler when the descriptor can be read, and if asked for when it can be written."""
        events = _READ | (_WRITE if writable else 0)
        known = self._handlers.get(fd)
        self._handlers[fd] = (events, handler)
        if self._poll is not None and (known is None or known[0] != events):
            self._poll.register(fd, events)

    def unwatch(self, fd: int) -> None:
        """Does not watch the descriptor any more."""
        if self._handlers.pop(fd, None) is not None and self._poll is not None:
            self._poll.unregister(fd)

    def close_after_fork(self) -> None:
        """Closes the child's copies of the descriptors. The parent's connections are not touched."""
        self._handlers.pop(self._wake.read, None)
        for fd in self._handlers:
            os.close(fd)
        self._handlers.clear()
        self._wake.close()
        self._is_asleep = False

    def _run(self) -> None:
        while not self._is_stopping:
            self._turn()
        self._handlers.clear()

    def _turn(self) -> None:
        while self._inbox:
            self._guarded(self._inbox.popleft())
        now = boot_us()
        while self._timers and self._timers[0][0] <= now:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                self._guarded(callback)
        for _ in range(len(self._ready)):
            self._guarded(self._ready.popleft())
        if not self._ready and not self._inbox:
            for callback in self.before_sleep:
                self._guarded(callback)
        self._is_asleep = True
        for fd, events in self._poll_io(self._pause_us()):
            self._is_asleep = False
            handler = self._handlers.get(fd)
            if handler is not None:
                on = handler[1]
                self._guarded(lambda on=on, events=events: on(events))  # type: ignore[misc]
        self._is_asleep = False

    def _pause_us(self) -> Optional[int]:
        if self._ready or self._inbox or self._is_stopping:
            return 0
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        pause = max(self._timers[0][0] - boot_us(), 0) if self._timers else None
        if self.is_watchful:
            pause = STEP_US if pause is None else min(pause, STEP_US)
        return pause

    def _poll_io(self, pause_us: Optional[int]) -> List[Tuple[int, int]]:
        if self._poll is not None:
            # Rounded up: waking up a moment early would only turn the loop once more.
            return cast("List[Tuple[int, int]]", self._poll.poll(None if pause_us is None else -(-pause_us // 1000)))
        reads = list(self._handlers)
        writes = [fd for fd, (events, _) in self._handlers.items() if events & _WRITE]
        readable, writable, _ = original("select", "select")(reads, writes, [], None if pause_us is None else pause_us / 1e6)
        found = dict.fromkeys(readable, _READ)
        for fd in writable:
            found[fd] = found.get(fd, 0) | _WRITE
        return list(found.items())

    def _guarded(self, callback: Callback) -> None:
        try:
            callback()
        except Exception:  # noqa: BLE001 - the thread that renews leases must not end
            error = traceback.format_exc()
            # Handlers of the program may block, so they do not run on this thread.
            start_thread(lambda: _log.error("a bug in the tenure client; it goes on:\n%s", error))


def original_select() -> Any:
    """The module `select`, whose functions gevent may have removed."""
    import select

    return select

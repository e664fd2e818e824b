"""Hands work to the engine's thread, and its outcome back to the thread or task that waits for it."""

from typing import TYPE_CHECKING, Any, Callable, Coroutine, Generic, List, Optional, TypeVar

from . import _native
from ._loop import Future, Task
from .errors import Closed

if TYPE_CHECKING:
    from ._engine import Engine

T = TypeVar("T")


class Job(Generic[T]):
    """A coroutine on the engine's thread, as seen from other threads."""

    def __init__(self, engine: "Engine", work: Callable[[], Coroutine[Any, Any, T]], must_finish: bool) -> None:
        self._engine = engine
        self._must_finish = must_finish
        self._task: Optional[Task[T]] = None
        self._lock = _native.make_lock()
        self._done: List[Callable[[], None]] = []
        self._is_abandoned = False
        self._outcome: Optional[Future[T]] = None
        span = engine.caller_span()

        def start() -> None:
            if not self._is_abandoned:
                engine.loop.span = span
                try:
                    self._task = engine.loop.spawn(work())
                finally:
                    engine.loop.span = None
                self._task.then(self._finished)

        engine.jobs.add(self)
        engine.loop.call(start)
        # The thread may have ended before it could see the job.
        if engine.is_ended:
            self.fail(Closed())

    def fail(self, error: BaseException) -> None:
        """The engine ended before the coroutine did."""
        failed: Future[T] = Future()
        failed.fail(error)
        self._finished(failed)

    def then(self, callback: Callable[[], None]) -> None:
        """Calls back once it is done, on the engine's thread; at once, if it is."""
        with self._lock:
            if self._outcome is None:
                self._done.append(callback)
                return
        callback()

    def result(self) -> T:
        """Returns the result, or raises. It must be done."""
        assert self._outcome is not None, "the job is not done"
        return self._outcome.result()

    def wait(self) -> T:
        """Blocks the calling thread until it is done. If the wait is interrupted, gives it up."""
        waiter = _native.Waiter()
        self.then(waiter.set)
        try:
            waiter.wait()
        except BaseException:
            self.abandon()
            raise
        return self.result()

    def abandon(self) -> None:
        """The caller no longer waits: cancels the coroutine, and gives back what it may have brought already.

        A release goes on in the background.
        """
        if not self._must_finish:
            self._engine.loop.call(self._stop)

    def _stop(self) -> None:
        self._is_abandoned = True
        if self._outcome is not None:
            self._give_up(self._outcome)
        elif self._task is not None:
            self._task.cancel()
        else:
            self._engine.jobs.discard(self)

    def _finished(self, outcome: Future[T]) -> None:
        self._engine.jobs.discard(self)
        if self._is_abandoned:
            self._give_up(outcome)
            return
        with self._lock:
            if self._outcome is not None:
                return
            self._outcome = outcome
            callbacks, self._done = self._done, []
        for callback in callbacks:
            callback()

    @staticmethod
    def _give_up(outcome: Future[T]) -> None:
        if outcome.error() is None:
            give_back = getattr(outcome.result(), "abandon", None)
            if give_back is not None:
                give_back()

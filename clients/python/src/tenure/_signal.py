"""Tells everything that relies on a lock or lease, once, that it is lost."""

import logging
import traceback
from typing import Callable, List, Optional

from ._loss import RELEASED, Loss
from ._native import make_lock, start_thread

_log = logging.getLogger("tenure")


class Signal:
    """Fires once with the loss. Callbacks must not block: they run on the thread that noticed it."""

    __slots__ = ("_callbacks", "_lock", "loss")

    def __init__(self) -> None:
        self._lock = make_lock()
        self._callbacks: List[Callable[[Loss], None]] = []
        self.loss: Optional[Loss] = None

    def fire(self, loss: Loss) -> bool:
        """Fires, and returns whether this was the first time."""
        with self._lock:
            if self.loss is not None:
                return False
            self.loss = loss
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(loss)
            except Exception:  # noqa: BLE001 - one that fails, as that of a closed event loop, must not silence the others
                error = traceback.format_exc()
                start_thread(lambda error=error: _log.warning("a subscriber to a loss failed:\n%s", error))  # type: ignore[misc]
        return True

    def then(self, callback: Callable[[Loss], None]) -> None:
        """Calls back when it fires; at once, if it has."""
        with self._lock:
            if self.loss is None:
                self._callbacks.append(callback)
                return
        callback(self.loss)

    def forget(self, callback: Callable[[Loss], None]) -> None:
        """Does not call back any more."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def end(self) -> None:
        """The holder gave it back: tells those who wait, and fires with that cause, which is no loss."""
        self.fire(Loss(RELEASED))

    def forked(self, loss: Loss) -> None:
        """In a forked child: it has fired, and runs no callbacks. Another thread may have had the lock at the fork."""
        self._lock = make_lock()
        self._callbacks = []
        self.loss = loss

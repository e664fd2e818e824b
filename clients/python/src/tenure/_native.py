"""Finds the threads, locks and sockets of the operating system, also in a program that gevent has patched.

gevent replaces `threading`, `socket` and `select` by versions that run on one thread and stop when that thread blocks. The
renewal thread must not stop with it, so everything it uses comes from here.
"""

import os
import sys
from importlib import import_module
from typing import Any, Callable, Optional


def original(module: str, name: str) -> Any:
    """Returns an attribute of a module as it was before gevent patched it."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original(module, name)
    return getattr(import_module(module), name)


def is_patched() -> bool:
    """Whether gevent has replaced the threads of this program."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def make_lock() -> Any:
    """A lock of the operating system that its own thread may take again.

    A signal handler or a finaliser may run inside of any critical section of the same thread; it must not deadlock.
    """
    return original("_thread", "RLock")()


def start_thread(work: Callable[[], None]) -> None:
    """Starts a thread of the operating system that does not keep the program alive."""
    original("_thread", "start_new_thread")(work, ())


class Waiter:
    """Blocks the calling thread, or under gevent the calling greenlet, until another thread calls `set`."""

    def __init__(self) -> None:
        self._is_set = False
        self._hub: Any = None
        if is_patched():
            self._hub = import_module("gevent").get_hub()
            self._watcher = self._hub.loop.async_()
        else:
            self._lock = original("_thread", "allocate_lock")()
            self._lock.acquire()

    def set(self) -> None:
        """Wakes the waiting thread. Only the first call counts."""
        if self._is_set:
            return
        self._is_set = True
        if self._hub is not None:
            self._watcher.send()
        else:
            self._lock.release()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Returns whether it was set within the time."""
        if self._is_set:
            return True
        if self._hub is not None:
            return self._wait_in_hub(timeout)
        if timeout is None:
            self._lock.acquire()
        elif not self._lock.acquire(True, min(max(timeout, 0.0), 86_400.0 * 365)):
            return self._is_set
        # Others may wait too.
        self._lock.release()
        return True

    def _wait_in_hub(self, timeout: Optional[float]) -> bool:
        gevent = import_module("gevent")
        try:
            with gevent.Timeout(timeout, False):
                while not self._is_set:
                    # `set` may have been called between the check and the start of the watcher: look again in a moment.
                    with gevent.Timeout(0.05, False):
                        self._hub.wait(self._watcher)
        finally:
            self._watcher.stop()
        return self._is_set


def at_fork_in_child(forget: Callable[[], None]) -> None:
    """Calls `forget` in every child that this process forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)

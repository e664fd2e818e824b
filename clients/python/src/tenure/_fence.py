"""Raises the fence at a resource before a guard is handed out."""

from contextlib import contextmanager
from typing import Callable, Iterator, Optional

from ._clock import boot_us
from ._guards import GuardCore
from ._held import HeldLock
from .errors import FenceFailed, Timeout

Fence = Callable[[HeldLock], object]


@contextmanager
def given_back(core: GuardCore) -> Iterator[None]:
    """Gives the locks back if the body fails: no work has begun."""
    try:
        yield
    except BaseException:
        core.engine.loop.call(core.abandon)
        raise


@contextmanager
def refusing(core: GuardCore, lock: HeldLock) -> Iterator[None]:
    """Turns an exception of the fence into that of the request: the loss, if the lock is lost by then."""
    try:
        yield
    except Exception as error:
        lost = core.check()
        if lost is not None:
            raise lost from error
        raise FenceFailed(f"the fence of lock `{lock.name}` was not raised: {error}", lock.name) from error


def raise_for(core: GuardCore, fence: Optional[Fence], until_us: Optional[int]) -> GuardCore:
    """Raises the fence for every lock in this thread, or gives the locks back.

    The limit of the caller cannot stop a fence in a thread: it ends the request before the next fence, and once a fence
    has ended.
    """
    if fence is None:
        return core
    with given_back(core):
        for lock in core.locks:
            _check_time(until_us)
            try:
                with refusing(core, lock):
                    fence(lock)
            except FenceFailed as failed:
                _check_time(until_us, failed.__cause__)
                raise
            lost = core.check()
            if lost is not None:
                raise lost
            _check_time(until_us)
    return core


def _check_time(until_us: Optional[int], failed: Optional[BaseException] = None) -> None:
    if until_us is not None and boot_us() >= until_us:
        raise Timeout("the fence was not raised in time; the lock is given back") from failed

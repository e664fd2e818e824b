"""Raises the fence at a resource before a guard is handed out."""

from contextlib import contextmanager
from typing import Callable, Iterator, Optional

from ._guards import GuardCore
from ._held import HeldLock
from .errors import FenceFailed

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
def refusing(lock: HeldLock) -> Iterator[None]:
    """Turns an exception of the fence into that of the request."""
    try:
        yield
    except Exception as error:
        raise FenceFailed(f"the fence of lock `{lock.name}` was not raised: {error}", lock.name) from error


def raise_for(core: GuardCore, fence: Optional[Fence]) -> GuardCore:
    """Raises the fence for every lock in this thread, or gives the locks back. Nothing can stop it in a thread."""
    if fence is None:
        return core
    with given_back(core):
        for lock in core.locks:
            with refusing(lock):
                fence(lock)
            lost = core.check()
            if lost is not None:
                raise lost
    return core

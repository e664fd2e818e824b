"""Holds what the guards, leases and clients of both twins have in common."""

import os
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Type, TypeVar, Union

from ._engine import Engine
from ._guards import GuardCore
from ._held import HeldLease, HeldLock
from ._loss import RELEASED, Loss
from ._settings import FromEnv, PathLike, Settings
from ._signal import Signal
from .errors import Lost, lost_to_fork

C = TypeVar("C", bound="BaseClient")


def call_on_loss(engine: Engine, signal: Signal, lock: Optional[str], callback: Callable[[Lost], object]) -> None:
    """Calls a function of the program when a lock or lease is lost, on a thread of its own."""

    def tell(loss: Loss) -> None:
        if loss.cause != RELEASED:
            engine.notify(callback, Lost(loss, lock))

    signal.then(tell)


class BaseGuard:
    """A held lock, or several."""

    def __init__(self, core: GuardCore) -> None:
        self._core = core
        self._is_released = False

    @property
    def name(self) -> str:
        """The name of the lock; of several, the first."""
        return self._core.locks[0].name

    @property
    def token(self) -> int:
        """The fencing token: larger at every grant. Send it along with every write, and let the resource compare it."""
        return self._core.locks[0].token

    @property
    def tokens(self) -> Dict[str, int]:
        """The token of each lock. Of several slots of one semaphore, the first: `locks` has all of them."""
        tokens: Dict[str, int] = {}
        for lock in self._core.locks:
            tokens.setdefault(lock.name, lock.token)
        return tokens

    @property
    def slot(self) -> Optional[int]:
        """The slot of a semaphore, counted from 0."""
        return self._core.locks[0].slot

    @property
    def locks(self) -> List[HeldLock]:
        """Every lock of the guard, with its token and slot."""
        return list(self._core.locks)

    @property
    def lease(self) -> str:
        """The id of the lease that the lock is held under."""
        return self._core.held.id

    @property
    def revision(self) -> int:
        """A revision at which the lock was held: a watch from here on misses nothing."""
        return self._core.revision

    @property
    def standing(self) -> str:
        """`"valid"`, `"overdue"` (still held, but renewals take too long) or `"lost"`."""
        return "lost" if self._core.engine.is_forked else self._core.standing()

    def check(self) -> None:
        """Raises `Lost` unless the lock can be relied on at this moment. Only compares the clock; sends nothing.

        Call it before every step that must not run late.
        """
        if self._core.engine.is_forked:
            raise lost_to_fork(self.name)
        lost = self._core.check()
        if lost is not None:
            raise lost

    def on_lost(self, callback: Callable[[Lost], object]) -> None:
        """Calls back with the loss when the lock is lost, within milliseconds, on a thread of its own.

        If it is lost already, at once. A release by its holder is no loss.
        """
        call_on_loss(self._core.engine, self._core.signal, self.name, callback)

    def __repr__(self) -> str:
        names = ", ".join(repr(lock.name) for lock in self._core.locks)
        return f"<{type(self).__name__} of {names} token={self.token} {self.standing}>"


class BaseLease:
    """A lease of the caller: several locks and keys may be bound to it."""

    def __init__(self, held: HeldLease) -> None:
        self._held = held

    @property
    def id(self) -> str:
        """The id of the lease."""
        return self._held.id

    @property
    def standing(self) -> str:
        """`"valid"`, `"overdue"` or `"lost"`."""
        return "lost" if self._held.engine.is_forked else self._held.standing()

    def check(self) -> None:
        """Raises `Lost` unless the lease can be relied on at this moment."""
        loss = self._held.update(lambda state, now: state.check(now))
        if loss is not None:
            raise Lost(loss)

    def on_lost(self, callback: Callable[[Lost], object]) -> None:
        """Calls back with the loss when the lease is lost, on a thread of its own."""
        call_on_loss(self._held.engine, self._held.lost, None, callback)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.standing}>"


class BaseClient:
    """The settings and the engine of a client.

    Arguments: `addresses` are `host:port` of members, as a list or separated by commas; `name` is what others see;
    `api_key` or `token_file` prove who it is; `ca_file` turns TLS on, with `cert_file` and `key_file` for a certificate of the
    client; `ttl`, `window` and `grace` are the seconds of leases that name none; `timeout` is how many seconds a request may
    take; `traceparent` returns the W3C span of the calling thread or task, which goes with its requests.
    """

    def __init__(
        self,
        addresses: Union[str, Sequence[str], None] = None,
        *,
        name: Optional[str] = None,
        api_key: Optional[str] = None,
        token_file: Optional[PathLike] = None,
        insecure_credentials: bool = False,
        ca_file: Optional[PathLike] = None,
        cert_file: Optional[PathLike] = None,
        key_file: Optional[PathLike] = None,
        ttl: float = 15.0,
        window: Optional[float] = None,
        grace: float = 0.0,
        timeout: float = 10.0,
        traceparent: Optional[Callable[[], Optional[str]]] = None,
    ) -> None:
        self._settings = Settings(
            addresses,
            name=name,
            api_key=api_key,
            token_file=token_file,
            insecure_credentials=insecure_credentials,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            ttl=ttl,
            window=window,
            grace=grace,
            timeout=timeout,
            traceparent=traceparent,
        )
        self._running: Optional[Engine] = None

    @classmethod
    def from_env(cls: Type[C], **more: Any) -> C:
        """A client with the settings of the environment. Arguments that are given here count instead.

        `TENURE_ADDR` has addresses separated by commas; `TENURE_CA`, `TENURE_CERT` and `TENURE_KEY` name files;
        `TENURE_API_KEY` is an API key, or else `TENURE_API_KEY_FILE` names a file that has one, or else `TENURE_TOKEN_FILE`
        names a file with a bearer token.
        """
        return cls(**{**FromEnv(os.environ), **more})

    @property
    def name(self) -> str:
        """What other clients see."""
        return self._settings.name

    @property
    def _engine(self) -> Engine:
        # The thread starts with the first request. A forked child gets one of its own: it shares nothing with its parent.
        engine = self._running
        if engine is None or engine.is_forked:
            engine = self._running = Engine(self._settings)
            engine.start()
            weakref.finalize(self, engine.dismiss).atexit = False
        return engine

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.name!r} at {', '.join(self._settings.addresses)}>"

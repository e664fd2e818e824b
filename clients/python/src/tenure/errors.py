"""Defines the client's exceptions, and what the caller may conclude from each."""

from typing import Any, Dict, List, Optional, Tuple

from . import _loss
from ._loss import Loss

__all__ = ["Closed", "Compacted", "Error", "FenceFailed", "Invalid", "Lost", "Refused", "StillHeld", "Timeout", "Unavailable", "Unknown"]

NONE = "none"
UNKNOWN = "unknown"

# The reasons that the reference of errors marks as worth another try, and the two that depend on the holder.
_RETRYABLE = frozenset(
    """HELD WAIT_TIMEOUT REQUEST_WINDOW REQUESTS_FULL QUEUE_FULL TOO_MANY_LEASES NO_SPACE QUOTA_EXCEEDED QUIET
    DRAINING NOT_LEADER NO_LEADER NO_QUORUM DEADLINE OVERLOADED QUOTA SHUTTING_DOWN DISK_FULL CORRUPT TOO_SLOW
    SLOW_CONSUMER NOT_CAUGHT_UP LEVEL_NOT_KNOWN MEMBERSHIP_CHANGING TOO_MANY_HOPS""".split()
)


class Error(Exception):
    """Why an operation did not succeed. Every exception of this package is one."""

    effect: str = NONE
    """`"none"`: it did not happen and will not. `"unknown"`: it may have happened, or may still."""
    retryable: bool = False
    """Whether nothing happened, and the same request may succeed if it is repeated later."""


class Refused(Error):
    """The cluster decided, and the answer is no. Nothing was done."""

    def __init__(self, reason: str, message: str, detail: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.reason = reason
        """The stable word for programs: `HELD`, `WAIT_TIMEOUT`, `DEADLOCK`, … (the reference of errors lists them)."""
        self.detail: Dict[str, Any] = dict(detail or {})
        """Everything else the cluster said: `holder`, `ahead`, `ring`, `bound`, …"""
        self.retryable = reason in _RETRYABLE
        if reason == "STRANGE_ANSWER":
            self.effect = UNKNOWN

    @classmethod
    def by(cls, error: Dict[str, Any]) -> "Refused":
        """The exception for an error of the cluster, as any API answers it."""
        detail = {key: value for key, value in error.items() if key not in ("reason", "message", "effect")}
        return cls(str(error.get("reason", "")), str(error.get("message", "")), detail)

    @property
    def next(self) -> Optional[str]:
        """What to do next, if the cluster says so."""
        advice = self.detail.get("next")
        return None if advice is None else str(advice)

    @property
    def retry_after(self) -> Optional[float]:
        """In how many seconds to try again, if the cluster says so."""
        after_ms = int(self.detail.get("retry_after_ms") or 0)
        return after_ms / 1000 if after_ms else None

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (self.reason, str(self), self.detail))


class Lost(Error):
    """The lock or lease is lost. The work under it must stop, or was stopped."""

    def __init__(self, loss: Loss, lock: Optional[str] = None) -> None:
        super().__init__(f"lost lock `{lock}`: {loss}" if lock else f"lost: {loss}")
        self.loss = loss
        self.lock = lock
        """The lock, if it is one lock that was lost."""

    @property
    def cause(self) -> str:
        """The stable word: `forced`, `max_hold`, `cluster_unreachable`, `local_stall`, `suspended`, `expired`, …"""
        return self.loss.cause

    @property
    def by(self) -> Optional[str]:
        """Who took it away, as they called themselves."""
        return self.loss.by

    @property
    def reason(self) -> Optional[str]:
        """The reason they gave."""
        return self.loss.reason

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (Loss(*self.loss), self.lock))


class Unavailable(Error):
    """No member took the request. It had no effect."""

    retryable = True

    def __init__(self, message: str = "no member took the request; nothing happened") -> None:
        super().__init__(message)


class Unknown(Error):
    """The request was sent, and its outcome is not known. It may have taken effect."""

    effect = UNKNOWN

    def __init__(self, message: str, request: Optional[str] = None) -> None:
        super().__init__(message)
        self.request = request
        """The id under which a write can be repeated, and takes effect once: pass it as `request=`."""

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (str(self), self.request))


class Timeout(Error):
    """The caller's own limit passed. `effect` tells whether it may have happened."""

    def __init__(self, message: str, effect: str = NONE) -> None:
        super().__init__(message)
        self.effect = effect
        self.retryable = effect == NONE

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (str(self), self.effect))


class FenceFailed(Error):
    """The fence at the resource did not accept the token of a new holder. The lock is given back; no work has begun.

    The exception that the fence raised is the `__cause__`.
    """

    def __init__(self, message: str, lock: Optional[str] = None) -> None:
        super().__init__(message)
        self.lock = lock
        """The lock; `None` if the fence did not end in time."""

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (str(self), self.lock))


class Closed(Error):
    """The client was closed and takes no more requests. Nothing happened."""

    def __init__(self, message: str = "the client is closed") -> None:
        super().__init__(message)


class StillHeld(Error):
    """The client was to close, and guards still exist at the end of the time."""

    def __init__(self, locks: List[str]) -> None:
        super().__init__("still held: " + ", ".join(locks))
        self.locks = locks

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (self.locks,))


class Invalid(Error, ValueError):
    """The request cannot be as it is. Nothing was sent."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """The same word that the cluster uses for it."""

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (self.reason, str(self)))


class Compacted(Error):
    """The history does not reach back to the revision that a watch asked for."""

    def __init__(self, floor: int) -> None:
        super().__init__(f"the oldest retained revision is {floor}")
        self.floor = floor
        """The oldest revision that is kept."""

    def __reduce__(self) -> Tuple[Any, ...]:
        return (type(self), (self.floor,))


def lost_to_fork(lock: Optional[str] = None) -> Lost:
    """The loss that a forked child sees."""
    return Lost(Loss(_loss.FORKED), lock)

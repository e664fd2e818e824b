"""Describes a loss: its cause, who caused it and why."""

from typing import NamedTuple, Optional

EXPIRED = "expired"
REVOKED = "revoked"
FORCED = "forced"
MAX_HOLD = "max_hold"
NO_PROGRESS = "no_progress"
GONE = "gone"
UNREACHABLE = "cluster_unreachable"
CREDENTIALS_REFUSED = "credentials_refused"
STALLED = "local_stall"
SUSPENDED = "suspended"
RELEASED = "released"
FORKED = "forked"

_FROM_CLUSTER = frozenset((EXPIRED, REVOKED, FORCED, MAX_HOLD, NO_PROGRESS))

_SENTENCES = {
    EXPIRED: "the lease was not renewed in time",
    REVOKED: "the lease was revoked by another caller",
    FORCED: "taken away by force",
    MAX_HOLD: "held as long as max_hold allows",
    NO_PROGRESS: "no progress in the promised time",
    GONE: "the cluster does not have it any more",
    UNREACHABLE: "cluster unreachable for {seconds:.1f}s",
    CREDENTIALS_REFUSED: "the credentials are refused; not renewed for {seconds:.1f}s",
    STALLED: "this process did not run for {seconds:.1f}s",
    SUSPENDED: "this machine slept for {seconds:.1f}s",
    RELEASED: "given back by its holder",
    FORKED: "the parent process holds it; a forked child holds nothing",
}


class Loss(NamedTuple):
    """A loss: its cause and, if another client or an operator caused it, who and why."""

    cause: str
    """The stable word, as in the SDK contract: `forced`, `cluster_unreachable`, `local_stall`, …"""
    time_us: int = 0
    """How long it took, where the cause is a time: silence, stall or suspend."""
    by: Optional[str] = None
    """Who took the lock away, as they called themselves."""
    reason: Optional[str] = None
    """The reason they gave. It is foreign text."""

    def __str__(self) -> str:
        sentence = _SENTENCES.get(self.cause, self.cause).format(seconds=self.time_us / 1e6)
        if self.by and self.cause in (FORCED, REVOKED):
            sentence = f"{self.cause} by {self.by}"
        return f"{sentence}: {self.reason}" if self.reason else sentence


def from_cluster(cause: str, by: Optional[str], reason: Optional[str]) -> Loss:
    """The loss that a member reports."""
    return Loss(cause if cause in _FROM_CLUSTER else GONE, 0, by or None, reason or None)

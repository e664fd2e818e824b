"""Names the options of a lock request, for type checkers."""

from typing import Callable, Optional, TypedDict

from ._ask import Value
from ._held import HeldLock


class CampaignOptions(TypedDict, total=False):
    """The options that a campaign has in common with a lock."""

    wait: Optional[float]
    """Seconds to queue at most. Without it there is no limit; 0 does not queue."""
    timeout: Optional[float]
    """Seconds after which the call returns, whatever happens: `Timeout`. What may have been granted is given back."""
    ttl: Optional[float]
    """Seconds that the lease lives after a renewal. Has no effect under a lease of the caller."""
    max_hold: Optional[float]
    """Seconds after which the cluster takes it away. Must be longer than the ttl."""
    min_hold: Optional[float]
    """Seconds from the grant during which no client gets it again, even if it is released earlier: once per period."""
    progress_within: Optional[float]
    """Seconds within which a larger number is reported with `Guard.progress`, or the cluster takes it away."""
    priority: int
    """From 0 to 9: stands in the queue as if it had asked 30 seconds earlier for each step. Needs the verb `force`."""
    supersede: Optional[str]
    """The group whose older requests for the same lock this one replaces if it has to wait: they end with `SUPERSEDED`."""
    lock_delay: Optional[float]
    """Seconds for which no other client gets it after a hold that its holder did not end itself."""
    window: Optional[float]
    """Seconds for which the lease is relied on after a renewal, instead of half of the ttl."""
    grace: Optional[float]
    """Seconds that the work may take to stop. Refused if they do not fit the ttl."""
    independent: bool
    """Other work of the lease goes on while this one waits, so that deadlock detection ignores this wait."""
    on_queued: Optional[Callable[[int], object]]
    """Called with the number of requests ahead, on a thread of its own, when the request has to queue."""
    fence: Optional[Callable[[HeldLock], object]]
    """Called with each lock before the guard is handed out, to raise the fence at the resource. If it fails: `FenceFailed`."""


class PoolOptions(CampaignOptions, total=False):
    """The options that a request for a pool has in common with a lock."""

    take: Optional[int]
    """Holds so many slots, all at once or none: each is one of `Guard.locks`, with a token of its own."""
    metadata: Optional[Value]
    """What other clients can read of the grant."""


class LockOptions(PoolOptions, total=False):
    """The options of a lock request. All durations are seconds."""

    shared: bool
    """Holds it together with other shared holders, never together with an exclusive one."""
    slots: Optional[int]
    """Holds one of so many numbered slots: a semaphore."""

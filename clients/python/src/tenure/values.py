"""Defines what the cluster shows: keys, leaders, locks and changes."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._ask import content_of

__all__ = ["Batch", "ChainStep", "Drain", "Event", "Explanation", "Holder", "KeyValue", "Leader", "LockInfo", "Past", "Waiter"]


class KeyValue(NamedTuple):
    """A key and its value."""

    key: str
    value: bytes
    version: int
    """How often it was written since it was created."""
    created: int
    """The revision that created it."""
    modified: int
    """The revision that last wrote it: pass it as `if_modified`."""
    lease: Optional[str] = None
    """The lease that it ends with."""

    @property
    def text(self) -> str:
        """The value as text."""
        return self.value.decode()


class Leader(NamedTuple):
    """Who leads an election."""

    client: str
    value: bytes
    token: int
    lease: str

    @property
    def text(self) -> str:
        """The value as text."""
        return self.value.decode()


class Holder(NamedTuple):
    """Who holds a lock."""

    client: str
    token: int
    lease: str
    state: str
    """`held`, `cooling`, `delayed` or `resting`."""
    held: float
    """Seconds for which it is held."""
    slot: Optional[int] = None
    metadata: bytes = b""


class LockInfo(NamedTuple):
    """A lock, its holders and how many wait."""

    name: str
    holders: List[Holder]
    waiting: int
    detail: Dict[str, Any]
    """Everything that the cluster showed."""


class Drain(NamedTuple):
    """A prefix that is closed to new grants."""

    prefix: str
    """The prefix; empty if it is that of every lock."""
    since: float
    """Seconds for which it is closed."""
    holders: int
    """How many holders below it may still be at work."""
    more_holders: bool
    """There are more holders than were counted."""
    created: int
    """The revision that closed it."""
    by: Optional[str] = None
    """The name that the operator gave who closed it."""
    principal: Optional[str] = None
    """The authenticated caller that closed it."""
    reason: Optional[str] = None
    """The reason that was given."""


class Waiter(NamedTuple):
    """One position in the queue of a lock."""

    client: str
    lease: str
    """The lease that waits: what `Guard.hand_on` takes."""
    mode: str
    """`exclusive`, `shared` or `slot`."""
    ahead: int
    """How many are before it."""
    waited: float
    """Seconds for which it has waited."""
    left: Optional[float]
    """Seconds for which it will still wait; `None` for no limit."""
    created: int
    """The revision at which it came."""
    locks: List[str]
    """Every lock of the request."""
    slots: Optional[int] = None
    """How many slots the request says the semaphore has."""
    take: int = 1
    """How many of them it asks for; 1 for any other lock."""
    any: bool = False
    """Whether one of its locks is enough."""
    pool: Optional[str] = None
    """The prefix of the pool whose slots its locks are."""
    election: bool = False
    """Whether it is a candidacy."""
    supersede: Optional[str] = None
    """The group whose next request replaces it."""
    priority: int = 0
    passable: float = 0.0
    """Seconds for which new requests with a higher priority may still pass it."""


class ChainStep(NamedTuple):
    """One step of a chain of waits: this client has this lock."""

    lock: str
    client: str
    lease: str


class Explanation(NamedTuple):
    """Why a lock is not free: who has it, who waits, and when it can be free. All durations are seconds."""

    name: str
    holders: List[Holder]
    waiting: int
    """How many wait."""
    detail: Dict[str, Any]
    """Everything that the cluster showed."""
    revision: int
    """The revision that the answer is based on."""
    ahead: List[Waiter]
    """Those who wait, the first few; for a lease, those before it."""
    own: Optional[Waiter]
    """The position of that lease itself; `None` if it does not wait, or if none was named."""
    chain: List[ChainStep]
    """Which client waits for which, from the lock's first holder on."""
    chain_goes_on: bool
    """Whether the chain goes on beyond what is shown."""
    free_if_silent: Optional[float]
    """When it is free if its holders stop renewing."""
    free_at_latest: Optional[float]
    """When it is free whatever its holders do. At most one of both is there."""
    usually_held: Optional[float]
    """The median of the last holds that the answering member has seen end."""
    usually_of: int
    """Of how many holds that is the median."""
    grants_after: Optional[float]
    """How long the cluster grants no locks, because it was restored."""
    drained: Optional[Drain]
    """The closed prefix that the lock is below, without its holders. While there is one, the lock is not granted."""
    reopening: Optional[float]
    """For how long the cluster has served the queues again, because a prefix was opened or the quiet time after a restore
    is over, if this lock can be granted and its turn is still to come."""


class Event(NamedTuple):
    """One change."""

    cause: str
    """`granted`, `released`, `expired`, `key_put`, `key_deleted`, …"""
    name: str
    """The lock or key."""
    detail: Dict[str, Any]
    """Everything that the cluster showed: `client`, `token`, `value`, …"""

    @property
    def value(self) -> Optional[bytes]:
        """The value that was written, if it is a key that was."""
        if "value" in self.detail or "value_base64" in self.detail:
            return content_of("value", self.detail)
        return None

    @property
    def token(self) -> Optional[int]:
        """The token of the grant, if it is about one."""
        token = self.detail.get("token")
        return None if token is None else int(token)


class Batch(NamedTuple):
    """The changes of one revision."""

    revision: int
    events: List[Event]


class Past(List[Batch]):
    """What is known of the past: the changes of each revision, the oldest first."""

    archive_begins: Optional[int] = None
    """The revision from which on the member has the events of these locks; `None` if it has no archive."""
    archive_begins_at: Optional[str] = None
    """The time of the first event from there on, in UTC, by the wall clock of that moment's leader."""
    missing: Sequence[Tuple[int, int]] = ()
    """What the member could not record: the first revision, and the one after the last. Another member may have them."""


def batch(shown: Dict[str, Any]) -> Batch:
    """Reads the changes of one revision as the cluster shows them."""
    events = [Event(it["cause"], it.get("lock") or it.get("key") or "", it) for it in shown["events"]]
    return Batch(int(shown["revision"]), events)


def key_value(shown: Dict[str, Any]) -> KeyValue:
    """Reads a key as the cluster shows it."""
    return KeyValue(
        shown["key"],
        content_of("value", shown),
        int(shown["version"]),
        int(shown["created"]),
        int(shown["modified"]),
        shown.get("lease"),
    )


def leader(shown: Dict[str, Any]) -> Leader:
    """Reads a leader as the cluster shows it."""
    return Leader(shown["client"], content_of("value", shown), int(shown["token"]), str(shown["lease"]))


def drain_of(shown: Dict[str, Any]) -> Drain:
    """Reads a closed prefix as the cluster shows it."""
    return Drain(
        shown["prefix"],
        shown["drained_ms"] / 1000,
        int(shown.get("holders", 0)),
        bool(shown.get("more_holders", False)),
        int(shown["created"]),
        shown.get("by"),
        shown.get("principal"),
        shown.get("reason"),
    )


def lock_info(name: str, shown: Optional[Dict[str, Any]], detail: Dict[str, Any]) -> LockInfo:
    """Reads a lock as the cluster shows it."""
    holders = [
        Holder(
            it["client"],
            int(it["token"]),
            str(it["lease"]),
            it["state"],
            it["held_ms"] / 1000,
            it.get("slot"),
            content_of("metadata", it),
        )
        for it in (shown or {}).get("holders", ())
    ]
    return LockInfo(name, holders, int((shown or {}).get("waiting", 0)), detail)


def _seconds(shown: Dict[str, Any], field: str) -> Optional[float]:
    ms = shown.get(field)
    return None if ms is None else float(ms) / 1000


def waiter(shown: Dict[str, Any]) -> Waiter:
    """Reads a position in a queue as the cluster shows it."""
    return Waiter(
        shown["client"],
        str(shown["lease"]),
        shown["mode"],
        int(shown["ahead"]),
        shown["waiting_ms"] / 1000,
        _seconds(shown, "left_ms"),
        int(shown["created"]),
        list(shown["locks"]),
        shown.get("slots"),
        int(shown.get("take", 1)),
        bool(shown.get("any", False)),
        shown.get("pool"),
        bool(shown.get("election", False)),
        shown.get("supersede"),
        int(shown.get("priority", 0)),
        shown.get("passable_ms", 0) / 1000,
    )


def explanation(name: str, revision: int, shown: Dict[str, Any]) -> Explanation:
    """Reads an explanation as the cluster gives it."""
    info = lock_info(name, shown.get("lock"), shown)
    own, drained = shown.get("own"), shown.get("drained")
    return Explanation(
        *info,
        revision,
        [waiter(it) for it in shown["ahead"]],
        None if own is None else waiter(own),
        [ChainStep(it["lock"], it["client"], str(it["lease"])) for it in shown["chain"]],
        bool(shown.get("chain_goes_on", False)),
        _seconds(shown, "free_if_silent_ms"),
        _seconds(shown, "free_at_latest_ms"),
        _seconds(shown, "usually_held_ms"),
        int(shown.get("usually_of", 0)),
        _seconds(shown, "quiet_ms"),
        None if drained is None else drain_of(drained),
        _seconds(shown, "reopening_ms"),
    )

"""Defines what the cluster shows: keys, leaders, locks and changes."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._ask import content_of

__all__ = ["Batch", "Drain", "Event", "Holder", "KeyValue", "Leader", "LockInfo", "Past"]


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

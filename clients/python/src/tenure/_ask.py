"""Builds lock requests: mode, wait, ttl and the other options of an acquire."""

import base64
import copy
import re
from typing import Any, Callable, Dict, Optional, Sequence, Union

from ._held import HeldLock
from ._lease_timing import LeaseTiming
from ._settings import Settings, us
from .errors import Invalid

Json = Dict[str, Any]
Value = Union[str, bytes]

# Which of the named locks a request is for: all of them; any one of them; any slot of a pool, whose prefix is the name.
ALL = "all"
ANY = "any"
POOL = "pool"

# The substitute for an unlimited wait, and the bound of all others.
FAR_US = 365 * 86_400 * 1_000_000


def check_name(name: object) -> str:
    """Refuses what cannot be the name of a lock, key or election."""
    if not isinstance(name, str):
        raise Invalid("INVALID_NAME", f"a name is text, not {type(name).__name__}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= 512 or any(ord(it) < 32 or 127 <= ord(it) < 160 for it in name):
        raise Invalid("INVALID_NAME", "a name has 1 to 512 bytes of UTF-8 without control characters")
    return name


def check_lease(lease: object) -> str:
    """Refuses what cannot be the id of a lease."""
    if not isinstance(lease, str) or re.fullmatch(r"[1-9][0-9]{0,19}", lease) is None:
        raise Invalid("INVALID_FIELD", f"`lease` is the id of a lease, a decimal string, not {lease!r}")
    return lease


def is_number(value: object, least: int, most: Optional[int] = None) -> bool:
    """Whether it is an integer of at least `least`, and of at most `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value and (most is None or value <= most)


def content(field: str, value: Value) -> Json:
    """A value for the wire: text if it is text, else base64."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Invalid("INVALID_FIELD", f"`{field}` is text that UTF-8 cannot carry") from None
        return {field: value}
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise Invalid("INVALID_FIELD", f"`{field}` is text or bytes, not {type(value).__name__}")
    try:
        return {field: bytes(value).decode()}
    except UnicodeDecodeError:
        return {f"{field}_base64": base64.b64encode(bytes(value)).decode()}


def content_of(field: str, shown: Json) -> bytes:
    """Reads a value from the wire."""
    encoded = shown.get(f"{field}_base64")
    return base64.b64decode(encoded) if encoded is not None else str(shown.get(field, "")).encode()


class Ask:
    """All options of a lock request except its lease."""

    def __init__(
        self,
        settings: Settings,
        names: Sequence[str],
        kind: str = ALL,
        /,
        *,
        wait: Optional[float] = None,
        timeout: Optional[float] = None,
        ttl: Optional[float] = None,
        shared: bool = False,
        slots: Optional[int] = None,
        take: Optional[int] = None,
        priority: int = 0,
        supersede: Optional[str] = None,
        metadata: Optional[Value] = None,
        max_hold: Optional[float] = None,
        min_hold: Optional[float] = None,
        progress_within: Optional[float] = None,
        lock_delay: Optional[float] = None,
        window: Optional[float] = None,
        grace: Optional[float] = None,
        independent: bool = False,
        on_queued: Optional[Callable[[int], object]] = None,
        fence: Optional[Callable[[HeldLock], object]] = None,
        election: bool = False,
    ) -> None:
        if not names:
            raise Invalid("INVALID_FIELD", "name at least one lock")
        self.names = [check_name(name) for name in names]
        if len(set(self.names)) != len(self.names):
            raise Invalid("DUPLICATE_LOCK", "the same lock twice in one request")
        self.kind = kind
        if kind == POOL and (shared or slots is not None):
            raise Invalid("INVALID_FIELD", "a pool goes without `shared` and `slots`: its slots have their own")
        if shared and slots is not None:
            raise Invalid("INVALID_SLOTS", "`shared` and `slots` exclude each other")
        if slots is not None and (not isinstance(slots, int) or slots < 1):
            raise Invalid("INVALID_SLOTS", f"`slots` is a number of at least 1, not {slots!r}")
        self.mode = "shared" if shared else "slot" if slots is not None else "exclusive"
        # How to hold each lock, beside the mode.
        self.how: Json = {}
        if slots is not None:
            self.how["slots"] = slots
        if take is not None:
            if (slots is None and kind != POOL) or not is_number(take, 1):
                raise Invalid("INVALID_FIELD", f"`take` is a number of at least 1, and goes with `slots`, not {take!r}")
            self.how["take"] = take
        self.wait_us = None if wait is None else min(us(wait, "wait"), FAR_US)
        self.timeout_us = None if timeout is None else min(us(timeout, "timeout"), FAR_US)
        self.timing: LeaseTiming = settings.timing(ttl, window, grace)
        self.on_queued = on_queued
        self.fence = fence
        self.fields: Json = {}
        if metadata is not None:
            self.fields.update(content("metadata", metadata))
        if max_hold is not None:
            self.fields["max_hold_ms"] = us(max_hold, "max_hold") // 1000
        if min_hold:
            self.fields["min_hold_ms"] = us(min_hold, "min_hold") // 1000
        if progress_within:
            self.fields["progress_within_ms"] = us(progress_within, "progress_within") // 1000
        if not is_number(priority, 0, 9):
            raise Invalid("INVALID_FIELD", f"`priority` is a number from 0 to 9, not {priority!r}")
        if priority:
            self.fields["priority"] = priority
        if supersede is not None:
            self.fields["supersede"] = check_name(supersede)
        if lock_delay is not None:
            self.fields["lock_delay_ms"] = us(lock_delay, "lock_delay") // 1000
        if election:
            self.fields["election"] = True
        if independent:
            self.fields["independent"] = True

    def without_wait(self) -> "Ask":
        """The same request, which does not queue."""
        ask = copy.copy(self)
        ask.wait_us = 0
        return ask

    @property
    def title(self) -> str:
        """What is asked for, for messages."""
        first = self.names[0]
        if self.kind == POOL:
            return f"a slot of the pool `{first}`"
        if len(self.names) == 1:
            return f"lock `{first}`"
        return f"any of {len(self.names)} locks" if self.kind == ANY else f"{len(self.names)} locks"

    @property
    def is_try(self) -> bool:
        """Whether the request does not queue."""
        return self.wait_us == 0

    @property
    def is_replaceable(self) -> bool:
        """Whether a newer request of its group may replace it."""
        return "supersede" in self.fields

    @property
    def is_limited_by_timeout(self) -> bool:
        """Whether the caller's own limit comes before the end of the wait."""
        return self.timeout_us is not None and (not self.wait_us or self.timeout_us <= self.wait_us)

    def body(self, wait_ms: Optional[int]) -> Json:
        """The request on the wire, without its lease."""
        body: Json = dict(self.fields)
        how: Json = {"mode": self.mode, **self.how}
        if self.kind == POOL:
            body["pool"] = self.names[0]
            body.update(self.how)
        elif len(self.names) == 1:
            body["lock"] = self.names[0]
            if self.mode != "exclusive":
                body.update(how)
        else:
            body["locks"] = [{"lock": name, **how} for name in self.names]
            if self.kind == ANY:
                body["any"] = True
        if wait_ms is not None:
            body["wait_ms"] = wait_ms
        return body

"""Reads the clocks of the machine: the one that counts suspend, which decides about leases, and the one that does not."""

import time
from typing import Callable, NamedTuple


class Reading(NamedTuple):
    """Both clocks, read together, in microseconds."""

    boot: int
    """The clock that also counts while the machine is suspended. This one decides."""
    awake: int
    """The clock that stops in suspend. Its distance to the other shows how long the machine was suspended."""

    @property
    def slept(self) -> int:
        """How long the machine has been suspended since it started."""
        return max(self.boot - self.awake, 0)


_MONOTONIC = time.CLOCK_MONOTONIC if hasattr(time, "CLOCK_MONOTONIC") else None
# Linux names the clock that counts suspend CLOCK_BOOTTIME. On macOS CLOCK_MONOTONIC counts suspend, and CLOCK_UPTIME_RAW
# does not. Elsewhere the clock may stop in suspend: the README says what that means.
_BOOT = getattr(time, "CLOCK_BOOTTIME", _MONOTONIC)
_AWAKE = getattr(time, "CLOCK_UPTIME_RAW", _MONOTONIC)


def _reader(clock: "int | None") -> Callable[[], int]:
    if clock is None:
        return lambda: time.monotonic_ns() // 1000
    number: int = clock
    read = time.clock_gettime_ns
    return lambda: read(number) // 1000


boot_us = _reader(_BOOT)
"""The instant that decides, in microseconds since the machine started."""
_awake_us = _reader(_AWAKE)


def read() -> Reading:
    """Reads both clocks. The deciding one is read first, so that a pause in between cannot look like a suspend."""
    boot = boot_us()
    return Reading(boot, _awake_us())

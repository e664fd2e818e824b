"""Reads the clocks of the machine: the one that counts suspend, which decides about leases, and the one that does not."""

import sys
import time
from typing import Callable, NamedTuple

# A smaller difference is the time between two readings, or a wall clock that is being adjusted.
_JUMP_US = 50_000


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


class WallAssisted:
    """A monotonic clock that may stop in suspend, corrected by the wall clock.

    If the wall clock advanced further since the last reading, the difference counts as suspended. A wall clock that is set
    forward costs a guard; one that is set back by as much as the machine slept hides the suspend.
    """

    def __init__(self, monotonic_us: Callable[[], int], wall_us: Callable[[], int]) -> None:
        self._monotonic_us = monotonic_us
        self._wall_us = wall_us
        self._last = (monotonic_us(), wall_us())
        self._slept = 0

    def __call__(self) -> int:
        now, wall = self._monotonic_us(), self._wall_us()
        known, known_wall = self._last
        ahead = (wall - known_wall) - (now - known)
        if ahead > _JUMP_US:
            self._slept += ahead
        if abs(ahead) > _JUMP_US or now - known > 1_000_000:
            self._last = (now, wall)
        return now + self._slept


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000


def _reader(name: str) -> Callable[[], int]:
    clock, read = getattr(time, name), time.clock_gettime_ns
    return lambda: read(clock) // 1000


# Linux has a clock that counts suspend. On macOS CLOCK_MONOTONIC counts it, and CLOCK_UPTIME_RAW does not.
if hasattr(time, "CLOCK_BOOTTIME"):
    boot_us, _awake_us = _reader("CLOCK_BOOTTIME"), _reader("CLOCK_MONOTONIC")
elif sys.platform == "darwin":
    boot_us, _awake_us = _reader("CLOCK_MONOTONIC"), _reader("CLOCK_UPTIME_RAW")
else:
    boot_us, _awake_us = WallAssisted(_monotonic_us, lambda: time.time_ns() // 1000), _monotonic_us


def read() -> Reading:
    """Reads both clocks. The deciding one is read first, so that a pause in between cannot look like a suspend."""
    boot = boot_us()
    return Reading(boot, _awake_us())

"""Computes the timing of a lease: how long it is relied on after a renewal, and when it is renewed."""

from typing import Optional

from .errors import Invalid

# The bound on the difference of clock rates: some fifteen times the real difference.
_RATE_ERROR_PPM = 10_000
_MILLION = 1_000_000
_TTL_MIN_US = 100_000
_TTL_MAX_US = 3_600 * _MILLION


class LeaseTimingError(Invalid):
    """Why the times of a lease do not fit each other: `what` is `ttl`, `window` or `grace`, and these would fit."""

    def __init__(self, what: str, message: str, least_us: Optional[int] = None, most_us: Optional[int] = None) -> None:
        super().__init__(f"INVALID_{what.upper()}", message)
        self.what = what
        self.least_us = least_us
        self.most_us = most_us


class LeaseTiming:
    """The times of one lease in microseconds, all derived from its ttl."""

    __slots__ = ("overdue_after_us", "renew_after_us", "retry_us", "surely_lives_us", "ttl_us", "window_us")

    def __init__(self, ttl_us: int, window_us: Optional[int] = None, grace_us: Optional[int] = None) -> None:
        if not _TTL_MIN_US <= ttl_us <= _TTL_MAX_US:
            raise LeaseTimingError("ttl", f"a ttl of {_show(ttl_us)} is not between 100ms and 1h")
        self.ttl_us = ttl_us
        self.surely_lives_us = ttl_us * (_MILLION - _RATE_ERROR_PPM) // (_MILLION + _RATE_ERROR_PPM)
        """How long after a renewal was sent the cluster surely keeps the lease, by the clock of this machine."""
        self.renew_after_us = ttl_us // 3
        """When the next renewal is sent, counted from the last acknowledged one."""
        self.retry_us = ttl_us // 24
        """How long one attempt may take, and how soon the next one follows."""
        if window_us is not None and not self.renew_after_us < window_us <= self.surely_lives_us:
            least, most = self.renew_after_us, self.surely_lives_us
            raise LeaseTimingError(
                "window",
                f"window {_show(window_us)} does not fit ttl {_show(ttl_us)} "
                f"(more than {least / 1e6:.1f}s, at most {most / 1e6:.1f}s)",
                least,
                most,
            )
        self.window_us = ttl_us // 2 if window_us is None else window_us
        """How long the client relies on the lease after a renewal was sent."""
        most = self.surely_lives_us - self.window_us
        if grace_us is not None and grace_us > most:
            fits = f"{most / 1e6:.1f}s"
            text = f"grace {_show(grace_us)} does not fit ttl {_show(ttl_us)} (at most {fits})"
            raise LeaseTimingError("grace", text, None, most)
        self.overdue_after_us = (self.renew_after_us + self.window_us) // 2
        """How long after a renewal was sent the next one counts as overdue."""


def _show(time_us: int) -> str:
    return f"{time_us // _MILLION}s" if time_us % _MILLION == 0 else f"{time_us / 1000:g}ms"

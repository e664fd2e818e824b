"""Decides how long a lease is surely ours, and when the work under it must stop. Pure: no clock, no I/O.

The rule: time counts from the clock reading *before the first send* of the newest acknowledged renewal. The cluster
began its ttl at that moment or later. The client stops one window after that reading, and the window is shorter than
the ttl by at least what the clocks may differ, so the client stops first. A loss is final: no later answer revives it.
"""

from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import _loss, _plant
from ._clock import Reading
from ._lease_timing import LeaseTiming
from ._loss import Loss

# A smaller difference between the clocks is not a suspend but the time between their two readings.
SLEEP_MIN_US = 50_000

VALID = "valid"
OVERDUE = "overdue"
LOST = "lost"

RELEASE = "release"
"""Release the lock."""
CONFIRM = "confirm"
"""Confirm that the work under a lock that was taken away has stopped, so that the next grant need not wait longer."""


class TooLate(NamedTuple):
    """The answer to the grant came after the time for which the lease could be relied on. It must be revoked."""

    after_us: int


class PendingGrant:
    """A lease that was requested and is not granted yet."""

    __slots__ = ("_first", "timing")

    def __init__(self, timing: LeaseTiming) -> None:
        self.timing = timing
        self._first: Optional[int] = None

    def sent(self, now: Reading) -> None:
        """Records that the request is about to be sent, for the first time or again under the same id."""
        # The answer to a repetition may be the recorded one, so only the first send counts.
        if self._first is None:
            self._first = now.boot

    def granted(self, now: Reading) -> "Union[LeaseState, TooLate]":
        """Records the grant."""
        since = now.boot if self._first is None or _plant.renewal_from_answer else self._first
        if now.boot >= since + self.timing.window_us:
            return TooLate(now.boot - since)
        return LeaseState(self.timing, since, now)


class _Grant:
    __slots__ = ("at", "lock", "lost", "stopped", "told")

    def __init__(self, lock: str, at: int) -> None:
        self.lock = lock
        self.at = at
        self.lost: Optional[Loss] = None
        self.stopped = False
        self.told = False


class GrantLoss(NamedTuple):
    """A grant that is lost."""

    token: int
    lock: str
    loss: Loss
    stopped: bool


class LeaseState:
    """The state of a granted lease. Times are microseconds of the deciding clock."""

    __slots__ = (
        "_due", "_failed", "_grants", "_known", "_late", "_lost", "_napped", "_newest", "_next_try", "_proof", "_refused",
        "_since", "_slept", "_tries", "timing",
    )  # fmt: skip

    def __init__(self, timing: LeaseTiming, since: int, now: Reading) -> None:
        self.timing = timing
        # When the newest acknowledged request was sent for the first time.
        self._since = since
        self._lost: Optional[Loss] = None
        # Number and sending time of each unanswered renewal.
        self._tries: Dict[int, int] = {}
        self._newest = 0
        self._next_try = since + timing.renew_after_us
        # The revision up to which the client knows of all involuntary losses.
        self._known = 0
        # An acknowledgement that counts only after the holdings were read: sending time and revision.
        self._proof: Optional[Tuple[int, int]] = None
        self._grants: Dict[int, _Grant] = {}
        self._refused = False
        # When the lease asked to be polled next, and what is known about why nothing was acknowledged.
        self._due = since + timing.renew_after_us
        self._slept = now.slept
        self._late = 0
        self._napped = 0
        self._failed = 0

    @property
    def lost_at(self) -> int:
        """The instant from which the lease counts as lost, unless something newer is acknowledged."""
        return self._since + self.timing.window_us

    @property
    def due(self) -> int:
        """When to poll the lease next."""
        overdue = self._since + self.timing.overdue_after_us
        if self._due >= overdue:
            overdue = self.lost_at
        return min(self._next_try, overdue, self.lost_at)

    @property
    def loss(self) -> Optional[Loss]:
        """The loss of the lease itself, if it is lost."""
        return self._lost

    def poll(self, now: Reading) -> bool:
        """Checks the clock, and returns whether to send a renewal now."""
        at = now.boot
        late = max(at - self._due, 0)
        retry = self.timing.retry_us
        if late > retry:
            self._late = max(self._late, late)
        slept = max(now.slept - self._slept, 0)
        self._slept = now.slept
        if slept > SLEEP_MIN_US:
            self._napped += slept
        self._expire(at)
        overdue = sum(1 for sent in self._tries.values() if sent + retry <= at)
        if late <= retry and slept <= SLEEP_MIN_US:
            self._failed = max(self._failed, overdue)
        self._due = at
        renew = self._lost is None and at >= self._next_try
        self._due = at + retry if renew else max(self.due, at)
        return renew

    def is_soon(self, now: Reading) -> bool:
        """Whether a renewal is due, or will be within a quarter of the renewal interval.

        Leases that are renewed together stay together.
        """
        return self._lost is None and now.boot + self.timing.renew_after_us // 4 >= self._next_try

    def is_retrying(self) -> bool:
        """Whether a renewal is still unanswered, or has failed."""
        return self._lost is None and (self._failed > 0 or bool(self._tries))

    def renewing(self, now: Reading) -> int:
        """Records that a renewal is about to be sent, and returns its number, which comes back with the answer."""
        window = self.timing.window_us
        # A renewal that was sent a window ago proves nothing any more.
        self._tries = {number: sent for number, sent in self._tries.items() if sent + window > now.boot}
        self._newest += 1
        self._tries[self._newest] = now.boot
        self._next_try = now.boot + self.timing.retry_us
        return self._newest

    def renewed(self, number: int, ttl_us: int, changed: int, now: Reading) -> bool:
        """Records an acknowledged renewal: the lease has `ttl_us` again, or no longer exists if that is 0.

        Returns whether the caller has to read what the lease holds, and pass it to `holdings`.
        """
        self._expire(now.boot)
        sent = self._tries.pop(number, None)
        if sent is None:
            return False
        if _plant.renewal_from_answer:
            sent = now.boot
        if self._lost is not None:
            if _plant.loss_not_final:
                self._lost = None
                self._acknowledged(sent)
            return False
        if ttl_us == 0:
            # The lease could not have expired by our own clock yet: it was ended, and the client was not told.
            self._lose(Loss(_loss.GONE))
            return False
        if changed > self._known:
            self._proof = (sent if self._proof is None else max(self._proof[0], sent), changed)
            return True
        self._acknowledged(sent)
        return False

    def not_renewed(self, number: int) -> None:
        """Records that a renewal failed or was not answered in time."""
        self._tries.pop(number, None)
        self._failed += 1

    def holdings(self, revision: int, changed: int, holds: Iterable[int], now: Reading) -> None:
        """Records what the lease held at `revision`; `changed` is the newest loss up to then."""
        self._expire(now.boot)
        held = set(holds)
        for token, grant in self._grants.items():
            # A lock that was granted after the reading is rightly missing in it.
            if grant.at <= revision and token not in held and grant.lost is None:
                grant.lost = Loss(_loss.GONE)
        self._known = max(self._known, changed)
        if self._proof is not None and self._proof[1] <= self._known:
            sent = self._proof[0]
            self._proof = None
            if self._lost is None:
                self._acknowledged(sent)

    def ended(self, loss: Loss, now: Reading) -> None:
        """Records that the lease has ended or is unknown."""
        # If renewals stopped for local reasons, the local clock knows the cause better than the cluster.
        self._expire(now.boot)
        self._lose(loss)

    def granted(self, lock: str, token: int, at: int, now: Reading) -> Optional[Loss]:
        """Records a granted lock. It becomes a guard only if the lease can be relied on now: else the loss is returned."""
        lost = self.check(now)
        if lost is not None:
            return lost
        # A member that was behind may report a grant after the lease has lost something newer. That loss may be the
        # loss of this very grant, and acknowledged renewals have moved the local deadline beyond it since.
        if at < self._known:
            return Loss(_loss.GONE)
        self._grants[token] = _Grant(lock, at)
        return None

    def regranted(self, old: int, new: int, at: int) -> None:
        """Moves a held lock to another token."""
        grant = self._grants.pop(old, None)
        if grant is not None:
            grant.at = at
            self._grants[new] = grant

    def taken(self, token: int, loss: Loss) -> None:
        """Records the loss of a lock that this client did not release."""
        grant = self._grants.get(token)
        if grant is not None and grant.lost is None:
            grant.lost = loss

    def check(self, now: Reading) -> Optional[Loss]:
        """Returns the loss, unless the lease can be relied on at this moment."""
        if not _plant.check_by_timer:
            self._expire(now.boot)
        return self._lost

    def check_grant(self, token: int, now: Reading) -> Optional[Loss]:
        """Returns the loss, unless the lock can be relied on at this moment."""
        lost = self.check(now)
        if lost is not None:
            return lost
        grant = self._grants.get(token)
        return Loss(_loss.RELEASED) if grant is None else grant.lost

    def standing(self, now: Reading) -> str:
        """Returns the standing at this moment: valid, overdue or lost."""
        if self.check(now) is not None:
            return LOST
        return OVERDUE if now.boot >= self._since + self.timing.overdue_after_us else VALID

    def losses(self) -> List[GrantLoss]:
        """Returns the lost locks with their causes."""
        found = []
        for token, grant in self._sorted():
            loss = grant.lost or self._lost
            if loss is not None:
                found.append(GrantLoss(token, grant.lock, loss, grant.stopped))
        return found

    def in_use(self) -> List[str]:
        """Returns the names of the locks whose work has not stopped."""
        return [grant.lock for _, grant in self._sorted() if not grant.stopped]

    def stopped(self, token: int) -> None:
        """Records that the work under a lock has stopped, so that the cluster may be told."""
        grant = self._grants.get(token)
        if grant is not None:
            grant.stopped = True

    def all_stopped(self, tokens: Iterable[int]) -> None:
        """Records the same of several locks."""
        for token in tokens:
            self.stopped(token)

    def given_back(self, token: int, now: Reading) -> Optional[str]:
        """Removes a lock whose work has stopped while it could be relied on, and returns its name for the release.

        Returns `None` if the lock was lost; then `stopped` and `farewells` determine what to tell the cluster.
        """
        if self.check_grant(token, now) is not None:
            return None
        return self._grants.pop(token).lock

    def farewells(self) -> List[Tuple[int, str, str]]:
        """Returns what to tell the cluster now, each item once. A lock is never released before its work has stopped."""
        farewells = []
        for token, grant in self._sorted():
            over = grant.stopped or (_plant.release_while_working and (grant.lost is not None or self._lost is not None))
            if grant.told or not over:
                continue
            grant.told = True
            farewells.append((token, grant.lock, CONFIRM if grant.lost is not None else RELEASE))
        self._grants = {token: it for token, it in self._grants.items() if not (it.told and it.stopped)}
        return farewells

    def is_idle(self) -> bool:
        """Whether no work runs under the lease, so that it may be revoked."""
        return all(grant.stopped for grant in self._grants.values())

    def end_if_idle(self) -> bool:
        """Ends the lease if no work runs under it, and returns whether it has ended.

        From then on no grant becomes a guard, so the lease may be revoked.
        """
        idle = self.is_idle()
        if idle:
            self._lose(Loss(_loss.RELEASED))
        return idle

    def credentials_refused(self) -> None:
        """Members refuse the client's credentials: that is the cause if no renewal is acknowledged in time."""
        self._refused = True

    def forked(self) -> None:
        """Records that this is the copy of a forked child, which holds nothing."""
        self._lost = Loss(_loss.FORKED)

    def _sorted(self) -> List[Tuple[int, _Grant]]:
        return sorted(self._grants.items()) if len(self._grants) > 1 else list(self._grants.items())

    def _acknowledged(self, sent: int) -> None:
        self._since = since = max(self._since, sent)
        # Renewals that were sent before this one prove nothing more.
        self._tries = {number: it for number, it in self._tries.items() if it > since}
        self._next_try = since + self.timing.renew_after_us
        self._refused = False
        self._failed = 0
        self._late = 0
        self._napped = 0
        self._due = min(self._due, self.due)

    def _expire(self, at: int) -> None:
        if self._lost is not None or at < self.lost_at:
            return
        late = max(self._late, at - self._due, 0)
        silent = max(at - self._since, 0)
        if self._refused:
            loss = Loss(_loss.CREDENTIALS_REFUSED, silent)
        elif self._failed > 0:
            loss = Loss(_loss.UNREACHABLE, silent)
        elif self._napped > SLEEP_MIN_US:
            loss = Loss(_loss.SUSPENDED, self._napped)
        elif late > self.timing.retry_us:
            loss = Loss(_loss.STALLED, late)
        else:
            loss = Loss(_loss.UNREACHABLE, silent)
        self._lose(loss)

    def _lose(self, loss: Loss) -> None:
        if self._lost is None:
            self._lost = loss
            if not _plant.loss_not_final:
                self._tries.clear()

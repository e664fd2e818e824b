"""Keeps a granted lease, and tells everything that relies on it when it is lost."""

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple, TypeVar

from . import _loss, _plant
from ._clock import Reading, boot_us, read
from ._lease_state import LOST, GrantLoss, LeaseState
from ._loop import Future
from ._loss import Loss
from ._native import make_lock
from ._signal import Signal

if TYPE_CHECKING:
    from ._engine import Engine

T = TypeVar("T")

# The most unanswered requests of one lease: somewhat less than the cluster allows.
_WINDOW = 200


class HeldLock(NamedTuple):
    """One lock of a guard."""

    name: str
    token: int
    slot: Optional[int] = None


class Seq:
    """The number of a request under its lease. The request counts as unanswered until `drop`."""

    __slots__ = ("_held", "number")

    def __init__(self, held: "HeldLease", number: int) -> None:
        self._held = held
        self.number = number

    def identity(self) -> Dict[str, int]:
        """The fields by which the cluster recognises the request."""
        return {"seq": self.number, "done": self._held.done_seq()}

    def drop(self) -> None:
        """The request is answered or given up; every later request tells the cluster so."""
        self._held.drop_seq(self.number)


class HeldLease:
    """The lease itself. `update` may be called on any thread, everything else on the loop's thread."""

    def __init__(self, engine: "Engine", lease: str, created: str, state: LeaseState) -> None:
        self.engine = engine
        self.id = lease
        self.created = created
        self.state = state
        self._lock = make_lock()
        self.signals: Dict[int, Signal] = {}
        """What to fire when a grant is lost, by token."""
        self.lost = Signal()
        """Fires when the lease itself is lost."""
        self.lost_future: Future[None] = Future()
        self.is_revoked = False
        self.is_kept = False
        """Whether a `Lease` of the caller keeps it alive without locks."""
        self._newest_seq = 0
        self._open_seqs: List[int] = []
        self._seq_waiters: Deque[Future[None]] = deque()
        self._local_queues: Dict[str, Deque[Future[None]]] = {}
        self.lost.then(lambda _: engine.loop.call(lambda: self.lost_future.set(None)))
        engine.register(self)

    def update(self, act: Callable[[LeaseState, Reading], T]) -> T:
        """Changes the lease state, and tells everything that relies on what the change loses. On any thread."""
        now = read()
        with self._lock:
            done = act(self.state, now)
            self.state.check(now)
            lease_loss = self.state.loss
            losses = self.state.losses()
        # Signals call functions of others, so none fires under the lock.
        if losses or lease_loss is not None:
            self._report(lease_loss, losses)
        return done

    def check(self, token: int) -> Optional[Loss]:
        """Returns the loss of a grant. Only compares the clock. On any thread."""
        now = read()
        with self._lock:
            loss = self.state.check_grant(token, now)
        if loss is not None:
            self.update(lambda state, now: None)
        return loss

    def standing(self, token: Optional[int] = None) -> str:
        """Returns valid, overdue or lost. On any thread."""

        def stand(state: LeaseState, now: Reading) -> str:
            if token is not None and state.check_grant(token, now) is not None:
                return LOST
            return state.standing(now)

        return self.update(stand)

    def forked(self) -> None:
        """In a forked child: the lease belongs to the parent."""
        loss = Loss(_loss.FORKED)
        self._lock = make_lock()
        self.state.forked()
        for signal in [self.lost, *self.signals.values()]:
            signal.forked(loss)

    def _report(self, lease_loss: Optional[Loss], losses: List[GrantLoss]) -> None:
        for it in losses:
            signal = self.signals.get(it.token)
            # After the work has stopped, the loss concerns no one.
            if signal is not None and signal.fire(it.loss) and not it.stopped:
                self.engine.warn(
                    "lost lock `%s`: %s (cause=%s token=%s lease=%s)", it.lock, it.loss, it.loss.cause, it.token, self.id
                )
        if lease_loss is not None:
            self.lost.fire(lease_loss)
        if _plant.release_while_working and any(not it.stopped for it in losses):
            self.engine.loop.call(lambda: self.engine.release_early(self))

    # Request numbers.

    async def seq(self) -> Seq:
        """Returns the next request number, once the window has room."""
        while len(self._open_seqs) >= _WINDOW:
            room: Future[None] = Future()
            self._seq_waiters.append(room)
            await room
        self._newest_seq += 1
        self._open_seqs.append(self._newest_seq)
        return Seq(self, self._newest_seq)

    def done_seq(self) -> int:
        """Every number up to this one is answered or given up."""
        return self._open_seqs[0] - 1 if self._open_seqs else self._newest_seq

    def drop_seq(self, number: int) -> None:
        at = bisect_left(self._open_seqs, number)
        if at < len(self._open_seqs) and self._open_seqs[at] == number:
            del self._open_seqs[at]
            if self._seq_waiters:
                self._seq_waiters.popleft().set(None)

    # The local queue of each lock: a second request of this process waits here, not in the cluster.

    async def acquire_permits(self, names: List[str], until_us: Optional[int]) -> Tuple[str, List[str]]:
        """Waits for the local permit of each lock. Returns what ended it (`""`, `timeout`, `lost`) and the permits."""
        taken: List[str] = []
        # In one order, so that two requests for several locks do not wait for each other.
        for name in sorted(set(names)):
            queue = self._local_queues.get(name)
            if queue is None:
                self._local_queues[name] = deque()
                taken.append(name)
                continue
            if until_us is not None and until_us <= boot_us():
                return "timeout", taken
            waiter: Future[None] = Future()
            queue.append(waiter)
            try:
                await self.engine.loop.wait(until_us, waiter, self.lost_future, self.engine.closing)
            except BaseException:
                self._leave_queue(name, waiter)
                self.release_permits(taken)
                raise
            if not waiter.is_done:
                self._leave_queue(name, waiter)
                return ("lost" if self.lost_future.is_done else "timeout"), taken
            taken.append(name)
        return "", taken

    def release_permits(self, names: List[str]) -> None:
        """Gives the local permits to the next requests."""
        for name in names:
            queue = self._local_queues.get(name)
            if queue:
                queue.popleft().set(None)
            else:
                self._local_queues.pop(name, None)
        names.clear()

    def _leave_queue(self, name: str, waiter: Future[None]) -> None:
        if waiter.is_done:
            self.release_permits([name])
        else:
            self._local_queues[name].remove(waiter)

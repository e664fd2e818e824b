"""Implements what the guards of both twins share: the grant, its check, and giving it back."""

from typing import TYPE_CHECKING, List, Optional, Tuple

from . import _loss, _requests
from ._clock import Reading
from ._held import HeldLease, HeldLock
from ._lease_state import CONFIRM, RELEASE, LeaseState
from ._loss import Loss
from ._native import make_lock
from ._requests import DoubtfulRefusal, call_doubting
from ._signal import Signal
from .errors import Closed, Error, Lost, Refused

if TYPE_CHECKING:
    from ._engine import Engine


class GuardCore:
    """A granted lock, or several. Guards that were made by `reenter` share one; the last one gives it back."""

    def __init__(self, held: HeldLease, own: bool, locks: List[HeldLock], revision: int, permits: List[str]) -> None:
        self.held = held
        self.own = own
        """Whether the lease exists for this guard alone."""
        self.locks = locks
        self.revision = revision
        self.permits = permits
        self.signal = Signal()
        self._lock = make_lock()
        self._users = 1
        self._is_in_doubt = False

    @classmethod
    def record(cls, held: HeldLease, own: bool, locks: List[HeldLock], revision: int, permits: List[str]) -> "GuardCore":
        """Records a grant in the lease state. If it cannot be relied on any more, gives it back and raises."""
        core = cls(held, own, locks, revision, permits)
        # Subscribe before the grant is recorded, so that no loss is missed.
        for lock in locks:
            held.signals[lock.token] = core.signal

        def granted_all(state: LeaseState, now: Reading) -> Optional[Loss]:
            for lock in locks:
                lost = state.granted(lock.name, lock.token, revision, now)
                if lost is not None:
                    return lost
            return None

        lost = held.update(granted_all)
        if lost is None and held.engine.closing.is_done:
            held.engine.clean_up(core.finish())
            raise Closed
        if lost is not None:
            # No work has begun.
            held.engine.clean_up(core.finish())
            if not own and held.state.loss is None:
                # The lease lives on, and the grant is not recorded in it.
                for lock in locks:
                    held.engine.clean_up(release(held, lock.name, lock.token))
            raise Closed if held.engine.closing.is_done else Lost(lost, locks[0].name)
        return core

    @property
    def engine(self) -> "Engine":
        return self.held.engine

    @property
    def tokens(self) -> List[int]:
        return [lock.token for lock in self.locks]

    def check(self) -> Optional[Lost]:
        """Returns the loss, unless every lock can be relied on at this moment. Only compares the clock."""
        for lock in self.locks:
            loss = self.held.check(lock.token)
            if loss is not None:
                return Lost(loss, lock.name)
        return None

    def standing(self) -> str:
        """Returns `valid`, `overdue` or `lost`."""
        for lock in self.locks:
            standing = self.held.standing(lock.token)
            if standing != "valid":
                return standing
        return "valid"

    def reenter(self) -> None:
        """One more guard uses the grant."""
        lost = self.check()
        if lost is not None:
            raise lost
        with self._lock:
            if self._users == 0:
                raise Lost(Loss(_loss.RELEASED), self.locks[0].name)
            self._users += 1

    def leave(self) -> bool:
        """A guard ended. Returns whether it was the last one."""
        with self._lock:
            self._users -= 1
            return self._users == 0

    @property
    def is_shared(self) -> bool:
        """Whether there are several guards of the grant."""
        return self._users > 1

    def doubt(self) -> None:
        """It is not certain how the lock is held: the guard is lost, and giving it back gives back what there is."""
        self._is_in_doubt = True

        def lose_all(state: LeaseState, now: Reading) -> None:
            for token in self.tokens:
                state.taken(token, Loss(_loss.GONE))

        self.held.update(lose_all)

    def handed_on(self) -> None:
        """Another client holds the lock. There is nothing to release any more, except a lease of the guard's own."""
        held, token = self.held, self.locks[0].token
        self.leave()

        def give_away(state: LeaseState, now: Reading) -> None:
            if state.given_back(token, now) is None:
                state.stopped(token)

        held.update(give_away)
        if self.own:
            self.engine.clean_up(revoke(held))
        held.signals.pop(token, None)
        self.signal.end()
        held.release_permits(self.permits)
        self.engine.settled()

    def abandon(self) -> None:
        """Gives the grant back: its caller went away before the guard was handed out."""
        if self.leave():
            self.engine.clean_up(self.finish())

    async def release(self) -> None:
        """Releases the locks and waits until the cluster has acknowledged it.

        If they are lost, raises the loss at once, and tells the cluster in the background that the work has stopped.
        """
        lost = self.check()
        if lost is not None:
            self.engine.clean_up(self.finish())
            raise lost
        try:
            await self.finish()
        except Lost as lost_meanwhile:
            raise Lost(lost_meanwhile.loss, self.locks[0].name) from None

    async def finish(self) -> None:
        """Tells the cluster that the work has stopped, in the way that fits the lease."""
        held = self.held
        with self.engine.cleaning():
            try:
                if self._is_in_doubt and not self.own:
                    await self._give_back_what_there_is()
                # If the lease is the guard's own and no lock was taken away, one revoke ends everything.
                if self.own and self.check() is None:
                    held.update(lambda state, now: state.all_stopped(self.tokens))
                    await revoke(held)
                elif len(self.locks) == 1 and not self.own and await self._release_one():
                    pass
                else:
                    await self._farewell()
            finally:
                for token in self.tokens:
                    held.signals.pop(token, None)
                self.signal.end()
                held.release_permits(self.permits)
                self.engine.settled()

    async def _give_back_what_there_is(self) -> None:
        """Leaves the queue of an upgrade, and releases the lock under whichever token the lease holds it."""
        held, lock = self.held, self.locks[0]
        seq = await held.seq()
        try:
            reply = await _requests.call(held.engine, "leave", {"lock": lock.name, "lease": held.id}, seq=seq)
            tokens = [int(one["token"]) for one in reply.answer.get("left", {}).get("held", ())]
        except Refused:
            tokens = []
        finally:
            seq.drop()
        for token in tokens or [lock.token]:
            try:
                await release(held, lock.name, token)
            except Lost:
                # It is not held under this token.
                pass

    async def _release_one(self) -> bool:
        token = self.locks[0].token
        name = self.held.update(lambda state, now: state.given_back(token, now))
        if name is None:
            return False
        await release(self.held, name, token)
        return True

    async def _farewell(self) -> None:
        held = self.held

        def stop(state: LeaseState, now: Reading) -> Tuple[Optional[Loss], List[Tuple[int, str, str]]]:
            lost = state.check(now)
            state.all_stopped(self.tokens)
            return lost, state.farewells()

        lost, farewells = held.update(stop)
        problem: Optional[Error] = None
        for token, name, say in farewells:
            # A lost lease is revoked as a whole.
            if lost is not None and say == RELEASE:
                continue
            try:
                if say == CONFIRM:
                    await confirm(held, name, token)
                else:
                    await release(held, name, token)
            except Error as error:
                problem = problem or error
        # The last work under the lost lease has stopped: revoke it, so that others do not wait until it runs out. A lease
        # of the guard's own has no other use.
        if lost is not None or self.own:
            await revoke(held)
        if problem is not None:
            raise problem


async def release(held: HeldLease, lock: str, token: int) -> None:
    """Releases a lock. The token identifies the grant, so doing it twice is doing it once."""
    try:
        reply = await call_doubting(held.engine, "release", {"lock": lock, "lease": held.id, "token": str(token)})
    except DoubtfulRefusal as refusal:
        # An earlier, unanswered attempt may have released the lock.
        if refusal.error.reason == "NOT_HOLDER" and refusal.was_in_doubt:
            return
        if refusal.error.reason in ("NOT_HOLDER", "LEASE_NOT_FOUND"):
            # The lock was lost, and the notice of that has not arrived.
            raise Lost(Loss(_loss.GONE), lock) from None
        raise refusal.error from None
    if "released" not in reply.answer:
        raise _requests.strange()


async def confirm(held: HeldLease, lock: str, token: int) -> None:
    """Confirms that the work under a lock that was taken away has stopped."""
    body = {"lock": lock, "lease": held.id, "lease_created": held.created, "token": str(token)}
    try:
        await _requests.call(held.engine, "stopped", body)
    except Refused as error:
        # Not cooling: the lock has already gone to the next holder, so there is nothing to confirm.
        if error.reason != "NOT_COOLING":
            raise


async def revoke(held: HeldLease) -> None:
    """Revokes the lease, if no work runs under it. If it had ended before, which the client was not told, raises the loss."""
    if not held.update(lambda state, now: state.end_if_idle()) or held.is_revoked:
        return
    held.is_revoked = True
    held.engine.forget(held)
    await revoke_id(held.engine, held.id)


async def revoke_id(engine: "Engine", lease: str) -> None:
    """Revokes a lease by its id."""
    try:
        await call_doubting(engine, "revoke", {"lease": lease})
    except DoubtfulRefusal as refusal:
        if refusal.error.reason != "LEASE_NOT_FOUND":
            raise refusal.error from None
        if not refusal.was_in_doubt:
            raise Lost(Loss(_loss.GONE)) from None

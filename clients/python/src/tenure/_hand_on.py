"""Changes who holds a lock and how: upgrades a shared hold, and gives a hold to a client that waits."""

from typing import Optional

from ._acquire import Update, deadline, may_stand, stand
from ._ask import Ask
from ._guards import GuardCore
from ._held import HeldLease, HeldLock
from ._loss import GONE, Loss
from ._requests import call, strange
from .errors import NONE, Error, Invalid, Lost, Refused, Unavailable, Unknown


async def upgrade(core: GuardCore, wait: Optional[float]) -> None:
    """Turns a shared hold into an exclusive one, once there is no other holder. The token changes."""
    _check_only_one(core)
    held, lock = core.held, core.locks[0]
    ask = Ask(core.engine.settings, [lock.name], wait=wait)
    ask.fields["upgrade"] = True
    try:
        new = await _upgraded(held, lock, ask)
    except BaseException as error:
        _doubt_unless_certain(core, error)
        if not isinstance(error, Error):
            # The caller no longer waits.
            held.engine.clean_up(_leave_only(held, lock))
        raise
    if new.token != lock.token:
        regrant(core, 0, new.token, new.revision)


class _New:
    """The hold after an upgrade."""

    def __init__(self, token: int, revision: int) -> None:
        self.token = token
        self.revision = revision


async def _upgraded(held: HeldLease, lock: HeldLock, ask: Ask) -> _New:
    try:
        update: Update = await stand(held, ask, deadline(held.engine, ask))
    except Error as error:
        if isinstance(error, Lost) or not may_stand(error):
            raise
        # The answer tells whether the upgrade came first: then the token is another one.
        try:
            new = await _leave(held, lock)
        except Refused:
            # The lease holds nothing of the lock any more.
            raise Lost(Loss(GONE), lock.name) from None
        except Unavailable:
            raise Unknown(f"the upgrade of lock `{lock.name}` was not answered; it may have happened") from None
        if new is None:
            raise
        return new
    token = next((it.token for it in update.locks if it.name == lock.name), lock.token)
    return _New(token, update.revision)


async def _leave(held: HeldLease, lock: HeldLock) -> Optional[_New]:
    """Leaves the queue in which a lease waits for an upgrade. Returns the hold if it was upgraded before."""
    seq = await held.seq()
    try:
        reply = await call(held.engine, "leave", {"lock": lock.name, "lease": held.id}, seq=seq)
    finally:
        seq.drop()
    if "left" not in reply.answer:
        raise strange()
    for one in reply.answer["left"].get("held", ()):
        if one["lock"] == lock.name and int(one["token"]) != lock.token:
            return _New(int(one["token"]), reply.revision)
    return None


async def _leave_only(held: HeldLease, lock: HeldLock) -> None:
    try:
        await _leave(held, lock)
    except Refused:
        # It does not wait any more.
        pass


def regrant(core: GuardCore, at: int, token: int, revision: int) -> None:
    """Moves one lock of a guard to another token."""
    held, old = core.held, core.locks[at]
    held.signals[token] = held.signals.pop(old.token)
    held.update(lambda state, now: state.regranted(old.token, token, revision))
    core.locks[at] = HeldLock(old.name, token, old.slot)


async def hand_on(core: GuardCore, to: str) -> int:
    """Gives the hold to the client of another lease, which waits for this lock. Returns the token of its grant."""
    if not (to.isascii() and to.isdigit() and 0 < int(to) < 1 << 63):
        raise Invalid("INVALID_FIELD", f"`to` is the id of a lease, not {to!r}")
    _check_only_one(core)
    held, lock = core.held, core.locks[0]
    body = {"lock": lock.name, "lease": held.id, "token": str(lock.token), "to": to}
    seq = await held.seq()
    try:
        reply = await call(held.engine, "hand_on", body, seq=seq)
        if "handed_on" not in reply.answer:
            raise strange()
    except BaseException as error:
        _doubt_unless_certain(core, error)
        raise
    finally:
        seq.drop()
    core.handed_on()
    return int(reply.answer["handed_on"]["token"])


def _doubt_unless_certain(core: GuardCore, error: BaseException) -> None:
    """After a refusal the hold is as it was. After any other error that is not certain, so the guard is lost."""
    if not (isinstance(error, (Refused, Unavailable, Invalid)) and error.effect == NONE):
        core.doubt()


def _check_only_one(core: GuardCore) -> None:
    """Checks that this is the only guard of its grant, that it stands for one lock, and that it is not lost."""
    if core.is_shared:
        raise Invalid("GUARD_SHARED", "there are other guards of the same hold")
    if len(core.locks) != 1:
        raise Invalid("SEVERAL_LOCKS", "the guard stands for several locks")
    lost = core.check()
    if lost is not None:
        raise lost

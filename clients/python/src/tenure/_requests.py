"""Sends requests until they are answered, under one id, and tells what an error of the cluster means for the sender."""

import secrets
from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Optional, Tuple

from . import _plant
from ._clock import boot_us
from ._session import ANSWER, GONE, Asked, Session
from .errors import Error, Refused, Unavailable, Unknown

if TYPE_CHECKING:
    from ._engine import Engine
    from ._held import Seq

Json = Dict[str, Any]

# How long a member may look for a leader before it reports that it knows none.
_MEMBER_US = 9_000_000
# The pause between attempts grows from the first value to the second.
_PAUSE_MIN_US = 10_000
_PAUSE_MAX_US = 500_000

# Of all reasons that allow a retry, these go away soon and without intervention.
_PASSING = frozenset(
    """NOT_LEADER NO_LEADER NO_QUORUM DEADLINE OVERLOADED SHUTTING_DOWN CORRUPT REQUEST_WINDOW TOO_MANY_HOPS""".split()
)
# Unanswered, these changed nothing.
_QUESTIONS = frozenset(("get_lease", "get_lock", "get_key", "explain"))

AGAIN = "again"
"""It had no effect and may be sent again."""
DOUBT = "doubt"
"""It may have taken effect."""
NO = "no"
"""It had no effect, and repeating it will not help."""


class Meaning(NamedTuple):
    """What an error of the cluster means for the sender of the request."""

    what: str
    after_us: int = 0
    error: Optional[Error] = None


def meaning_of(error: Json) -> Meaning:
    """Reads an error of the cluster."""
    if error.get("effect") == "unknown":
        return Meaning(DOUBT)
    reason, retry_after = str(error.get("reason", "")), int(error.get("retry_after_ms") or 0)
    # A quota that is counted by time says when there is room again; others are full until their user frees some.
    full_for_now = reason == "QUOTA" and retry_after > 0
    if full_for_now or reason in _PASSING:
        says_why = full_for_now or reason == "OVERLOADED"
        return Meaning(AGAIN, retry_after * 1000, Refused.by(error) if says_why else None)
    return Meaning(NO, 0, Refused.by(error))


def strange() -> Refused:
    """The error for an answer whose kind does not match its request."""
    return Refused("STRANGE_ANSWER", "the member answered something else than was asked")


class Reply(NamedTuple):
    """A decided answer."""

    answer: Json
    revision: int
    was_in_doubt: bool
    """Whether an earlier, unanswered attempt may have taken effect before."""


class DoubtfulRefusal(Exception):
    """A refusal, and whether an earlier, unanswered attempt may have taken effect before."""

    def __init__(self, error: Refused, was_in_doubt: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_in_doubt = was_in_doubt


def request_id() -> str:
    """A new random id for a request without a lease."""
    return secrets.token_hex(16)


async def call(
    engine: "Engine",
    command: str,
    body: Json,
    *,
    key: Optional[str] = None,
    seq: "Optional[Seq]" = None,
    within_us: Optional[int] = None,
) -> Reply:
    """Sends a request until it is answered, or until it is known that no answer will come."""
    try:
        return await call_doubting(engine, command, body, key=key, seq=seq, within_us=within_us)
    except DoubtfulRefusal as refusal:
        raise refusal.error from None


async def call_doubting(
    engine: "Engine",
    command: str,
    body: Json,
    *,
    key: Optional[str] = None,
    seq: "Optional[Seq]" = None,
    within_us: Optional[int] = None,
) -> Reply:
    """The same; a refusal tells whether an earlier attempt may have taken effect (`DoubtfulRefusal`)."""
    began = boot_us()
    until = began + (engine.settings.timeout_us if within_us is None else within_us)
    pause, tries, doubt = _PAUSE_MIN_US, 0, False
    newest: Optional[Error] = None

    def given_up() -> Error:
        if doubt and command not in _QUESTIONS:
            waited = (boot_us() - began) / 1e6
            return Unknown(f"no outcome within {waited:.1f}s; it may have happened", key)
        return newest or engine.no_session()

    while True:
        tries += 1
        session = await engine.session(until)
        if session is None:
            raise given_up()
        request = _request(command, body, key, seq, tries)
        request["deadline_ms"] = max(min(until - boot_us(), _MEMBER_US) // 1000, 1)
        asked = session.ask(request)
        if asked is None:
            if boot_us() >= until:
                raise given_up()
            await engine.loop.sleep(_PAUSE_MIN_US / 1e6)
            continue
        after = 0
        kind, said = await _next(engine, session, asked, until)
        if kind == ANSWER and "error" in said:
            meaning = meaning_of(said["error"])
            if meaning.what == NO:
                engine.earn()
                assert isinstance(meaning.error, Refused)
                raise DoubtfulRefusal(meaning.error, doubt)
            if meaning.what == AGAIN:
                after, newest = meaning.after_us, meaning.error
            else:
                doubt = True
        elif kind == ANSWER:
            engine.earn()
            return Reply(said, int(said.get("revision") or 0), doubt)
        else:
            doubt = True
        # Every request here may be sent again: the cluster recognises it, or it is harmless to repeat. The first retry is
        # free, because a change of leader needs it. Further ones draw on the budget.
        wait = max(engine.jittered(pause), after)
        if boot_us() + wait >= until or (tries > 1 and not engine.spend()):
            raise given_up()
        await engine.loop.sleep_until(boot_us() + wait)
        pause = min(pause * 2, _PAUSE_MAX_US)


async def _next(engine: "Engine", session: Session, asked: Asked, until: int) -> Tuple[str, Json]:
    try:
        if not await engine.loop.wait(until, asked.ready()):
            return GONE, {}
        return asked.take()
    finally:
        asked.close()


def _request(command: str, body: Json, key: Optional[str], seq: "Optional[Seq]", tries: int) -> Json:
    request: Json = {command: body}
    forget_id = _plant.retry_without_id and tries > 1
    if key is not None:
        request["idempotency_key"] = request_id() if forget_id else key
    elif seq is not None and not forget_id:
        request.update(seq.identity())
    return request


def unavailable(tried: Dict[str, str]) -> Unavailable:
    """The error of a request that no member took, with what became of each address."""
    if not tried:
        return Unavailable()
    outcomes = ", ".join(f"{address} {outcome}" for address, outcome in tried.items())
    return Unavailable(f"no member took the request; nothing happened ({outcomes})")

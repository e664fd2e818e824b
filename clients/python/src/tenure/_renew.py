"""Renews all leases of a client with few messages.

When one lease is due, the client renews every lease that will be due soon with the same command. The first attempt goes to
the leader. While it is unanswered, further attempts go to the other member and to the leader in turn, each independently.
"""

import heapq
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

from . import _loss, _requests
from ._clock import boot_us
from ._connections import Bell
from ._held import HeldLease
from ._loss import Loss
from ._session import ANSWER, Session
from .errors import Error, Refused

if TYPE_CHECKING:
    from ._engine import Engine

# The most leases in one command.
_RENEW_MAX = 4_096

Part = Tuple[HeldLease, int]


class Renewals:
    """Watches over the leases of a client: renews them, and notices when they are lost."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._bell = Bell()
        # When to look at each lease, the earliest first. An entry counts only if it is the lease's newest.
        self._due: List[Tuple[int, str]] = []
        self._when: Dict[str, int] = {}
        self._turn = 0

    def add(self, held: HeldLease) -> None:
        """Looks after a lease from now on."""
        self._schedule(held)
        self._bell.ring()

    def remove(self, held: HeldLease) -> None:
        """Does not look after a lease any more."""
        self._when.pop(held.id, None)

    async def run(self) -> None:
        """Runs until the client is gone."""
        while not self._engine.is_stopped:
            bell = self._bell.next()
            next_us = self._beat()
            await self._engine.loop.wait(next_us, bell, self._engine.stopped)

    def _schedule(self, held: HeldLease) -> None:
        if self._engine.leases.get(held.id) is not held:
            return
        due = held.state.due
        if self._when.get(held.id) != due:
            self._when[held.id] = due
            heapq.heappush(self._due, (due, held.id))

    def _pop_due(self, now: int) -> List[HeldLease]:
        found = []
        while self._due and self._due[0][0] <= now:
            due, lease = heapq.heappop(self._due)
            if self._when.get(lease) == due:
                del self._when[lease]
                held = self._engine.leases.get(lease)
                if held is not None:
                    found.append(held)
        return found

    def _beat(self) -> Optional[int]:
        """Sends the renewals that are due, and returns when to look again."""
        polled = self._pop_due(boot_us())
        renew = False
        for held in polled:
            renew = held.update(lambda state, now: state.poll(now)) or renew
        if renew:
            self._send()
        for held in polled:
            if held.state.loss is None:
                self._schedule(held)
        # Renewed leases have new times; those of before are skipped when they come up.
        return self._due[0][0] if self._due else None

    def _send(self) -> None:
        leases = list(self._engine.leases.values())
        again = any(held.state.is_retrying() for held in leases)
        self._turn = self._turn + 1 if again else 0
        sessions = self._engine.connections.alive()
        session = sessions[self._turn % len(sessions)] if sessions else None
        parts: List[Part] = []
        for held in leases:
            # The clock is read before anything is sent: the renewed lease counts from here.
            number = held.update(lambda state, now: state.renewing(now) if state.is_soon(now) else 0)
            if number:
                parts.append((held, number))
                self._schedule(held)
        for at in range(0, len(parts), _RENEW_MAX):
            some = parts[at : at + _RENEW_MAX]
            if session is None:
                _failed(some)
            else:
                self._engine.loop.spawn(self._one(session, some))

    async def _one(self, session: Session, parts: List[Part]) -> None:
        """Sends one renewal to one member."""
        window = min(held.state.timing.window_us for held, _ in parts)
        request = {"renew": {"leases": [held.id for held, _ in parts]}, "deadline_ms": max(window // 1000, 1)}
        asked = session.ask(request)
        if asked is None:
            _failed(parts)
            return
        # Later attempts run independently. This one can still prove something until its window is over.
        answered = await self._engine.loop.wait(boot_us() + window, asked.ready())
        kind, said = asked.take() if answered else ("", {})
        asked.close()
        renewed = said.get("renewed") if kind == ANSWER else None
        if renewed is None or len(renewed) != len(parts):
            if not answered:
                session.suspect()
            _failed(parts)
            return
        for (held, number), it in zip(parts, renewed):
            ttl, changed = int(it["ttl_ms"]) * 1000, int(it["changed"])
            read_holdings = held.update(
                lambda state, now, number=number, ttl=ttl, changed=changed: state.renewed(  # type: ignore[misc]
                    number, ttl, changed, now
                )
            )
            if read_holdings:
                self._engine.loop.spawn(self._read_holdings(held))
            if held.state.loss is None:
                self._schedule(held)
        self._bell.ring()

    async def _read_holdings(self, held: HeldLease) -> None:
        """Reads what a lease holds, because it lost something that the client may not have been told of."""
        window = held.state.timing.window_us
        try:
            reply = await _requests.call(self._engine, "get_lease", {"name": held.id}, within_us=window)
        except Refused as error:
            if error.reason == "LEASE_NOT_FOUND":
                held.update(lambda state, now: state.ended(Loss(_loss.GONE), now))
            return
        except Error:
            # The next acknowledgement triggers another read.
            return
        shown = reply.answer.get("lease", {}).get("lease")
        if shown is None:
            held.update(lambda state, now: state.ended(Loss(_loss.GONE), now))
            return
        holds = [int(it["token"]) for it in shown["holds"]]
        revision, changed = int(shown.get("header", {}).get("revision") or reply.revision), int(shown["changed"])
        held.update(lambda state, now: state.holdings(revision, changed, holds, now))
        if held.state.loss is None:
            self._schedule(held)
        self._bell.ring()


def _failed(parts: List[Part]) -> None:
    for held, number in parts:
        held.update(lambda state, now, number=number: state.not_renewed(number))  # type: ignore[misc]

"""Manages the client's connections: one session with the leader, one with another member on standby.

The first session follows the leader when it changes. The second is with another member, and stays open for renewals and for
the moment the first ends.
"""

import random
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

from ._clock import boot_us
from ._loop import Future
from ._session import DialError, Session
from .errors import Refused

if TYPE_CHECKING:
    from ._engine import Engine

# The most time to connect and receive the welcome.
_DIAL_US = 2_000_000
_PAUSE_MIN_US = 20_000
_PAUSE_MAX_US = 1_000_000
# How long the client does not retry a leader that it could not reach.
_SHUN_US = 500_000
_KNOWN_MAX = 64


class Bell:
    """Wakes every coroutine that waits for it, each time it rings."""

    def __init__(self) -> None:
        self._future: Future[None] = Future()

    def next(self) -> Future[None]:
        """Is done when it rings next."""
        return self._future

    def ring(self) -> None:
        rung, self._future = self._future, Future()
        rung.set(None)


class Connections:
    """The current sessions, and the coroutine that keeps them."""

    def __init__(self, engine: "Engine", addresses: List[str]) -> None:
        self._engine = engine
        self._known = list(addresses)
        self.first: Optional[Session] = None
        self.second: Optional[Session] = None
        self.changed = Bell()
        self.tried: Dict[str, str] = {}
        """The outcome of the last attempt at each address."""
        self.denied: Optional[Refused] = None
        """Reason and message, if the last round of attempts met a refusal of the credentials and opened no session."""
        self.failed_rounds = 0
        """How many rounds of attempts connected to no member."""
        self._was_connected = False
        self._turn = random.randrange(64)

    def now(self) -> Optional[Session]:
        """The session to send requests on, if there is one."""
        for session in (self.first, self.second):
            if session is not None and not session.is_over:
                return session
        return None

    def alive(self) -> List[Session]:
        """Both sessions, as far as they are open."""
        return [it for it in (self.first, self.second) if it is not None and not it.is_over]

    async def run(self) -> None:
        """Runs until the client is gone."""
        pause = _PAUSE_MIN_US
        while not self._engine.is_stopped:
            settled = True
            self._tidy()
            if self.first is None:
                settled = await self._dial_any()
            if self.first is not None:
                settled = await self._follow()
            # Open the standby session even if the leader cannot be reached.
            if self.first is not None and self.second is None and len(self._known) > 1:
                settled = await self._dial_second() and settled
            self.changed.ring()
            if settled:
                pause = _PAUSE_MIN_US
            await self._wait(None if settled else self._engine.jittered(pause))
            pause = min(pause * 2, _PAUSE_MAX_US)
        self.close()

    def close(self) -> None:
        """Ends both sessions."""
        for session in self.alive():
            session.close()

    def _tidy(self) -> None:
        alive = self.alive()
        self.first = alive[0] if alive else None
        self.second = alive[1] if len(alive) > 1 else None
        self.changed.ring()

    async def _dial_any(self) -> bool:
        denied: Optional[Refused] = None
        for _ in range(len(self._known)):
            self._turn += 1
            address = self._known[self._turn % len(self._known)]
            session, problem = await self._dial(address)
            if session is not None:
                self.first, self.denied = session, None
                if not self._was_connected and self.failed_rounds > 0:
                    self._engine.info("connected again to %s", address)
                self._was_connected = True
                self.changed.ring()
                return True
            if problem is not None and problem.denied is not None:
                denied = problem.denied
        if denied is not None:
            self._engine.credentials_refused()
        self.denied = denied
        self.failed_rounds += 1
        if self._was_connected:
            self._was_connected = False
            outcomes = ", ".join(f"{address} {outcome}" for address, outcome in self.tried.items())
            self._engine.warn("no member can be reached; trying again (%s)", outcomes)
        self.changed.ring()
        return False

    async def _dial_second(self) -> bool:
        first = self.first
        if first is None:
            return False
        others = [address for address in self._known if address != first.address]
        for _ in range(len(others)):
            self._turn += 1
            address = others[self._turn % len(others)]
            session, _problem = await self._dial(address)
            if session is None:
                continue
            if session.member == first.member:
                # The same member under another address is no standby.
                session.close()
                self._known.remove(address)
                continue
            self.second = session
            return True
        return len(self._known) < 2

    async def _follow(self) -> bool:
        """Makes the session with the leader the first one, as far as the leader is known."""
        first = self.first
        leader = None if first is None else first.elsewhere()
        if first is None or leader is None:
            return True
        member, address = leader
        session = self.second if self.second is not None and self.second.member == member else None
        if session is None:
            # A follower forwards requests, so nothing has to wait until this succeeds.
            session, _problem = await self._dial(address)
            if session is None:
                return False
            if self.second is not None:
                self.second.close()
        if address not in self._known and len(self._known) < _KNOWN_MAX:
            self._known.append(address)
        self.first, self.second = session, first
        return True

    async def _dial(self, address: str) -> Tuple[Optional[Session], Optional[DialError]]:
        try:
            session = await Session.open(self._engine, address, boot_us() + _DIAL_US)
        except DialError as error:
            self.tried[address] = str(error)
            return None, error
        self.tried[address] = "connected"
        return session, None

    async def _wait(self, pause_us: Optional[int]) -> None:
        """Waits until a session ends, the leader moves, or the pause is over."""
        first = self.first
        futures = [it.ended for it in (first, self.second) if it is not None]
        futures.append(self._engine.stopped)
        if first is not None and first.elsewhere() is not None:
            # The leader is elsewhere and cannot be reached: retry it only after a while.
            pause_us = max(pause_us or 0, _SHUN_US)
        else:
            futures.append(self._engine.leader_moved.next())
        await self._engine.loop.wait(None if pause_us is None else boot_us() + pause_us, *futures)

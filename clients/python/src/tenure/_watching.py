"""Follows changes and elections over server-sent events: each change once and in order, across reconnects."""

from typing import TYPE_CHECKING, Any, Dict, Optional

from . import _http
from ._ask import check_name
from ._clock import boot_us
from ._http import Broken
from ._loop import Future
from ._requests import AGAIN, DOUBT, Meaning, meaning_of
from .errors import Closed, Compacted
from .values import Batch, Leader, batch, leader

if TYPE_CHECKING:
    from ._engine import Engine

# The pause between attempts to resume grows from the first value to the second.
_PAUSE_MIN_US = 20_000
_PAUSE_MAX_US = 1_000_000
# The member sends its progress every 10 s: one that sends nothing for longer is gone.
_SILENT_US = 15_000_000
_START_US = 5_000_000


class EventFeed:
    """A stream of server-sent events that is opened again when it breaks."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._response: Optional[_http.Response] = None
        self._ended: Future[None] = Future()
        self.is_over = False
        engine.streams.add(self)

    def path(self) -> str:
        """What to ask for, when the stream is opened."""
        raise NotImplementedError

    def end(self) -> None:
        """Ends the stream. A caller that waits for an event is told."""
        self.is_over = True
        if self._response is not None:
            self._response.close()
        self._ended.set(None)

    async def next_event(self) -> Optional[_http.Event]:
        """Returns the next event; `None` after the stream was ended. Raises `Unavailable` if no member can be reached."""
        pause, until = _PAUSE_MIN_US, boot_us() + self._engine.settings.timeout_us
        while not self.is_over:
            after = 0
            if self._engine.is_stopped or self._engine.closing.is_done:
                self.end()
                return None
            try:
                if self._response is None:
                    await self._open()
                return await self._read()
            except Broken as broken:
                after = broken.after_us
                if self._response is not None:
                    self._response.close()
                    self._response = None
                    until = boot_us() + self._engine.settings.timeout_us
            wait = max(self._engine.jittered(pause), after)
            if boot_us() + wait >= until:
                raise self._engine.no_session()
            await self._engine.loop.wait(boot_us() + wait, self._ended)
            pause = min(pause * 2, _PAUSE_MAX_US)
        return None

    async def start(self) -> None:
        """Opens the stream, so that nothing that happens from now on is missed."""
        pause, until = _PAUSE_MIN_US, boot_us() + self._engine.settings.timeout_us
        while self._response is None:
            if self._engine.closing.is_done:
                raise Closed
            try:
                await self._open()
            except Broken as broken:
                wait = max(self._engine.jittered(pause), broken.after_us)
                if boot_us() + wait >= until:
                    raise self._engine.no_session() from broken
                await self._engine.loop.sleep_until(boot_us() + wait)
                pause = min(pause * 2, _PAUSE_MAX_US)

    async def _open(self) -> None:
        problem, after = Broken("no address"), 0
        for address in _http.addresses(self._engine):
            limit = boot_us() + _START_US
            try:
                response = await _http.send(self._engine, address, "GET", self.path(), None, limit)
                if response.status == 200:
                    self._response = response
                    return
                refusal = await _http.refusal_of(response, limit)
            except Broken as broken:
                problem = broken
                continue
            self._refused(refusal.error, refusal.meaning)
            problem = Broken(str(refusal.error.get("message")))
            after = max(after, refusal.meaning.after_us)
        problem.after_us = after
        raise problem

    def refused(self, error: Dict[str, Any]) -> None:
        """A member ended the stream: raises if another try does not help."""
        self._refused(error, meaning_of(error))

    def _refused(self, error: Dict[str, Any], meaning: Meaning) -> None:
        if error.get("reason") == "COMPACTED":
            self.is_over = True
            raise Compacted(int(error.get("revision") or 0))
        if meaning.what not in (AGAIN, DOUBT):
            self.is_over = True
            assert meaning.error is not None
            raise meaning.error

    async def _read(self) -> Optional[_http.Event]:
        assert self._response is not None
        reading = self._engine.loop.spawn(self._response.event(boot_us() + _SILENT_US))
        try:
            await self._engine.loop.wait(None, reading, self._ended)
        finally:
            if not reading.is_done:
                reading.cancel()
        return reading.result() if reading.is_done else None


class WatchFeed(EventFeed):
    """The changes of locks and keys."""

    def __init__(self, engine: "Engine", name: str, prefix: bool, from_revision: Optional[int], previous: bool) -> None:
        super().__init__(engine)
        self._name = name if prefix else check_name(name)
        self._prefix = prefix
        self._next = from_revision
        self._previous = previous

    def path(self) -> str:
        return _http.target(
            "/v1/watch",
            {
                ("prefix" if self._prefix else "name"): self._name or None,
                "from": None if self._next is None else str(self._next),
                "previous": "true" if self._previous else None,
            },
        )

    async def start(self) -> None:
        """Opens the stream, and waits until it says from where on it tells everything."""
        while self._next is None or self._response is None:
            await super().start()
            try:
                event = await self._read()
            except Broken:
                self._response = None
                continue
            if event is not None and event.name == "progress" and self._next is None:
                # A watch from now on begins behind the revision of the first word.
                self._next = int(event.data["revision"]) + 1
            elif event is not None:
                self._early = event
                return
            else:
                return

    _early: Optional[_http.Event] = None

    async def next(self) -> Optional[Batch]:
        """Returns the changes of the next revision; `None` at the end."""
        while True:
            event, self._early = self._early, None
            event = event or await self.next_event()
            if event is None:
                return None
            batch = self._take(event)
            if batch is not None:
                return batch

    def _take(self, event: _http.Event) -> Optional[Batch]:
        if event.name == "compacted":
            self.end()
            raise Compacted(int(event.data["floor"]))
        if event.name in ("slow_consumer", "closing"):
            if self._response is not None:
                self._response.close()
                self._response = None
            if event.name == "slow_consumer":
                self._next = int(event.data["resume"])
            else:
                self.refused(event.data.get("error", event.data))
            return None
        revision = int(event.data["revision"])
        # Revisions that were already returned are skipped, whatever a member sends.
        if self._next is not None and revision < self._next:
            return None
        self._next = revision + 1
        if event.name != "change" or not event.data["events"]:
            return None
        return batch(event.data)


class LeaderFeed(EventFeed):
    """Who leads an election: the current leader, then each change that can still be learned of."""

    def __init__(self, engine: "Engine", election: str) -> None:
        super().__init__(engine)
        self._election = check_name(election)
        self._last: Optional[Leader] = None
        self._has_told = False

    def path(self) -> str:
        return _http.target(f"/v1/elections/{self._election}", {"view": "observe"})

    async def next(self) -> "tuple[bool, Optional[Leader]]":
        """Returns whether there is a further change, and who leads: `None` if no client does."""
        while True:
            event = await self.next_event()
            if event is None:
                return False, None
            if event.name == "closing":
                if self._response is not None:
                    self._response.close()
                    self._response = None
                self.refused(event.data.get("error", event.data))
                continue
            if event.name not in ("leader", "vacant"):
                continue
            shown = event.data.get("leader")
            now = None if shown is None else leader(shown)
            # After a reconnect, the first event may repeat what was already told.
            if not self._has_told or now != self._last:
                self._has_told, self._last = True, now
                return True, now

"""Runs one session with one member over a WebSocket: opens it, passes messages, and detects a silent peer.

A request gets its place under its id before it is sent, and keeps it until the caller closes it. The answer and every later
notice about the request arrive there in the order in which the member sent them.
"""

import json
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Dict, List, Optional, Tuple

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

from ._clock import boot_us
from ._loop import Future, Timer
from ._stream import ConnectError, Stream, connect
from .errors import Refused

if TYPE_CHECKING:
    from ._engine import Engine

Json = Dict[str, Any]

# After so long without a message the client sends a ping; a peer that sends nothing for so long after that is gone.
_QUIET_US = 2_000_000
# A member that owes an answer and sends nothing at all for so long counts as gone.
TRY_US = 3_000_000
_LOOK_US = 500_000
_MESSAGE_BYTES_MAX = 16 * 1024 * 1024
# From this size on nothing more is added to a message.
_TOGETHER_BYTES = 256 * 1024
# More unsent requests than this mean that the other end does not read.
_OUTGOING_MAX = 16 * 1024
# What a message adds to its requests.
_ENVELOPE_BYTES = 64
_DENYING = frozenset(("UNAUTHENTICATED", "PERMISSION_DENIED", "FORBIDDEN"))

# The library would log every message and header, credentials too, on the thread that renews leases.
_SILENT = logging.Logger("tenure.websocket", logging.CRITICAL + 1)

ANSWER = "answer"
GRANTED = "granted"
WAIT_ENDED = "wait_ended"
GONE = "gone"
"""The session ended."""


class DialError(Exception):
    """Why no session could be opened."""

    def __init__(self, word: str, silent: bool = False, denied: Optional[Refused] = None) -> None:
        super().__init__(word)
        self.silent = silent
        """Whether the peer did not answer in time, so that it may still answer the next attempt."""
        self.denied = denied
        """The refusal of the credentials, if that is why: no other attempt will succeed with them."""

    @classmethod
    def of(cls, error: Json) -> "DialError":
        """The error of a member that refuses the session."""
        refused = Refused.by(error)
        return cls(str(refused) or refused.reason, denied=refused if refused.reason in _DENYING else None)


class Asked:
    """A request that was sent or queued, and its responses."""

    __slots__ = ("_responses", "_session", "_waiter", "asked_us", "id", "is_answered")

    def __init__(self, session: "Session", number: int) -> None:
        self._session = session
        self.id = number
        self.asked_us = boot_us()
        self.is_answered = False
        self._responses: Deque[Tuple[str, Json]] = deque()
        self._waiter: Optional[Future[None]] = None

    def put(self, kind: str, said: Json) -> None:
        """Delivers a response."""
        self.is_answered = True
        self._responses.append((kind, said))
        if self._waiter is not None:
            self._waiter.set(None)
            self._waiter = None

    def ready(self) -> Future[None]:
        """Is done when there is a response to take."""
        future: Future[None] = Future()
        if self._responses:
            future.set(None)
        else:
            self._waiter = future
        return future

    def take(self) -> Tuple[str, Json]:
        """Takes the next response, which must be there."""
        return self._responses.popleft()

    def close(self) -> None:
        """The caller is no longer interested."""
        self._session.forget(self)


class Session:
    """One session with one member."""

    def __init__(self, engine: "Engine", address: str, stream: Stream, protocol: ClientProtocol) -> None:
        self._engine = engine
        self.address = address
        self._stream = stream
        self._protocol = protocol
        self.member = ""
        self.leader: Tuple[str, str] = ("", "")
        """Id and address of the leader, according to the member; empty if it knows none."""
        self.is_over = False
        self.ended: Future[None] = Future()
        self._greeted: Future[Json] = Future()
        self._pending: Dict[int, Asked] = {}
        self._in_flight = 0
        self._outgoing: Deque[Tuple[Asked, Json]] = deque()
        self._newest = 0
        self._text: List[bytes] = []
        self._heard_us = boot_us()
        self._pinged_us: Optional[int] = None
        self._in_flight_max = 1
        self._together_max = 1
        self._message_bytes_max = _MESSAGE_BYTES_MAX
        self._look: Optional[Timer] = None

    @classmethod
    async def open(cls, engine: "Engine", address: str, until_us: int) -> "Session":
        """Opens a session with the member at an address. Raises `DialError`."""
        settings = engine.settings
        # Addresses come from other members too: each is checked before anything is sent there.
        unsent = settings.credentials.may_not_go_to(address, settings.is_tls)
        if unsent is not None:
            raise DialError(unsent, denied=Refused("UNAUTHENTICATED", unsent))
        try:
            authorization = settings.credentials.authorization()
        except OSError as error:
            raise DialError(str(error), denied=Refused("UNAUTHENTICATED", str(error))) from None
        try:
            stream = await connect(engine.loop, address, settings.tls_context(), until_us)
        except ConnectError as error:
            raise DialError(str(error), silent=error.silent) from None
        scheme = "wss" if settings.is_tls else "ws"
        uri = parse_uri(f"{scheme}://{address}/v1/ws")
        protocol = ClientProtocol(uri, max_size=_MESSAGE_BYTES_MAX, logger=_SILENT)
        session = cls(engine, address, stream, protocol)
        request = protocol.connect()
        if authorization is not None:
            request.headers["Authorization"] = authorization
        protocol.send_request(request)
        stream.deliver_to(session._received, session.close)
        session._write()
        try:
            if not await engine.loop.wait(until_us, session._greeted):
                raise DialError("timed out", silent=True)
            session._welcomed(session._greeted.result())
        except BaseException:
            session.close()
            raise
        return session

    def ask(self, request: Json) -> Optional[Asked]:
        """Queues a request for sending and assigns its id. Returns `None` if the session takes none."""
        if self.is_over or len(self._outgoing) >= _OUTGOING_MAX:
            return None
        self._newest += 1
        asked = Asked(self, self._newest)
        request["id"] = asked.id
        if self._engine.loop.span is not None:
            request["traceparent"] = self._engine.loop.span
        self._pending[asked.id] = asked
        self._outgoing.append((asked, request))
        return asked

    def forget(self, asked: Asked) -> None:
        """Drops the place of a request."""
        if self._pending.pop(asked.id, None) is not None and not asked.is_answered:
            # The member still sends the answer; no caller waits for it.
            self._pending[asked.id] = _Abandoned(self, asked.id)

    def flush(self) -> None:
        """Sends what was queued, as many requests per message as the member takes."""
        while self._outgoing and self._in_flight < self._in_flight_max and not self.is_over:
            requests: List[str] = []
            size = 0
            room = min(self._together_max, self._in_flight_max - self._in_flight)
            limit = min(_TOGETHER_BYTES, self._message_bytes_max // 2)
            while self._outgoing and len(requests) < room and size < limit:
                asked, request = self._outgoing.popleft()
                if self._pending.get(asked.id) is not asked:
                    # Abandoned before it was sent.
                    self._pending.pop(asked.id, None)
                    continue
                text = json.dumps(request, separators=(",", ":"))
                if len(text) > self._message_bytes_max - _ENVELOPE_BYTES:
                    # The member would end the connection, and with it all other requests.
                    asked.put(ANSWER, {"id": asked.id, "error": _too_large(len(text), self._message_bytes_max)})
                    continue
                if requests and size + len(text) > self._message_bytes_max - _ENVELOPE_BYTES - len(requests):
                    self._outgoing.appendleft((asked, request))
                    break
                requests.append(text)
                size += len(text)
            if requests:
                self._in_flight += len(requests)
                self._protocol.send_text(('{"requests":[' + ",".join(requests) + "]}").encode())
                self._write()

    def suspect(self) -> None:
        """Closes the session if the member, which did not answer one request in time, sends nothing else either."""
        if boot_us() - self._heard_us >= TRY_US:
            self.close()

    def close(self) -> None:
        """Ends the session, and tells every pending request."""
        if self.is_over:
            return
        self.is_over = True
        if self._look is not None:
            self._look.cancel()
        self._stream.close()
        self._greeted.fail(DialError("ended the connection"))
        pending, self._pending = list(self._pending.values()), {}
        for asked in pending:
            asked.put(GONE, {})
        self._outgoing.clear()
        self.ended.set(None)

    def elsewhere(self) -> Optional[Tuple[str, str]]:
        """Returns id and address of the leader, if it is known and is not the member at the other end."""
        member, address = self.leader
        return self.leader if member and member != self.member and address and address != "-" else None

    def _welcomed(self, welcome: Json) -> None:
        header = welcome["header"]
        self.member = str(header["member_id"])
        self._in_flight_max = max(int(welcome["in_flight_max"]), 1)
        self._together_max = max(int(welcome["requests_per_message_max"]), 1)
        self._message_bytes_max = int(welcome["message_bytes_max"])
        self._hear_of_leader(welcome.get("leader"))
        strange = self._engine.recognise((str(header["cluster_id"]), int(welcome["epoch"]), str(welcome["incarnation"])))
        if strange is not None:
            raise DialError(strange)
        self._engine.loop.soon(self._look_around)

    def _look_around(self) -> None:
        if self.is_over:
            return
        now = boot_us()
        if self._pinged_us is not None and self._heard_us > self._pinged_us:
            self._pinged_us = None
        if self._pinged_us is not None and now - self._pinged_us >= _QUIET_US:
            self.close()
            return
        if now - self._heard_us >= TRY_US and any(
            not it.is_answered and now - it.asked_us >= TRY_US for it in self._pending.values()
        ):
            self.close()
            return
        if self._pinged_us is None and now - self._heard_us >= _QUIET_US:
            self._pinged_us = now
            self._protocol.send_ping(b"")
            self._write()
        self._look = self._engine.loop.at(now + _LOOK_US, self._look_around)

    def _received(self, data: bytes) -> None:
        self._heard_us = boot_us()
        try:
            self._take(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # The member says something else than the protocol has. What was asked may have happened.
            self._engine.warn("%s says what cannot be understood: %r", self.address, error)
            self._greeted.fail(DialError("does not speak our protocol"))
            self.close()

    def _take(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._upgraded(event)
            elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.CONT):
                self._text.append(bytes(event.data))
                if event.fin:
                    text, self._text = b"".join(self._text), []
                    self._message(json.loads(text))
        # Pongs, and the close frame that answers one.
        self._write()
        if self._protocol.close_expected():
            self.close()

    def _upgraded(self, response: Response) -> None:
        problem = self._protocol.handshake_exc
        if problem is None:
            self._protocol.send_text(json.dumps(self._engine.hello(), separators=(",", ":")).encode())
            return
        error: Json = {}
        if isinstance(problem, InvalidStatus):
            try:
                error = json.loads(response.body or b"{}").get("error", {})
            except (ValueError, AttributeError):
                error = {}
        self._greeted.fail(DialError.of(error) if error else DialError(str(problem)))
        self.close()

    def _message(self, message: Json) -> None:
        if "leader" in message:
            self._hear_of_leader(message["leader"])
        for answer in message.get("answers", ()):
            asked = self._pending.get(answer["id"])
            if asked is not None:
                if not asked.is_answered:
                    self._in_flight -= 1
                if "revision" not in answer and "revision" in message:
                    answer["revision"] = message["revision"]
                asked.put(ANSWER, answer)
                if isinstance(asked, _Abandoned):
                    del self._pending[asked.id]
        for granted in message.get("grants", ()):
            self._tell(granted, GRANTED)
        for ended in message.get("waits_ended", ()):
            self._tell(ended, WAIT_ENDED)
        ended_leases = message.get("leases_ended", ())
        for lost in message.get("losses", ()):
            self._engine.lock_lost(lost, ended_leases)
        for ended in ended_leases:
            self._engine.lease_ended(ended)
        closing = message.get("closing")
        if closing is not None:
            self._greeted.fail(DialError.of(closing))
            self._engine.was_closed(self, closing)
            self.close()
        elif "welcome" in message:
            self._greeted.set(message["welcome"])

    def _tell(self, said: Json, kind: str) -> None:
        asked = self._pending.get(said.get("id", 0))
        if asked is not None:
            asked.put(kind, said)

    def _hear_of_leader(self, leader: Optional[Json]) -> None:
        self.leader = ("", "") if not leader else (str(leader.get("member_id", "")), str(leader.get("address", "")))
        self._engine.leader_moved.ring()

    def _write(self) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data:
            self._stream.send(data)


def _too_large(size: int, limit: int) -> Json:
    message = f"the request has {size} bytes, and a message at most {limit}"
    return {"reason": "TOO_LARGE", "message": message, "effect": "none", "asked": size, "bound": limit}


class _Abandoned(Asked):
    """The place of a request that no caller waits for, until its answer has come."""

    __slots__ = ()

    def put(self, kind: str, said: Json) -> None:
        self.is_answered = True

"""Speaks HTTP/1.1 with a member where there is no session form: lists, history, tickets, and streams of events."""

import json
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional
from urllib.parse import quote, urlencode

from ._clock import boot_us
from ._loop import Future
from ._requests import AGAIN, NO, Meaning, meaning_of, strange
from ._stream import ConnectError, Stream, connect
from .errors import Error, Refused

if TYPE_CHECKING:
    from ._engine import Engine

Json = Dict[str, Any]

# The connection is not read further while so many bytes wait to be taken.
_BUFFER_MAX = 1024 * 1024
_HEAD_MAX = 64 * 1024
# The pause between two rounds over the members grows from the first value to the second.
_PAUSE_MIN_US = 20_000
_PAUSE_MAX_US = 1_000_000
# How long one member may take to answer.
_ATTEMPT_US = 3_000_000
# What proxies and load balancers answer until they reach a member again.
_PASSING_STATUS = (429, 502, 503, 504)


class Broken(Exception):
    """The connection failed or ended: whatever was asked for may be tried again at another member."""

    after_us = 0
    """How long to wait before that, at least: a member asked for it."""


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    id: str
    data: Json


def target(path: str, query: Optional[Dict[str, Optional[str]]] = None) -> str:
    """A path with its parameters. Slashes in names stay."""
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return quote(path, safe="/") + ("?" + urlencode(given) if given else "")


class _Reader:
    """Takes bytes from a stream in the order in which they arrive."""

    def __init__(self, engine: "Engine", stream: Stream) -> None:
        self._engine = engine
        self._stream = stream
        self._buffer = bytearray()
        self._is_ended = False
        self._more: Future[None] = Future()
        stream.deliver_to(self._received, self._end)

    def _received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= _BUFFER_MAX:
            self._stream.pause()
        self._ring()

    def _end(self) -> None:
        self._is_ended = True
        self._ring()

    def _ring(self) -> None:
        more, self._more = self._more, Future()
        more.set(None)

    async def _fill(self, until_us: Optional[int]) -> None:
        if self._is_ended:
            raise Broken("the connection ended")
        if not await self._engine.loop.wait(until_us, self._more):
            raise Broken("timed out")

    async def line(self, until_us: Optional[int]) -> bytes:
        """Takes a line, without its end."""
        while True:
            at = self._buffer.find(b"\n")
            if at >= 0:
                return self._take(at + 1).rstrip(b"\r\n")
            if len(self._buffer) > _BUFFER_MAX:
                raise Broken("the line is too long")
            await self._fill(until_us)

    async def exactly(self, size: int, until_us: Optional[int]) -> bytes:
        """Takes so many bytes."""
        while len(self._buffer) < size:
            await self._fill(until_us)
        return self._take(size)

    async def rest(self, until_us: Optional[int]) -> bytes:
        """Takes everything up to the end of the connection."""
        while not self._is_ended:
            await self._fill(until_us)
        return self._take(len(self._buffer))

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        if len(self._buffer) < _BUFFER_MAX:
            self._stream.resume()
        return taken


class Response:
    """A response whose body has not been read."""

    def __init__(self, reader: _Reader, stream: Stream, status: int, headers: Dict[str, str]) -> None:
        self._reader = reader
        self._stream = stream
        self.status = status
        self._headers = headers
        self._is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._lines = bytearray()

    def header(self, name: str) -> str:
        """A header by its name in lower case; empty if there is none."""
        return self._headers.get(name, "")

    async def body(self, until_us: int) -> bytes:
        """Reads the whole body."""
        try:
            if self._is_chunked:
                parts: List[bytes] = []
                while True:
                    part = await self._chunk(until_us)
                    if not part:
                        return b"".join(parts)
                    parts.append(part)
            length = self._headers.get("content-length")
            if length is None:
                return await self._reader.rest(until_us)
            return await self._reader.exactly(int(length), until_us)
        finally:
            self.close()

    async def event(self, until_us: Optional[int]) -> Event:
        """Reads the next server-sent event."""
        name, number = "message", ""
        data: List[str] = []
        while True:
            line = await self._event_line(until_us)
            if not line:
                if data:
                    return Event(name, number, json.loads("\n".join(data)))
                continue
            field, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if field == "event":
                name = value
            elif field == "id":
                number = value
            elif field == "data":
                data.append(value)

    def close(self) -> None:
        """Ends the connection."""
        self._stream.close()

    async def _event_line(self, until_us: Optional[int]) -> str:
        if not self._is_chunked:
            return (await self._reader.line(until_us)).decode()
        while True:
            at = self._lines.find(b"\n")
            if at >= 0:
                line = bytes(self._lines[:at])
                del self._lines[: at + 1]
                return line.rstrip(b"\r").decode()
            part = await self._chunk(until_us)
            if not part:
                raise Broken("the stream ended")
            self._lines += part

    async def _chunk(self, until_us: Optional[int]) -> bytes:
        size = int((await self._reader.line(until_us)).split(b";")[0], 16)
        part = await self._reader.exactly(size, until_us)
        await self._reader.line(until_us)
        return part


async def send(engine: "Engine", address: str, method: str, path: str, body: Optional[Json], until_us: int) -> Response:
    """Sends one request on a connection of its own, and reads the head of the response."""
    settings = engine.settings
    unsent = settings.credentials.may_not_go_to(address, settings.is_tls)
    if unsent is not None:
        raise Refused("UNAUTHENTICATED", unsent)
    try:
        authorization = settings.credentials.authorization()
    except OSError as error:
        raise Refused("UNAUTHENTICATED", str(error)) from None
    try:
        stream = await connect(engine.loop, address, settings.tls_context(), until_us)
    except ConnectError as error:
        raise Broken(str(error)) from None
    try:
        content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {address}", "Accept: application/json, text/event-stream"]
        if authorization is not None:
            lines.append(f"Authorization: {authorization}")
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        stream.send("\r\n".join([*lines, "", ""]).encode() + content)
        reader = _Reader(engine, stream)
        status_line = (await reader.line(until_us)).split(b" ", 2)
        headers: Dict[str, str] = {}
        size = 0
        while True:
            line = await reader.line(until_us)
            if not line:
                break
            size += len(line)
            if size > _HEAD_MAX:
                raise Broken("the headers are too long")
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return Response(reader, stream, int(status_line[1]), headers)
    except (ValueError, IndexError):
        stream.close()
        raise Broken("the answer is not HTTP") from None
    except BaseException:
        stream.close()
        raise


class Refusal(NamedTuple):
    """Why a member, or what stands before it, does not answer a request that is harmless to repeat."""

    error: Json
    meaning: Meaning


async def refusal_of(response: Response, until_us: int) -> Refusal:
    """The error in a response that is not success, and whether another try may help."""
    text = await response.body(until_us)
    try:
        error = dict(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        error = {}
    asks_to_wait_us = _seconds(response.header("retry-after")) * 1_000_000
    if not error.get("reason"):
        error = {"reason": "STRANGE_ANSWER", "message": f"HTTP {response.status}", "effect": "unknown"}
        if response.status in _PASSING_STATUS:
            return Refusal(error, Meaning(AGAIN, asks_to_wait_us))
        return Refusal(error, Meaning(NO, 0, Refused.by(error)))
    meaning = meaning_of(error)
    if meaning.what != NO and not error.get("retry_after_ms"):
        meaning = meaning._replace(after_us=asks_to_wait_us)
    return Refusal(error, meaning)


def _seconds(header: str) -> int:
    """The seconds of a Retry-After. A date, which no member sends, is not read."""
    return int(header) if header.isascii() and header.isdigit() and len(header) < 10 else 0


def addresses(engine: "Engine") -> List[str]:
    """Where to try, in order: the members with a session, then all that were named."""
    found = [session.address for session in engine.connections.alive()]
    return found + [it for it in engine.settings.addresses if it not in found]


async def call(engine: "Engine", method: str, path: str, body: Optional[Json] = None) -> Json:
    """Asks one member after the other until one answers. For requests that are harmless to repeat."""
    until = boot_us() + engine.settings.timeout_us
    pause = _PAUSE_MIN_US
    # The newest refusal that says why members do not serve, and the newest problem of any kind.
    newest: Optional[Error] = None
    problem: Optional[Exception] = None
    while True:
        after = 0
        for address in addresses(engine):
            try:
                response = await send(engine, address, method, path, body, min(until, boot_us() + _ATTEMPT_US))
                if response.status < 300:
                    return _parsed(await response.body(until))
                refusal = await refusal_of(response, until)
            except Broken as broken:
                problem = broken
                continue
            if refusal.meaning.what == NO:
                assert refusal.meaning.error is not None
                raise refusal.meaning.error
            after = max(after, refusal.meaning.after_us)
            newest = refusal.meaning.error or newest
            problem = Refused.by(refusal.error)
        wait = max(engine.jittered(pause), after)
        if boot_us() + wait >= until:
            raise (newest or engine.no_session()) from problem
        await engine.loop.sleep_until(boot_us() + wait)
        pause = min(pause * 2, _PAUSE_MAX_US)


def _parsed(text: bytes) -> Json:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        raise strange() from None

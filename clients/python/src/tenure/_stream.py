"""Connects to a member, with or without TLS, and passes bytes in both directions without blocking the loop."""

import errno
import socket
import ssl
from typing import Any, Callable, List, Optional, Tuple

from ._loop import Future, Loop
from ._native import original

_CHUNK = 256 * 1024
_IN_PROGRESS = frozenset((errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN))


class ConnectError(Exception):
    """Why no connection could be made. `silent` if the peer did not answer in time."""

    def __init__(self, word: str, silent: bool = False) -> None:
        super().__init__(word)
        self.silent = silent


def split_address(address: str) -> Tuple[str, int]:
    """Splits `host:port`, where the host may be an IPv6 address in brackets."""
    host, _, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not port.isdigit():
        raise ConnectError("is no address")
    return host, int(port)


async def connect(loop: Loop, address: str, tls: Optional[ssl.SSLContext], until_us: int) -> "Stream":
    """Opens a connection. Raises `ConnectError`."""
    host, port = split_address(address)
    found = await _resolve(loop, host, port, until_us)
    problem = ConnectError("timed out", silent=True)
    for family, kind, proto, _, target in found:
        try:
            return await _connect_one(loop, (family, kind, proto), target, host, tls, until_us)
        except ConnectError as error:
            problem = error
    raise problem


async def _resolve(loop: Loop, host: str, port: int, until_us: int) -> List[Any]:
    lookup = original("socket", "getaddrinfo")
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        return list(lookup(host, port, type=socket.SOCK_STREAM, flags=flags))
    except OSError:
        pass
    # A name: the resolver may block, so it does that on another thread.
    found: Future[List[Any]] = loop.in_thread(lambda: list(lookup(host, port, type=socket.SOCK_STREAM)))
    if not await loop.wait(until_us, found):
        raise ConnectError("timed out", silent=True)
    try:
        return found.result()
    except OSError as error:
        raise ConnectError(str(error)) from None


async def _connect_one(
    loop: Loop, kind: Tuple[int, int, int], target: Any, host: str, tls: Optional[ssl.SSLContext], until_us: int
) -> "Stream":
    connection = original("socket", "socket")(*kind)
    connection.setblocking(False)
    stream = Stream(loop, connection)
    try:
        failed = connection.connect_ex(target)
        if failed in _IN_PROGRESS:
            writable: Future[None] = Future()
            loop.watch(stream.fd, True, lambda _: writable.set(None))
            if not await loop.wait(until_us, writable):
                raise ConnectError("timed out", silent=True)
            failed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            word = "refused" if failed == errno.ECONNREFUSED else errno.errorcode.get(failed, str(failed)).lower()
            raise ConnectError(word, silent=failed == errno.ETIMEDOUT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.open()
        if tls is not None:
            await stream.handshake(tls, host, until_us)
    except BaseException:
        stream.close()
        raise
    return stream


class Stream:
    """A connection. Bytes that arrive go to `on_data`; its end goes to `on_end`."""

    def __init__(self, loop: Loop, connection: Any) -> None:
        self._loop = loop
        self._socket = connection
        self.fd: int = connection.fileno()
        self._unsent = bytearray()
        self._tls: Optional[ssl.SSLObject] = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._shaken: Optional[Future[None]] = None
        self._early: List[bytes] = []
        self.is_closed = False
        self._is_paused = False
        self.on_data: Callable[[bytes], None] = self._early.append
        self.on_end: Callable[[], None] = lambda: None

    def open(self) -> None:
        """Begins to read."""
        self._loop.watch(self.fd, False, self._ready)

    async def handshake(self, context: ssl.SSLContext, host: str, until_us: int) -> None:
        """Starts TLS. The certificate must name the host."""
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._shaken = Future()
        self._shake()
        if not await self._loop.wait(until_us, self._shaken):
            raise ConnectError("timed out", silent=True)
        self._shaken.result()
        self._shaken = None

    def deliver_to(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Sets where bytes go, also those that have arrived already."""
        self.on_data, self.on_end = on_data, on_end
        early, self._early = self._early, []
        for data in early:
            on_data(data)

    def send(self, data: bytes) -> None:
        """Sends bytes, in order. What the socket does not take now is sent later."""
        if self.is_closed:
            return
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        self._send_raw(data)

    def pause(self) -> None:
        """Reads nothing for now; the sender has to wait."""
        if not self.is_closed and not self._is_paused:
            self._is_paused = True
            self._loop.unwatch(self.fd)

    def resume(self) -> None:
        """Reads on."""
        if not self.is_closed and self._is_paused:
            self._is_paused = False
            self._loop.watch(self.fd, bool(self._unsent), self._ready)

    def close(self) -> None:
        """Closes the connection."""
        if not self.is_closed:
            self.is_closed = True
            self._loop.unwatch(self.fd)
            self._socket.close()

    def _send_raw(self, data: bytes) -> None:
        if not self._unsent and data:
            try:
                data = data[self._socket.send(data) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                self._end()
                return
        if data:
            self._unsent += data
            self._loop.watch(self.fd, True, self._ready)

    def _ready(self, events: int) -> None:
        if events & 4 and self._unsent:
            self._flush()
        if events & ~4 and not self.is_closed:
            self._read()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end()
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.watch(self.fd, False, self._ready)

    def _read(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._end()
        elif self._tls is None:
            self.on_data(data)
        else:
            self._incoming.write(data)
            if self._shaken is not None:
                self._shake()
            if self._shaken is None or self._shaken.is_done:
                self._decrypt()

    def _shake(self) -> None:
        assert self._tls is not None and self._shaken is not None
        try:
            self._tls.do_handshake()
            self._shaken.set(None)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._shaken.fail(ConnectError(_tls_word(error)))
        self._send_raw(self._outgoing.read())

    def _decrypt(self) -> None:
        assert self._tls is not None
        while not self.is_closed:
            try:
                data = self._tls.read(_CHUNK)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:
                data = b""
            if not data:
                self._end()
                return
            self.on_data(data)
        self._send_raw(self._outgoing.read())

    def _end(self) -> None:
        if self._shaken is not None:
            self._shaken.fail(ConnectError("ended the handshake; perhaps it does not accept TLS"))
        if not self.is_closed:
            self.close()
            self.on_end()


def _tls_word(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if error.reason in ("WRONG_VERSION_NUMBER", "SSLV3_ALERT_HANDSHAKE_FAILURE", "TLS_ALERT_HANDSHAKE_FAILURE"):
        return "does not accept TLS"
    return str(error.reason or error)

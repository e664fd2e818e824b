"""Starts a member for the tests, and a proxy that can cut or freeze the network in between."""

import os
import select
import socket
import sys
import threading
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from tenure import Client, Error
from tenure.testing import DevServer

ROOT = Path(__file__).parents[1]


class Proxy:
    """Passes bytes between a client and a member. `cut` breaks connections, `freeze` passes nothing and says nothing."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: List[Tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._passing = threading.Event()
        self._passing.set()
        self._is_cut = False
        self._is_over = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def freeze(self) -> None:
        self._passing.clear()

    def heal(self) -> None:
        self._is_cut = False
        self._passing.set()

    def close(self) -> None:
        self._is_over = True
        self.heal()
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._is_cut:
                near.close()
                continue
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.append((near, far))
            threading.Thread(target=self._pass, args=(near, far), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        try:
            while not self._is_over:
                ready, _, _ = select.select([near, far], [], [], 0.5)
                self._passing.wait()
                for end in ready:
                    data = end.recv(65536)
                    if not data:
                        return
                    other[end].sendall(data)
        except OSError:
            pass
        finally:
            near.close()
            far.close()


@pytest.fixture(scope="session")
def server() -> Iterator[DevServer]:
    binary = os.environ.get("TENURE_BIN")
    with DevServer(binary) as server:
        yield server


@pytest.fixture
def client(server: DevServer) -> Iterator[Client]:
    client = server.client(name="test")
    yield client
    try:
        client.close(1.0)
    except Error:
        pass


@pytest.fixture
def other(server: DevServer) -> Iterator[Client]:
    client = server.client(name="other")
    yield client
    try:
        client.close(1.0)
    except Error:
        pass


@pytest.fixture
def proxy(server: DevServer) -> Iterator[Proxy]:
    proxy = Proxy(server.address)
    yield proxy
    proxy.close()

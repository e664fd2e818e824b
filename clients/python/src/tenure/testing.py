"""Starts a Tenure member for tests: `tenure dev --fresh` on a free port of this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from types import TracebackType
from typing import Optional, Type

from .client import Client

__all__ = ["DevServer", "find_binary"]


def find_binary() -> Optional[str]:
    """The program `tenure`: what `TENURE_BIN` names, or else the one in the path."""
    return os.environ.get("TENURE_BIN") or shutil.which("tenure")


class DevServer:
    """A member of its own, which keeps nothing. `with DevServer() as server:` stops it at the end."""

    def __init__(self, binary: Optional[str] = None, *, members: int = 1, start_seconds: float = 30.0) -> None:
        program = binary or find_binary()
        if program is None:
            raise FileNotFoundError("the program `tenure` is not in the path, and TENURE_BIN names none")
        self._process = subprocess.Popen(
            [program, "dev", "--fresh", "--clients", "127.0.0.1:0", "--size", str(members), "--output", "json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.addresses = self._wait_until_ready(start_seconds)
        """The addresses of its members, as `Client` takes them."""

    @property
    def address(self) -> str:
        """The address of the first member."""
        return self.addresses[0]

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def client(self, **settings: object) -> Client:
        """A client of this server."""
        return Client(self.addresses, **settings)  # type: ignore[arg-type]

    def stop(self) -> None:
        """Stops the server, and waits until it has ended."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """Ends the server at once, as a crash does."""
        self._process.kill()
        self._process.wait()

    def _wait_until_ready(self, seconds: float) -> "list[str]":
        stdout = self._process.stdout
        assert stdout is not None
        # A server that does not say that it is ready is ended, which ends the reading.
        late = threading.Timer(seconds, self._process.kill)
        late.start()
        try:
            for line in stdout:
                said = json.loads(line) if line.startswith("{") else {}
                if said.get("event") == "ready":
                    return list(said["clients"])
        finally:
            late.cancel()
        self._process.wait()
        raise RuntimeError(f"`tenure dev` ended with {self._process.returncode} before it was ready")

    def __enter__(self) -> DevServer:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop()

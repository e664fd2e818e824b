"""Fixtures for tests that need a Tenure member. pytest finds them when the package is installed.

`tenure_server` starts `tenure dev` once per test session (the program is in the path, or `TENURE_BIN` names it) and skips
the test where there is none. `tenure_client` is a client of it, closed after the test.
"""

from typing import Iterator

import pytest

from .. import Client, Error
from ..testing import DevServer, find_binary


@pytest.fixture(scope="session")
def tenure_server() -> Iterator[DevServer]:
    """A member that keeps nothing, for the whole test session."""
    if find_binary() is None:
        pytest.skip("the program `tenure` is not in the path, and TENURE_BIN names none")
    with DevServer() as server:
        yield server


@pytest.fixture
def tenure_client(tenure_server: DevServer) -> Iterator[Client]:
    """A client of the member. What the test has not released is reported by the client's log, not by this fixture."""
    client = tenure_server.client()
    yield client
    try:
        client.close(1.0)
    except Error:
        pass

"""The span of the caller goes with its requests, and with no others."""

import asyncio
import time
from contextvars import ContextVar
from typing import Any, Dict, List, Optional

import pytest

from tenure import Client, aio
from tenure._session import Session
from tenure.testing import DevServer

SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
span: "ContextVar[Optional[str]]" = ContextVar("span", default=None)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> List[Dict[str, Any]]:
    requests: List[Dict[str, Any]] = []
    ask = Session.ask

    def record(self: Session, request: Dict[str, Any]) -> Any:
        asked = ask(self, request)
        requests.append(request)
        return asked

    monkeypatch.setattr(Session, "ask", record)
    return requests


def spans(sent: List[Dict[str, Any]], command: str) -> List[Any]:
    return [it.get("traceparent") for it in sent if command in it]


def test_requests_carry_the_span_of_their_caller(server: DevServer, sent: List[Dict[str, Any]]) -> None:
    with Client(server.address, traceparent=span.get) as client:
        client.put("trace/plain", "v")
        token = span.set(SPAN)
        client.put("trace/traced", "v")
        with client.lock("trace/own") as guard:
            guard.update("v2")
        with client.lease(5.0) as lease, lease.lock("trace/under"):
            pass
        span.reset(token)
        client.get("trace/plain")
    assert spans(sent, "put") == [None, SPAN]
    assert spans(sent, "acquire") == [SPAN, SPAN]
    assert spans(sent, "update") == spans(sent, "grant_lease") == spans(sent, "release") == [SPAN]
    assert spans(sent, "get_key") == [None]


def test_renewals_have_no_span(server: DevServer, sent: List[Dict[str, Any]]) -> None:
    with Client(server.address, traceparent=lambda: SPAN) as client, client.lock("trace/renewed", ttl=1.0) as guard:
        until = time.monotonic() + 10
        while not spans(sent, "renew") and time.monotonic() < until:
            time.sleep(0.02)
            guard.check()
    assert spans(sent, "acquire") == [SPAN]
    assert set(spans(sent, "renew")) == {None}


def test_tasks_have_spans_of_their_own(server: DevServer, sent: List[Dict[str, Any]]) -> None:
    async def write(client: aio.Client, key: str, mine: Optional[str]) -> None:
        span.set(mine)
        await client.put(key, "v")

    async def run() -> None:
        async with aio.Client(server.address, traceparent=span.get) as client:
            await client.connect()
            await asyncio.gather(write(client, "trace/a", SPAN), write(client, "trace/b", None))

    asyncio.run(run())
    assert {it["put"]["key"]: it.get("traceparent") for it in sent if "put" in it} == {"trace/a": SPAN, "trace/b": None}


def test_a_span_that_cannot_be_read_stops_no_request(server: DevServer) -> None:
    def broken() -> str:
        raise LookupError("no context")

    with Client(server.address, traceparent=broken) as client, client.lock("trace/untraced"):
        pass

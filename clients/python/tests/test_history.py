"""Searches the past of locks, against a real member, which keeps an archive."""

import asyncio
import time
from datetime import datetime, timezone
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tenure import Client, Error, Invalid, Lost, Past, _http, aio
from tenure.testing import DevServer


def causes(past: Past) -> List[str]:
    revisions = [batch.revision for batch in past]
    assert revisions == sorted(revisions)
    # Whether the last request has to queue depends on when the release before it arrives.
    return [event.cause for batch in past for event in batch.events if event.cause != "queued"]


def test_the_history_is_searched_by_time_client_and_loss(server: DevServer, client: Client, other: Client) -> None:
    began, name = time.time(), "past/x"
    client.lock(name).acquire().release()
    held = client.lock(name).acquire()
    other.force(name, held.token, "stuck")
    assert held.lost.wait(5.0)
    with pytest.raises(Lost):
        held.release()
    other.lock(name).acquire().release()

    whole = causes(other.history(name))
    assert whole[0] == "granted" and "forced" in whole
    assert causes(other.history(name, lost=True)) == ["forced"]
    assert causes(other.history(name, client="oth")) == ["granted", "released"]
    assert causes(other.history(name, limit=1)) == whole[-1:]
    later = datetime.fromtimestamp(began + 60, timezone.utc)
    assert causes(other.history(name, since=began - 60, until=later)) == whole
    assert causes(other.history(name, until=began - 60)) == []
    past = other.history("past/", prefix=True, lost=True)
    assert past[0].events[0].detail["reason"] == "stuck"
    assert past.archive_begins and past.archive_begins_at and not past.missing

    async def read() -> List[str]:
        async with aio.Client(server.address) as mine:
            return causes(await mine.history(name))

    assert asyncio.run(read()) == whole


def page(revisions: List[str], before: Optional[str] = None, holes: Sequence[Tuple[str, str]] = ()) -> Dict[str, Any]:
    archive = {"begins": "3", "begins_at": "then", "holes": [{"from": first, "next": after} for first, after in holes]}
    return {"changes": [{"revision": it, "events": []} for it in revisions], "before": before, "archive": archive}


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Callable[..., List[str]]:
    """Answers searches with these pages in turn. Returns what was asked."""

    def answer(*answers: Dict[str, Any]) -> List[str]:
        asked: List[str] = []

        async def call(_: Any, method: str, path: str) -> Dict[str, Any]:
            asked.append(path)
            return answers[len(asked) - 1]

        monkeypatch.setattr(_http, "call", call)
        return asked

    return answer


def test_a_history_is_read_page_by_page(client: Client, pages: Callable[..., List[str]]) -> None:
    first, second = ("4", "6"), ("6", "7")
    asked = pages(page(["9", "8"], "8", [first]), page(["7", "6"], "6", [first, second]), page(["3"]))
    past = client.history("past/x", limit=6)
    assert [batch.revision for batch in past] == [3, 6, 7, 8, 9]
    assert past.missing == ((4, 6), (6, 7)) and past.archive_begins == 3
    queries = [parse_qs(urlsplit(it).query) for it in asked]
    assert [it.get("before") for it in queries] == [None, ["8"], ["6"]]
    assert [it["limit"] for it in queries] == [["6"], ["4"], ["2"]]


@pytest.mark.parametrize("before", ["8", "9", "10"])
def test_a_history_that_does_not_advance_is_refused(
    client: Client, pages: Callable[..., List[str]], before: str
) -> None:
    pages(page(["8"], "8"), page(["8"], before), page([]))
    with pytest.raises(Error) as refused:
        client.history("past/", prefix=True)
    assert refused.value.reason == "STRANGE_ANSWER"


@pytest.mark.parametrize("bad", [{"limit": 0}, {"since": -1.0}, {"until": "yesterday"}])
def test_bad_searches_are_refused_before_they_are_sent(client: Client, bad: Any) -> None:
    with pytest.raises(Invalid) as refused:
        client.history("past/x", **bad)
    assert refused.value.reason == "INVALID_FIELD"
    with pytest.raises(Invalid):
        client.history("")

"""Searches the past of locks, against a real member, which keeps an archive."""

import asyncio
import time
from datetime import datetime, timezone
from typing import Any, List

import pytest

from tenure import Client, Invalid, Lost, Past, aio
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


@pytest.mark.parametrize("bad", [{"limit": 0}, {"since": -1.0}, {"until": "yesterday"}])
def test_bad_searches_are_refused_before_they_are_sent(client: Client, bad: Any) -> None:
    with pytest.raises(Invalid) as refused:
        client.history("past/x", **bad)
    assert refused.value.reason == "INVALID_FIELD"
    with pytest.raises(Invalid):
        client.history("")

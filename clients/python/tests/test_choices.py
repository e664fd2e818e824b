"""A request for any one of several locks, and for any slot of a pool: against a real member, with both twins."""

import asyncio
import threading
import time
from typing import Callable, List

import pytest

import tenure
from tenure import Client, Guard, aio


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def in_thread(work: Callable[[], Guard], got: List[Guard], errors: List[tenure.Error]) -> threading.Thread:
    def run() -> None:
        try:
            got.append(work())
        except tenure.Error as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_any_of_several_locks_is_granted_and_the_other_queues_are_left(client: Client, other: Client) -> None:
    got: List[Guard] = []
    first = client.lock_any("any/1", "any/0").acquire()
    second = client.lock_any("any/1", "any/0").acquire()
    assert (first.name, second.name) == ("any/0", "any/1")
    assert first.tokens == {"any/0": first.token}
    assert other.lock_any("any/0", "any/1").try_acquire() is None
    waiting = in_thread(lambda: other.lock_any("any/0", "any/1").acquire(), got, [])
    eventually(lambda: client.show("any/0").waiting == 1 and client.show("any/1").waiting == 1)
    old = second.token
    second.release()
    waiting.join(10)
    assert got[0].name == "any/1" and got[0].token > old
    assert client.show("any/0").waiting == 0
    with got[0] as third:
        third.check()
    first.release()


def test_a_second_request_under_one_lease_waits_for_the_first(client: Client) -> None:
    got: List[Guard] = []
    with client.lease() as lease:
        first = lease.lock_any("lease/x", "lease/y").acquire()
        assert first.name == "lease/x"
        with lease.lock("lease/y", wait=0):
            assert lease.lock_any("lease/x", "lease/y").try_acquire() is None
        second = in_thread(lambda: lease.lock_any("lease/x", "lease/y").acquire(), got, [])
        time.sleep(0.05)
        assert got == []
        old = first.token
        first.release()
        second.join(10)
        assert got[0].name == "lease/x" and got[0].token > old
        got[0].release()


def test_any_slot_of_a_pool_is_granted_also_one_that_is_added(client: Client, other: Client) -> None:
    got: List[Guard] = []
    errors: List[tenure.Error] = []
    with pytest.raises(tenure.Refused) as empty:
        client.pool("slots/").acquire()
    assert empty.value.reason == "POOL_EMPTY" and empty.value.effect == "none"
    client.resize("slots/0", 1)
    with client.pool("slots/") as first:
        assert (first.name, first.slot) == ("slots/0", 0)
        assert other.pool("slots/").try_acquire() is None
        with pytest.raises(tenure.Refused) as over:
            other.pool("slots/", wait=0.05).acquire()
        assert over.value.reason == "WAIT_TIMEOUT" and "pool `slots/`" in str(over.value)
        second = in_thread(lambda: other.pool("slots/").acquire(), got, [])
        eventually(lambda: client.show("slots/0").waiting == 1)
        client.resize("slots/1", 2)
        second.join(10)
        assert got[0].name == "slots/1"
        got[0].release()
        with other.pool("slots/", take=2) as both:
            assert [lock.name for lock in both.locks] == ["slots/1", "slots/1"]
            last = in_thread(lambda: other.pool("slots/").acquire(), got, errors)
            eventually(lambda: client.show("slots/0").waiting == 1)
            client.resize("slots/0", None)
            client.resize("slots/1", None)
            last.join(10)
    assert [getattr(error, "reason", None) for error in errors] == ["POOL_EMPTY"]


def test_bad_requests_are_refused_before_anything_is_sent(client: Client) -> None:
    for reason, ask in [
        ("INVALID_FIELD", lambda: client.pool("gpu/", shared=True)),  # type: ignore[call-arg]
        ("INVALID_FIELD", lambda: client.pool("gpu/", slots=2)),  # type: ignore[call-arg]
        ("INVALID_FIELD", lambda: client.pool("gpu/", take=0)),
        ("INVALID_NAME", lambda: client.pool("")),
        ("INVALID_FIELD", lambda: client.lock_any()),
        ("INVALID_NAME", lambda: client.lock_any("x", "")),
        ("DUPLICATE_LOCK", lambda: client.lock_any("x", "x")),
    ]:
        with pytest.raises(tenure.Invalid) as invalid:
            ask()
        assert invalid.value.reason == reason


def test_the_twin_for_asyncio_leaves_all_queues_when_it_is_cancelled(client: Client) -> None:
    async def main() -> None:
        async with aio.Client(client._settings.addresses, name="aio") as twin:
            held = await twin.lock("aio/x", "aio/y").acquire()
            lease = await twin.lease()
            for source in (twin, lease):
                asking = asyncio.ensure_future(source.lock_any("aio/x", "aio/y").acquire())
                while (await twin.show("aio/y")).waiting == 0:
                    await asyncio.sleep(0.01)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                while (await twin.show("aio/x")).waiting + (await twin.show("aio/y")).waiting:
                    await asyncio.sleep(0.01)
            await held.release()
            async with lease.lock_any("aio/x", "aio/y", wait=5) as guard:
                assert guard.name == "aio/x"
            await lease.release()
            await twin.resize("aio/gpu/0", 1)
            async with twin.pool("aio/gpu/", wait=5) as slot:
                assert slot.name == "aio/gpu/0"
            await twin.resize("aio/gpu/0", None)

    asyncio.run(asyncio.wait_for(main(), 30))

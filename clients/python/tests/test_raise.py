"""Raises a fence before the guard is handed out, against a real member."""

import asyncio
import gc
import time
import warnings
from typing import List

import pytest

from tenure import Client, FenceFailed, HeldLock, Lost, Timeout, aio
from tenure.aio.guard import _raise_for
from tenure.testing import DevServer


def is_free(client: Client, name: str) -> bool:
    guard = client.lock(name, wait=5.0).acquire()
    guard.release()
    return True


def test_the_fence_is_raised_for_each_lock_before_the_guard_is_handed_out(client: Client) -> None:
    raised: List[HeldLock] = []
    with client.lock("raise/x", "raise/y", fence=raised.append) as guard:
        assert raised == list(guard.locks)
    with client.lease(5.0) as lease, lease.lock("raise/x", fence=raised.append) as guard:
        assert raised[-1].token == guard.token
    held = client.try_lock("raise/x", fence=raised.append)
    assert held is not None and raised[-1].token == held.token
    held.release()
    with client.elect("raise/x", "v", fence=raised.append) as lead:
        assert raised[-1].token == lead.token


def test_a_fence_that_refuses_gives_the_lock_back(client: Client) -> None:
    why = OSError("a newer token was seen")

    def refuse(_: HeldLock) -> None:
        raise why

    with pytest.raises(FenceFailed) as failed:
        client.lock("raise/refused", fence=refuse).acquire()
    assert failed.value.__cause__ is why
    assert (failed.value.lock, failed.value.effect) == ("raise/refused", "none")
    assert is_free(client, "raise/refused")


def test_a_lock_that_is_lost_meanwhile_is_not_handed_out(client: Client, other: Client) -> None:
    def lose(lock: HeldLock) -> None:
        other.force(lock.name, lock.token, "stuck", now=True)
        other.lock(lock.name).acquire().release()

    with pytest.raises(Lost) as lost:
        client.lock("raise/taken", fence=lose).acquire()
    assert lost.value.cause == "forced"


def test_a_fence_that_fails_because_the_lock_is_lost_is_a_loss(server: DevServer, client: Client, other: Client) -> None:
    own = OSError("the connection is closed")

    def lose(lock: HeldLock) -> None:
        other.force(lock.name, lock.token, "stuck", now=True)
        other.lock(lock.name).acquire().release()
        raise own

    with pytest.raises(Lost) as lost:
        client.lock("raise/closed", fence=lose).acquire()
    assert (lost.value.cause, lost.value.by) == ("forced", "other")
    assert lost.value.__cause__ is own

    async def lose_async(lock: HeldLock) -> None:
        await asyncio.to_thread(other.force, lock.name, lock.token, "stuck")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise own from None

    async def run() -> None:
        async with aio.Client(server.address, name="aio") as mine:
            for fence in (lose, lose_async):
                with pytest.raises(Lost) as failed:
                    await mine.lock("raise/closed", wait=5.0, fence=fence).acquire()
                assert failed.value.cause == "forced"

    asyncio.run(run())
    assert is_free(client, "raise/closed")


def test_a_fence_in_a_thread_that_takes_longer_than_the_callers_limit_is_a_timeout(client: Client) -> None:
    def slow(_: HeldLock) -> None:
        time.sleep(0.4)

    def fails(lock: HeldLock) -> None:
        slow(lock)
        raise OSError("no answer")

    for fence in (slow, fails):
        with pytest.raises(Timeout) as late:
            client.lock("raise/slow", timeout=0.3, fence=fence).acquire()
        assert late.value.effect == "none"
    raised: List[HeldLock] = []
    with pytest.raises(Timeout):
        client.lock("raise/slow", "raise/slower", timeout=0.3, fence=lambda lock: (raised.append(lock), slow(lock))).acquire()
    assert [lock.name for lock in raised] == ["raise/slow"]
    assert is_free(client, "raise/slow")


def test_a_fence_for_which_no_time_is_left_is_not_begun(server: DevServer, client: Client) -> None:
    raised: List[HeldLock] = []

    async def run() -> None:
        async with aio.Client(server.address, name="aio") as mine:
            guard = await mine.lock("raise/late").acquire()
            for left_us in (0, -1):
                with warnings.catch_warnings(record=True) as warned, pytest.raises(Timeout, match=r"within 0\.0s"):
                    warnings.simplefilter("always")
                    await _raise_for(guard._core, raised.append, left_us)
                gc.collect()
                assert not warned
            await guard.release()

    asyncio.run(run())
    assert raised == []


def test_asyncio_fences_may_be_coroutines_and_have_a_time(server: DevServer, client: Client) -> None:
    raised: List[HeldLock] = []

    async def append(lock: HeldLock) -> None:
        await asyncio.sleep(0.01)
        raised.append(lock)

    async def refuse(_: HeldLock) -> None:
        raise OSError("a newer token was seen")

    async def forever(_: HeldLock) -> None:
        await asyncio.sleep(60)

    async def closes(_: HeldLock) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise OSError("the connection is closed") from None

    async def lose(lock: HeldLock) -> None:
        await asyncio.to_thread(client.force, lock.name, lock.token, "stuck")
        await forever(lock)

    async def run() -> None:
        async with aio.Client(server.address, name="aio", timeout=1.0) as mine:
            async with mine.lock("raise/a", fence=append) as guard:
                assert raised[-1].token == guard.token
            async with mine.lock("raise/a", fence=raised.append) as guard:
                assert raised[-1].token == guard.token
            with pytest.raises(FenceFailed, match="a newer token"):
                await mine.lock("raise/a", fence=refuse).acquire()
            with pytest.raises(FenceFailed, match=r"within 1\.0s"):
                await mine.lock("raise/a", wait=5.0, fence=forever).acquire()
            with pytest.raises(Timeout):
                await mine.lock("raise/a", timeout=0.3, fence=forever).acquire()
            with pytest.raises(Timeout):
                await mine.lock("raise/a", timeout=0.3, fence=closes).acquire()
            with pytest.raises(FenceFailed, match=r"within 1\.0s"):
                await mine.lock("raise/a", wait=5.0, fence=closes).acquire()
            with pytest.raises(Lost):
                await mine.lock("raise/a", wait=5.0, fence=lose).acquire()
            request = asyncio.ensure_future(mine.lock("raise/a", wait=5.0, fence=forever).acquire())
            await asyncio.sleep(0.3)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request

    asyncio.run(run())
    assert is_free(client, "raise/a")

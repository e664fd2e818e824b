"""The asyncio twin: the task is cancelled when its lock is lost, and nothing else is mistaken for that."""

import asyncio
import time
from typing import Any, Coroutine

import pytest
from conftest import Proxy

import tenure
from tenure import Client, aio
from tenure.testing import DevServer

TTL = 1.5


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


def test_a_lock_is_held_in_its_block(server: DevServer, other: Client) -> None:
    async def main() -> None:
        async with aio.Client(server.addresses, name="aio") as client:
            async with client.lock("deploy") as guard:
                guard.check()
                assert other.show("deploy").holders[0].token == guard.token
                assert await client.try_lock("deploy") is None
            assert guard.lost.is_set()
            again = await client.try_lock("deploy")
            assert again is not None and again.token > guard.token
            await again.release()

    run(main())


def test_the_task_is_cancelled_at_half_of_the_ttl_and_lost_is_raised(proxy: Proxy) -> None:
    async def main() -> None:
        client = aio.Client([proxy.address], ttl=TTL)
        stopped = []
        began = time.monotonic()
        with pytest.raises(tenure.Lost) as lost:
            async with client.lock("cut"):
                proxy.cut()
                began = time.monotonic()
                try:
                    await asyncio.sleep(30)
                finally:
                    stopped.append(time.monotonic() - began)
        assert lost.value.cause == "cluster_unreachable"
        assert stopped and stopped[0] < TTL / 2 + 0.3
        task = asyncio.current_task()
        assert task is not None and getattr(task, "cancelling", lambda: 0)() == 0, "the task may be used on"
        await asyncio.sleep(0)

    run(main())


def test_a_cancellation_from_outside_stays_one(server: DevServer, other: Client) -> None:
    async def main() -> None:
        client = aio.Client(server.addresses)
        held = asyncio.Event()

        async def work() -> None:
            async with client.lock("outside"):
                held.set()
                await asyncio.sleep(30)

        task = asyncio.get_running_loop().create_task(work())
        await held.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        free = other.try_lock("outside")
        assert free is not None, "it was released"
        free.release()
        await client.close()

    run(main())


def test_a_cancelled_wait_leaves_the_queue(server: DevServer, client: Client) -> None:
    async def main() -> None:
        waiting = aio.Client(server.addresses)
        queued = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tell(_: int) -> None:
            loop.call_soon_threadsafe(queued.set)

        task = loop.create_task(waiting.lock("leave", on_queued=tell).acquire())
        await queued.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await waiting.close()

    with client.lock("leave"):
        run(main())
        assert client.show("leave").waiting == 0


def test_a_blocked_event_loop_keeps_its_lock(server: DevServer, other: Client) -> None:
    async def main() -> None:
        client = aio.Client(server.addresses, ttl=5)
        async with client.lock("blocked") as guard:
            # For longer than a lock is relied on without a renewal.
            time.sleep(4)
            guard.check()
            assert other.try_lock("blocked") is None
        await client.close()

    run(main())


def test_work_that_outlived_its_lock_is_no_success(proxy: Proxy) -> None:
    async def main() -> None:
        client = aio.Client([proxy.address], ttl=TTL)
        with pytest.raises(tenure.Lost):
            async with client.lock("late"):
                proxy.cut()
                # The event loop is blocked, so that no cancellation can arrive before the body ends.
                time.sleep(TTL)
        done = []

        async def step() -> None:
            await asyncio.sleep(0)
            done.append(1)
            time.sleep(TTL)
            await asyncio.sleep(0)
            done.append(2)

        proxy.heal()
        with pytest.raises(tenure.Lost):
            async with client.lock("late", wait=5) as guard:
                proxy.cut()
                await guard.run(step())
        assert done == [1], "no step starts after the loss"

    run(main())


def test_the_exception_of_the_body_is_not_masked(server: DevServer, other: Client) -> None:
    async def main() -> None:
        client = aio.Client(server.addresses)
        with pytest.raises(KeyError):
            async with client.lock("mask") as guard:
                other.force("mask", guard.token, "test", now=True)
                try:
                    await guard.lost.wait()
                except asyncio.CancelledError:
                    raise KeyError("mine") from None
        task = asyncio.current_task()
        assert task is not None and getattr(task, "cancelling", lambda: 0)() == 0
        await client.close()

    run(main())


def test_a_decorated_coroutine_runs_under_the_lock(server: DevServer, other: Client) -> None:
    async def main() -> None:
        client = aio.Client(server.addresses)

        @client.locked("nightly", pass_guard=True)
        async def report(day: str, guard: aio.Guard) -> str:
            assert other.try_lock("nightly") is None
            await asyncio.sleep(0)
            return day

        assert await report("monday") == "monday"

        async def work(guard: aio.Guard) -> int:
            return guard.token

        assert await client.run("nightly", work) > 0
        await client.close()

    run(main())


def test_many_tasks_share_one_connection_and_one_thread(server: DevServer) -> None:
    async def main() -> None:
        client = aio.Client(server.addresses)
        count = 0

        async def one(number: int) -> None:
            nonlocal count
            async with client.lock("hot", wait=15):
                before = count
                await asyncio.sleep(0)
                count = before + 1

        await asyncio.gather(*(one(number) for number in range(50)))
        assert count == 50
        assert client._running is not None and len(client._running.connections.alive()) == 1
        await client.close()

    run(main())


def test_elections_keys_watches_and_leases(server: DevServer) -> None:
    async def main() -> None:
        async with aio.Client(server.addresses) as client:
            seen = await client.observe("aio-election")
            assert await seen.__anext__() is None
            async with client.elect("aio-election", "me") as lead:
                assert (await client.leader("aio-election")).text == "me"  # type: ignore[union-attr]
                assert (await seen.__anext__()).token == lead.token  # type: ignore[union-attr]
                await lead.proclaim("you")
                assert (await seen.__anext__()).text == "you"  # type: ignore[union-attr]
            watch = await client.watch("aio/", prefix=True)
            async with await client.lease(5) as lease:
                await client.put("aio/1", "x", lease=lease)
                async with lease.lock("a", "b") as both:
                    assert set(both.tokens) == {"a", "b"}
            assert (await watch.__anext__()).events[0].cause == "key_put"
            assert (await watch.__anext__()).events[0].cause.startswith("key_")
            assert await client.get("aio/1") is None
            await watch.close()
            await seen.close()

    run(main())


def test_a_refused_lock_raises_in_the_task(server: DevServer, client: Client) -> None:
    async def main() -> None:
        other = aio.Client(server.addresses)
        with pytest.raises(tenure.Refused) as refused:
            async with other.lock("taken", wait=0):
                raise AssertionError("not reached")
        assert refused.value.reason == "HELD"
        with pytest.raises(tenure.Timeout):
            await other.lock("taken", timeout=0.2).acquire()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(other.lock("taken").acquire(), 0.2)
        await other.close()

    with client.lock("taken"):
        run(main())

"""What a request can say beside its lock: several slots, priority, groups, least times, promised progress. And what can become
of a hold: an upgrade, a hand-over. Against a real member, with both twins."""

import asyncio
import threading
import time
from typing import Callable, List

import pytest

import tenure
from tenure import Client, aio


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def in_thread(work: Callable[[], object], errors: List[tenure.Error]) -> threading.Thread:
    def run() -> None:
        try:
            work()
        except tenure.Error as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_several_slots_have_a_token_each(client: Client, other: Client) -> None:
    with client.lock("gpus", slots=4, take=3) as guard:
        assert [lock.slot for lock in guard.locks] == [0, 1, 2]
        assert len({lock.token for lock in guard.locks}) == 3
        assert guard.tokens == {"gpus": guard.token}
        assert other.try_lock("gpus", slots=4, take=2) is None
        with other.lock("gpus", slots=4, wait=0) as one:
            assert one.slot == 3
    with other.lock("gpus", slots=4, take=4, wait=5) as all_of_them:
        assert len(all_of_them.locks) == 4
    assert other.show("gpus").holders == []


def test_a_more_urgent_request_passes_one_that_waits(client: Client, other: Client) -> None:
    order: List[str] = []

    def take(who: str, priority: int) -> None:
        with other.lock("urgent", priority=priority):
            order.append(who)

    with client.lock("urgent"):
        first = in_thread(lambda: take("first", 0), [])
        eventually(lambda: client.show("urgent").waiting == 1)
        second = in_thread(lambda: take("second", 5), [])
        eventually(lambda: client.show("urgent").waiting == 2)
    first.join(10)
    second.join(10)
    assert order == ["second", "first"]


def test_a_newer_request_of_a_group_replaces_the_older(client: Client, other: Client) -> None:
    errors: List[tenure.Error] = []
    with client.lock("newest", supersede="main"):
        old = in_thread(lambda: other.lock("newest", supersede="main").acquire(), errors)
        eventually(lambda: client.show("newest").waiting == 1)
        new = in_thread(lambda: client.lock("newest", supersede="main").acquire().release(), errors)
        old.join(10)
    new.join(10)
    assert [getattr(error, "reason", None) for error in errors] == ["SUPERSEDED"]
    assert isinstance(errors[0], tenure.Refused) and errors[0].detail["set_by"] == "test"


def test_a_lock_is_withheld_for_its_least_time(client: Client, other: Client) -> None:
    began = time.monotonic()
    client.lock("period", min_hold=0.5).acquire().release()
    assert other.try_lock("period") is None
    other.lock("period", wait=10).acquire().release()
    assert time.monotonic() - began > 0.4


def test_bad_options_are_refused_before_anything_is_sent(client: Client) -> None:
    for reason, options in [
        ("INVALID_FIELD", {"take": 2}),
        ("INVALID_FIELD", {"slots": 4, "take": 0}),
        ("INVALID_FIELD", {"priority": 10}),
        ("INVALID_FIELD", {"priority": -1}),
        ("INVALID_NAME", {"supersede": ""}),
        ("INVALID_FIELD", {"min_hold": -1}),
        ("INVALID_FIELD", {"progress_within": "soon"}),
    ]:
        with pytest.raises(tenure.Invalid) as invalid:
            client.lock("bad", **options)  # type: ignore[arg-type]
        assert invalid.value.reason == reason, options


def test_a_reader_becomes_the_writer_and_a_reader_again(client: Client, other: Client) -> None:
    with client.lock("index", shared=True) as guard:
        reader = other.lock("index", shared=True).acquire()
        token = guard.token
        with pytest.raises(tenure.Refused) as held:
            guard.upgrade(wait=0)
        assert held.value.reason == "HELD"
        with pytest.raises(tenure.Refused) as timeout:
            guard.upgrade(wait=0.2)
        assert timeout.value.reason == "WAIT_TIMEOUT" and guard.token == token
        guard.check()
        upgrading = in_thread(guard.upgrade, [])
        eventually(lambda: client.show("index").waiting == 1)
        with pytest.raises(tenure.Refused) as deadlock:
            reader.upgrade(wait=5)
        assert deadlock.value.reason == "DEADLOCK"
        reader.release()
        upgrading.join(10)
        assert guard.token > token
        guard.check()
        assert other.try_lock("index", shared=True) is None
        guard.downgrade()
        with other.lock("index", shared=True, wait=5):
            guard.check()
    assert other.show("index").holders == []


def test_a_hold_is_given_to_a_lease_that_waits(client: Client, other: Client) -> None:
    got: List[int] = []

    def receive(lease: tenure.Lease) -> None:
        with lease.lock("deploy") as guard:
            got.append(guard.token)

    with other.lease() as lease, client.lock("deploy") as guard:
        with pytest.raises(tenure.Refused) as refused:
            guard.hand_on(lease)
        assert refused.value.reason == "NOT_WAITING"
        guard.check()
        receiver = in_thread(lambda: receive(lease), [])
        eventually(lambda: client.show("deploy").waiting == 1)
        token = guard.hand_on(lease.id)
        receiver.join(10)
        assert got == [token]
        with pytest.raises(tenure.Lost) as lost:
            guard.check()
        assert lost.value.cause == "released"
    with pytest.raises(tenure.Invalid):
        client.lock("deploy").acquire().hand_on("nobody")


def test_only_one_guard_of_one_lock_can_be_changed(client: Client) -> None:
    with client.lock("a", "b", shared=True) as both:
        for change in (both.upgrade, lambda: both.hand_on("1")):
            with pytest.raises(tenure.Invalid) as several:
                change()
            assert several.value.reason == "SEVERAL_LOCKS"
    with client.lock("a", shared=True) as guard, guard.reenter():
        with pytest.raises(tenure.Invalid) as shared:
            guard.upgrade()
        assert shared.value.reason == "GUARD_SHARED"


def test_a_holder_without_progress_loses_the_lock(client: Client) -> None:
    guard = client.lock("copy", ttl=2, progress_within=3).acquire()
    left = guard.progress(1)
    assert left is not None and 0 < left < 4
    assert guard.lost.wait(15) and guard.lost.loss is not None and guard.lost.loss.cause == "no_progress"
    with pytest.raises(tenure.Lost):
        guard.release()
    with client.lock("no promise") as other:
        assert other.progress(1) is None
        with pytest.raises(tenure.Invalid):
            other.progress(-1)


def test_a_semaphore_is_resized_while_it_is_used(client: Client, other: Client) -> None:
    errors: List[tenure.Error] = []
    with client.lock("runners", slots=1):
        assert other.try_lock("runners", slots=1) is None
        client.resize("runners", 2)
        with other.lock("runners", slots=1, wait=5) as guard:
            assert guard.slot == 1
            waiting = in_thread(lambda: other.lock("runners", slots=1, take=2).acquire(), errors)
            eventually(lambda: client.show("runners").waiting == 1)
            client.resize("runners", 1)
            waiting.join(10)
    assert [getattr(error, "reason", None) for error in errors] == ["INVALID_SLOTS"]
    client.resize("runners", None)
    with pytest.raises(tenure.Invalid):
        client.resize("runners", 0)


def test_nothing_is_granted_below_a_drained_prefix(client: Client, other: Client) -> None:
    with client.lock("db/one"):
        other.drain("db/", "new disks", by="ana")
        shown = [it for it in other.drains() if it.prefix == "db/"]
        assert [(it.by, it.reason, it.holders) for it in shown] == [("ana", "new disks", 1)]
        with pytest.raises(tenure.Refused) as draining:
            client.lock("db/two", wait=0).acquire()
        assert draining.value.reason == "DRAINING"
    assert other.undrain("db/") and not other.undrain("db/")
    client.lock("db/two", wait=0).acquire().release()


def test_the_twin_for_asyncio_has_all_of_it(client: Client) -> None:
    async def main() -> None:
        async with aio.Client(client._settings.addresses, name="aio") as twin:
            async with twin.lock("aio/gpus", slots=2, take=2, priority=1, supersede="x", min_hold=0, progress_within=60) as both:
                assert len(both.locks) == 2
                assert (await both.progress(1) or 0) > 0
            async with twin.lock("aio/index", shared=True) as guard:
                token = guard.token
                await guard.upgrade(wait=0)
                assert guard.token > token
                await guard.downgrade()
            lease = await twin.lease()
            giver = await twin.lock("aio/deploy").acquire()
            receiver = asyncio.ensure_future(lease.lock("aio/deploy").acquire())
            while (await twin.show("aio/deploy")).waiting == 0:
                await asyncio.sleep(0.01)
            token = await giver.hand_on(lease)
            got = await receiver
            assert got.token == token
            await got.release()
            await lease.release()
            await twin.resize("aio/gpus", 3)
            await twin.resize("aio/gpus", None)
            await twin.drain("aio/", "test")
            assert [it.reason for it in await twin.drains() if it.prefix == "aio/"] == ["test"]
            assert await twin.undrain("aio/")
            await cancelled_upgrade(twin)

    asyncio.run(main())


async def cancelled_upgrade(twin: aio.Client) -> None:
    """A cancelled upgrade leaves the queue, and the guard is lost: it is not certain how the lock is held."""
    reader = await twin.lock("aio/cancelled", shared=True).acquire()
    lease = await twin.lease()
    guard = await lease.lock("aio/cancelled", shared=True).acquire()
    upgrading = asyncio.ensure_future(guard.upgrade())
    while (await twin.show("aio/cancelled")).waiting == 0:
        await asyncio.sleep(0.01)
    upgrading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upgrading
    while (await twin.show("aio/cancelled")).waiting:
        await asyncio.sleep(0.01)
    with pytest.raises(tenure.Lost):
        guard.check()
    with pytest.raises(tenure.Lost):
        await guard.release()
    await reader.release()
    while (await twin.show("aio/cancelled")).holders:
        await asyncio.sleep(0.01)
    await lease.release()

"""Locks, leases, elections, keys and watches of the twin for threads, against a real member."""

import threading
import time

import pytest

import tenure
from tenure import Client
from tenure.testing import DevServer


def test_a_lock_is_held_in_its_block_and_free_after_it(client: Client, other: Client) -> None:
    with client.lock("deploy", metadata="release 5") as guard:
        assert guard.token > 0 and guard.name == "deploy" and guard.standing == "valid"
        guard.check()
        assert other.try_lock("deploy") is None
        shown = other.show("deploy")
        assert [(it.client, it.token, it.metadata) for it in shown.holders] == [("test", guard.token, b"release 5")]
    second = other.try_lock("deploy")
    assert second is not None and second.token > guard.token
    second.release()
    second.release()
    with pytest.raises(tenure.Lost) as lost:
        second.check()
    assert lost.value.cause == "released" and second.lost.is_set()


def test_a_waiter_is_granted_when_the_holder_releases(client: Client, other: Client) -> None:
    queued = threading.Event()
    tokens = []

    def wait() -> None:
        with other.lock("queue", on_queued=lambda ahead: queued.set()) as guard:
            tokens.append(guard.token)

    waiter = threading.Thread(target=wait)
    with client.lock("queue") as guard:
        waiter.start()
        assert queued.wait(5)
        assert client.explain("queue").waiting == 1
    waiter.join(5)
    assert tokens and tokens[0] > guard.token


def test_refusals_have_their_reason_and_say_that_nothing_happened(client: Client, other: Client) -> None:
    with client.lock("held"):
        with pytest.raises(tenure.Refused) as tried:
            other.lock("held", wait=0).acquire()
        assert (tried.value.reason, tried.value.effect, tried.value.retryable) == ("HELD", "none", True)
        assert tried.value.detail["holder"]["client"] == "test"
        began = time.monotonic()
        with pytest.raises(tenure.Refused) as waited:
            other.lock("held", wait=0.3).acquire()
        assert waited.value.reason == "WAIT_TIMEOUT" and 0.25 < time.monotonic() - began < 2
        with pytest.raises(tenure.Timeout) as limited:
            other.lock("held", timeout=0.2).acquire()
        assert limited.value.effect == "none"
        deadline = time.monotonic() + 5
        while other.show("held").waiting and time.monotonic() < deadline:
            time.sleep(0.02)
        assert other.show("held").waiting == 0, "who gives up leaves the queue"


@pytest.mark.parametrize(
    ("names", "options", "reason"),
    [
        ([""], {}, "INVALID_NAME"),
        (["a\n"], {}, "INVALID_NAME"),
        (["x" * 513], {}, "INVALID_NAME"),
        ([], {}, "INVALID_FIELD"),
        (["a", "a"], {}, "DUPLICATE_LOCK"),
        (["a"], {"ttl": 0.01}, "INVALID_TTL"),
        (["a"], {"ttl": 15, "grace": 9}, "INVALID_GRACE"),
        (["a"], {"ttl": 15, "window": 15}, "INVALID_WINDOW"),
        (["a"], {"slots": 0}, "INVALID_SLOTS"),
        (["a"], {"wait": -1}, "INVALID_FIELD"),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(client: Client, names, options, reason) -> None:
    with pytest.raises(tenure.Invalid) as refused:
        client.lock(*names, **options)
    assert refused.value.reason == reason and refused.value.effect == "none"
    assert isinstance(refused.value, ValueError)


def test_shared_holders_and_slots(client: Client, other: Client) -> None:
    with client.lock("cache", shared=True), other.lock("cache", shared=True):
        assert client.try_lock("cache") is None
    with client.lock("pool", slots=2) as first, other.lock("pool", slots=2) as second:
        assert {first.slot, second.slot} == {0, 1}
        assert client.try_lock("pool", slots=2) is None
    with client.lock("cache") as writer:
        before = writer.token
        writer.downgrade()
        assert writer.token > before
        writer.check()
        reader = other.try_lock("cache", shared=True)
        assert reader is not None
        reader.release()


def test_several_locks_are_all_or_none(client: Client, other: Client) -> None:
    with client.lock("b"):
        assert other.try_lock("a", "b") is None
        free = client.try_lock("a")
        assert free is not None
        free.release()
    with other.lock("a", "b") as both:
        assert set(both.tokens) == {"a", "b"} and len(both.locks) == 2
        assert client.try_lock("a") is None


def test_the_exception_of_the_body_is_not_masked(client: Client, other: Client) -> None:
    with pytest.raises(KeyError, match="mine"), client.lock("mask"):
        raise KeyError("mine")
    free = other.try_lock("mask")
    assert free is not None
    free.release()
    with pytest.raises(KeyError, match="mine") as raised, client.lock("mask") as guard:
        other.force("mask", guard.token, "test", now=True)
        assert guard.lost.wait(5)
        raise KeyError("mine")
    assert any("forced" in note for note in getattr(raised.value, "__notes__", ["forced"]))


def test_a_forced_lock_tells_who_and_why_and_is_no_success(client: Client, other: Client) -> None:
    told = []
    with pytest.raises(tenure.Lost) as lost, client.lock("stuck") as guard:
        guard.on_lost(told.append)
        other.force("stuck", guard.token, "stuck for an hour", by="ops@host")
        assert guard.lost.wait(5)
        with pytest.raises(tenure.Lost):
            guard.check()
        assert other.show("stuck").holders[0].state == "cooling", "its work has not stopped yet"
    assert (lost.value.cause, lost.value.by, lost.value.reason) == ("forced", "ops@host", "stuck for an hour")
    deadline = time.monotonic() + 5
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert told[0].cause == "forced"
    with other.lock("stuck", wait=3):
        pass


def test_a_decorated_function_runs_under_the_lock(client: Client, other: Client) -> None:
    @client.locked("nightly", pass_guard=True)
    def report(day: str, guard: tenure.Guard) -> str:
        """Doc."""
        assert other.try_lock("nightly") is None
        return f"{day} {guard.token}"

    assert report("monday").startswith("monday ") and report.__name__ == "report"
    assert client.run("nightly", lambda guard: guard.token) > 0


def test_the_last_guard_releases_the_lock(client: Client, other: Client) -> None:
    guard = client.lock("again").acquire()
    inner = guard.reenter()
    guard.release()
    inner.check()
    assert other.try_lock("again") is None
    inner.release()
    free = other.try_lock("again")
    assert free is not None
    free.release()


def test_locks_under_one_lease_queue_in_the_process(client: Client) -> None:
    with client.lease(5) as lease:
        assert lease.standing == "valid"
        order = []

        def second() -> None:
            with lease.lock("one", wait=5):
                order.append("second")

        with lease.lock("one") as guard:
            assert guard.lease == lease.id
            assert lease.try_lock("one") is None
            thread = threading.Thread(target=second)
            thread.start()
            time.sleep(0.1)
            order.append("first")
            with pytest.raises(tenure.Invalid):
                lease.release()
        thread.join(5)
        assert order == ["first", "second"]
        client.put("bound", "1", lease=lease)
    assert client.get("bound") is None


def test_a_leader_is_observed_with_its_value_and_its_end(client: Client, other: Client) -> None:
    seen = other.observe("billing")
    assert next(seen) is None
    with client.elect("billing", "10.0.0.5:9000") as lead:
        first = next(seen)
        assert first is not None and (first.text, first.token) == ("10.0.0.5:9000", lead.token)
        lead.proclaim("10.0.0.5:9001")
        second = next(seen)
        assert second is not None and second.text == "10.0.0.5:9001"
        assert other.leader("billing") == second
    assert next(seen) is None
    seen.close()


def test_keys_have_conditions_and_guards(client: Client) -> None:
    assert client.put("config", "v1", if_absent=True) == 1
    with pytest.raises(tenure.Refused) as refused:
        client.put("config", "v1", if_absent=True)
    assert refused.value.reason == "COMPARE_FAILED"
    found = client.get("config")
    assert found is not None and found.text == "v1"
    assert client.put("config", b"\xff\x00", if_modified=found.modified) == 2
    assert client.get("config").value == b"\xff\x00"  # type: ignore[union-attr]
    guard = client.lock("ledger").acquire()
    client.put("config", "paid", guard=guard)
    token = guard.token
    guard.release()
    with pytest.raises(tenure.Lost):
        client.put("config", "late", guard=guard)
    assert client.delete("config") and not client.delete("config")
    assert token


def test_a_watch_tells_changes_in_order_from_a_revision(client: Client) -> None:
    first = client.watch("jobs/", prefix=True)
    client.put("jobs/1", "a")
    client.put("jobs/2", "b")
    client.delete("jobs/1")
    seen = [next(first) for _ in range(3)]
    assert [(it.events[0].cause, it.events[0].name) for it in seen] == [
        ("key_put", "jobs/1"),
        ("key_put", "jobs/2"),
        ("key_deleted", "jobs/1"),
    ]
    again = client.watch("jobs/2", from_revision=seen[0].revision)
    assert next(again).events[0].value == b"b"
    first.close()
    again.close()
    assert list(first) == []


def test_close_waits_for_guards_and_refuses_afterwards(server: DevServer) -> None:
    client = server.client()
    guard = client.lock("open").acquire()
    with pytest.raises(tenure.StillHeld) as still:
        client.close(0.1)
    assert still.value.locks == ["open"]
    guard.check()
    guard.release()
    client.close(2)
    with pytest.raises(tenure.Closed):
        client.lock("open").acquire()


def test_a_waiting_request_ends_when_the_client_closes(server: DevServer, client: Client) -> None:
    waiting = server.client()
    queued, ended = threading.Event(), []

    def wait() -> None:
        try:
            waiting.lock("busy", on_queued=lambda _: queued.set()).acquire()
        except tenure.Error as error:
            ended.append(error)

    with client.lock("busy"):
        thread = threading.Thread(target=wait)
        thread.start()
        assert queued.wait(5)
        waiting.close(2)
        thread.join(5)
    assert [type(error) for error in ended] == [tenure.Closed]


def test_the_thousandth_request_on_one_lock_is_as_good_as_the_first(client: Client) -> None:
    tokens = []
    for _ in range(200):
        with client.lock("cycle") as guard:
            tokens.append(guard.token)
    assert tokens == sorted(set(tokens))

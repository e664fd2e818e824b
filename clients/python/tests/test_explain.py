"""Explains locks, against a real member."""

import threading
import time

import pytest

from tenure import Client, Invalid
from tenure.values import explanation


def until_waiting(client: Client, name: str, count: int) -> None:
    deadline = time.monotonic() + 10
    while client.show(name).waiting != count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_explanation_names_the_waiters_and_their_places(client: Client, other: Client) -> None:
    name = "explain/gpus"
    assert client.explain(name).holders == []
    held = client.lock(name, slots=4, take=4, max_hold=60.0).acquire()
    got = []

    def take(lock: object) -> None:
        with lock:  # type: ignore[attr-defined]
            got.append(lock)

    plain = threading.Thread(target=take, args=(other.lock(name, slots=4, take=3, supersede="main", wait=60.0),))
    plain.start()
    until_waiting(client, name, 1)
    with other.lease(15.0) as lease:
        urgent = threading.Thread(target=take, args=(lease.lock(name, slots=4, priority=3),))
        urgent.start()
        until_waiting(client, name, 2)
        explained = client.explain(name)
        first, second = explained.ahead
        assert (first.lease, first.priority, first.take, first.left, first.ahead) == (lease.id, 3, 1, None, 0)
        assert (second.client, second.take, second.slots, second.supersede, second.ahead) == ("other", 3, 4, "main", 1)
        assert second.passable > 0 and second.left is not None and second.left <= 60 and second.locks == [name]
        assert explained.chain == [(name, "test", held.lease)]
        assert explained.free_at_latest and explained.free_if_silent is None and explained.own is None
        assert explained.revision > 0 and explained.holders[0].client == "test" and explained.waiting == 2
        own = client.explain(name, lease=second.lease)
        assert own.own is not None and own.own.lease == second.lease
        assert [it.lease for it in own.ahead] == [first.lease]
        assert client.explain(name, lease=lease).ahead == []
        held.release()
        urgent.join()
    plain.join()
    assert len(got) == 2


def test_a_hold_goes_to_the_waiter_that_an_explanation_names(client: Client, other: Client) -> None:
    name = "explain/hand"
    held = client.lock(name).acquire()
    tokens = []

    def take() -> None:
        with other.lock(name) as guard:
            tokens.append(guard.token)

    thread = threading.Thread(target=take)
    thread.start()
    until_waiting(client, name, 1)
    token = held.hand_on(client.explain(name).ahead[0].lease)
    thread.join()
    assert tokens == [token]


def test_an_explanation_shows_the_closed_prefix(client: Client) -> None:
    with client.lock("explain/db/x"):
        client.drain("explain/db/", "new disks")
        drained = client.explain("explain/db/x").drained
        assert drained is not None and (drained.prefix, drained.by, drained.reason) == ("explain/db/", "test", "new disks")
        client.undrain("explain/db/")


def test_a_lease_that_cannot_be_one_is_refused_before_anything_is_sent(client: Client) -> None:
    with pytest.raises(Invalid) as refused:
        client.explain("explain/gpus", lease="x")
    assert refused.value.reason == "INVALID_FIELD"


def test_an_explanation_says_that_the_turn_of_a_lock_is_still_to_come() -> None:
    shown = {"ahead": [], "chain": []}
    assert explanation("x", 1, shown).reopening is None
    assert explanation("x", 1, {**shown, "reopening_ms": 12}).reopening == 0.012

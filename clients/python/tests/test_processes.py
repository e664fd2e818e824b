"""Forked children hold nothing, and gevent does not stop the renewals."""

import multiprocessing
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import Callable

import pytest
from conftest import ROOT

import tenure
from tenure import Client
from tenure.testing import DevServer

ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def in_child(work: Callable[[], object]) -> str:
    """Runs a function in a forked child and returns what it says."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(work())
        except BaseException as error:  # noqa: BLE001 - told to the parent
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 65536).decode()
    os.close(read)
    os.waitpid(child, 0)
    return said


def cause(guard: tenure.Guard) -> str:
    try:
        guard.check()
    except tenure.Lost as lost:
        return lost.cause
    return "held"


def test_a_forked_child_holds_nothing_and_says_so(client: Client, other: Client) -> None:
    guard = client.lock("fork").acquire()
    assert in_child(lambda: cause(guard)) == "forked"
    assert in_child(lambda: guard.standing) == "lost"
    assert in_child(lambda: guard.lost.is_set()) == "True"
    assert "a forked child holds nothing" in in_child(guard.release)
    guard.check()
    assert other.try_lock("fork") is None, "the child gave nothing back"
    # The child may use the client: it gets connections of its own.
    assert in_child(lambda: client.try_lock("fork")) == "None"
    assert in_child(lambda: client.put("from-child", "1")) == "1"
    guard.check()
    assert client.get("from-child") is not None
    guard.release()


def _work(address: str, queue: "multiprocessing.Queue[int]") -> None:
    client = Client(address)
    with client.lock("processes", wait=20) as guard:
        queue.put(guard.token)


def test_processes_take_the_lock_one_after_the_other(server: DevServer) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=_work, args=(server.address, queue)) for _ in range(3)]
    for worker in workers:
        worker.start()
    tokens = {queue.get(timeout=30) for _ in workers}
    for worker in workers:
        worker.join(20)
        assert worker.exitcode == 0
    assert len(tokens) == 3


GEVENT = """
from gevent import monkey
monkey.patch_all()
import sys, time, gevent, tenure
client = tenure.Client(sys.argv[1], ttl=4)
with client.lock("gevent") as guard:
    ticks = []
    def tick():
        for _ in range(5):
            ticks.append(1)
            gevent.sleep(0.01)
    greenlet = gevent.spawn(tick)
    # A waiting greenlet does not stop the others.
    assert client.try_lock("gevent") is None
    second = gevent.spawn(lambda: client.lock("gevent", wait=0.5).acquire())
    try:
        second.get(timeout=5)
        raise SystemExit("two holders")
    except tenure.Refused as refused:
        assert refused.reason == "WAIT_TIMEOUT", refused
    greenlet.join()
    assert len(ticks) == 5
    # The hub is blocked for longer than the ttl: renewals go on, on a thread of the operating system.
    end = time.monotonic() + 4.5
    while time.monotonic() < end:
        sum(range(1000))
    guard.check()
    assert not guard.lost.wait(0.05)
client.close()
print("ok")
"""


@pytest.mark.skipif(find_spec("gevent") is None, reason="gevent is not installed")
def test_renewals_survive_gevent_and_a_blocked_hub(server: DevServer) -> None:
    done = subprocess.run([sys.executable, "-c", GEVENT, server.address], env=ENV, capture_output=True, text=True, timeout=60)
    assert done.stdout == "ok\n", done.stderr


def test_a_client_that_is_gone_ends_its_thread_and_keeps_what_is_held(server: DevServer) -> None:
    guard = server.client(ttl=5).lock("orphan").acquire()
    engine = guard._core.engine
    assert not guard.lost.wait(3.5), "a guard outlives its client object"
    guard.release()
    deadline = time.monotonic() + 5
    while not engine.is_stopped and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.is_stopped

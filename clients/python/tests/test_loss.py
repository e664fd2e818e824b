"""What happens to guards when the network, the member or the process fails."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT, Proxy

import tenure
from tenure import Client
from tenure.testing import DevServer

TTL = 1.5


def proxied(proxy: Proxy, **settings) -> Client:
    return Client([proxy.address], name="proxied", ttl=TTL, timeout=3.0, **settings)


@pytest.mark.parametrize("fault", ["cut", "freeze"])
def test_a_client_that_is_cut_off_stops_at_half_of_the_ttl(proxy: Proxy, other: Client, fault: str) -> None:
    client = proxied(proxy)
    times = {}
    with pytest.raises(tenure.Lost) as lost, client.lock("cut") as guard:
        getattr(proxy, fault)()
        began = time.monotonic()
        assert guard.lost.wait(5)
        times["lost"] = time.monotonic() - began
        with pytest.raises(tenure.Lost):
            guard.check()
        # Another client gets it only after the whole ttl.
        assert other.try_lock("cut") is None
    assert lost.value.cause == "cluster_unreachable"
    assert TTL / 2 - TTL / 3 - 0.1 < times["lost"] < TTL / 2 + 0.2
    with other.lock("cut", wait=5):
        pass
    proxy.heal()
    with client.lock("cut", wait=5):
        pass


def test_a_short_cut_costs_nothing(proxy: Proxy) -> None:
    client = proxied(proxy)
    with client.lock("blip", ttl=6) as guard:
        for _ in range(4):
            proxy.cut()
            time.sleep(0.2)
            proxy.heal()
            time.sleep(0.4)
            guard.check()
        time.sleep(3.5)
        guard.check()


def test_a_queue_position_survives_a_broken_connection(proxy: Proxy, client: Client) -> None:
    waiting = proxied(proxy)
    queued, granted = threading.Event(), []

    def wait() -> None:
        with waiting.lock("position", wait=10, ttl=5, on_queued=lambda _: queued.set()) as guard:
            granted.append(guard.token)

    with client.lock("position"):
        thread = threading.Thread(target=wait)
        thread.start()
        assert queued.wait(5)
        proxy.cut()
        time.sleep(0.1)
        proxy.heal()
        time.sleep(0.3)
        assert client.show("position").waiting == 1
    thread.join(5)
    assert granted


def test_without_a_member_the_answers_say_what_happened() -> None:
    client = Client("127.0.0.1:1", timeout=0.5)
    began = time.monotonic()
    with pytest.raises(tenure.Unavailable) as refused:
        client.lock("nowhere").acquire()
    assert (refused.value.effect, refused.value.retryable) == ("none", True)
    assert "127.0.0.1:1 refused" in str(refused.value)
    assert 0.3 < time.monotonic() - began < 2
    began = time.monotonic()
    with pytest.raises(tenure.Unavailable):
        client.try_lock("nowhere")
    assert time.monotonic() - began < 1, "a try does not wait for a member"
    with pytest.raises(tenure.Unavailable):
        client.get("key")
    client.close(0.1)


def test_a_write_that_was_sent_and_not_answered_is_unknown(proxy: Proxy) -> None:
    client = proxied(proxy)
    client.put("warm", "1")
    proxy.freeze()
    with pytest.raises(tenure.Unknown) as unknown:
        client.put("frozen", "1")
    assert unknown.value.effect == "unknown" and not unknown.value.retryable
    assert unknown.value.request
    proxy.heal()
    again = client.put("frozen", "1", request=unknown.value.request)
    assert again == 1, "the repetition has the outcome of the first"
    with pytest.raises(tenure.Refused) as refused:
        client.put("frozen", "2", request=unknown.value.request)
    assert refused.value.reason == "REQUEST_ID_CONFLICT"


def test_check_compares_the_clock_when_no_thread_ran() -> None:
    """A process is stopped for longer than its lease is relied on: the first check after that raises."""
    code = """
import sys, time, tenure
client = tenure.Client(sys.argv[1], ttl=1.5)
guard = client.lock("frozen-process").acquire()
print("held", flush=True)
sys.stdin.readline()
try:
    guard.check()
    print("valid", flush=True)
except tenure.Lost as lost:
    print("lost", lost.cause, flush=True)
print("event", guard.lost.wait(1), flush=True)
"""
    with DevServer(os.environ.get("TENURE_BIN")) as server:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        child = subprocess.Popen([sys.executable, "-c", code, server.address], stdin=-1, stdout=-1, text=True, env=env)
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "held\n"
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(1.2)
        child.stdin.write("\n")
        child.stdin.flush()
        os.kill(child.pid, signal.SIGCONT)
        assert child.stdout.readline() == "lost local_stall\n"
        assert child.stdout.readline() == "event True\n"
        child.stdin.close()
        assert child.wait(10) == 0
        child.stdout.close()


def test_locks_are_given_back_when_the_program_ends(server: DevServer, other: Client) -> None:
    code = """
import sys, tenure
client = tenure.Client(sys.argv[1])
lease = client.lease(60)
with lease.lock("at-exit"):
    pass
client.put("alive", "1", lease=lease)
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code, server.address], check=True, env=env, timeout=20)
    assert other.get("alive") is None, "the lease was revoked"
    assert time.monotonic() - began < 10


def test_an_interrupted_wait_leaves_the_queue(server: DevServer, client: Client) -> None:
    code = """
import sys, signal, tenure
def interrupt(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGUSR1, interrupt)
waiting = tenure.Client(sys.argv[1])
try:
    waiting.lock("interrupted", on_queued=lambda _: print("queued", flush=True)).acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
waiting.close(5)
print("closed", flush=True)
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with client.lock("interrupted"):
        child = subprocess.Popen([sys.executable, "-c", code, server.address], stdout=-1, text=True, env=env)
        assert child.stdout is not None
        assert child.stdout.readline() == "queued\n"
        os.kill(child.pid, signal.SIGUSR1)
        assert child.stdout.readline() == "interrupted\n"
        assert child.stdout.readline() == "closed\n"
        assert child.wait(5) == 0
        assert client.show("interrupted").waiting == 0
        child.stdout.close()

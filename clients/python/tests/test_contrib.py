"""The adapters, with the libraries they are for. Without the library the test is left out."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, List

import pytest
from conftest import ROOT

import tenure
from tenure import Client
from tenure.testing import DevServer


def wait_until(condition: Any, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_of_several_celery_beats_one_schedules(server: DevServer, tmp_path: Path) -> None:
    celery = pytest.importorskip("celery")
    from tenure.contrib.celery import LeaderScheduler

    sent: List[str] = []

    def scheduler(name: str) -> LeaderScheduler:
        app = celery.Celery(name, broker="memory://", set_as_current=False)
        app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": 0.1}}
        app.conf.beat_schedule_filename = str(tmp_path / name)
        app.conf.tenure_client = lambda: server.client(name=name, ttl=1.5)
        app.conf.tenure_election = "beat-test"
        made = LeaderScheduler(app=app, schedule_filename=str(tmp_path / name))
        made.apply_async = lambda entry, **_: sent.append(name)
        return made

    first, second = scheduler("first"), scheduler("second")
    assert first.tick() <= 1.0
    wait_until(lambda: first.tick() is not None and len(sent) >= 2)
    began = time.monotonic()
    assert second.tick() == 1.0 and time.monotonic() - began >= 0.9, "it waits in the queue"
    assert set(sent) == {"first"}
    # The leader loses its leadership: it sends nothing, and the other one takes over.
    operator = server.client()
    leader = operator.leader("beat-test")
    assert leader is not None and leader.client == "first"
    operator.force("beat-test", leader.token, "test", now=True)
    assert first._lead is not None
    wait_until(lambda: first._lead.standing == "lost")
    entry = next(iter(first.schedule.values()))
    count = len(sent)
    first.apply_entry(entry)
    assert len(sent) == count
    wait_until(lambda: second.tick() is not None and "second" in sent)
    first.close()
    second.close()
    assert operator.leader("beat-test") is None
    operator.close()


def test_of_several_apschedulers_one_runs_the_job(server: DevServer) -> None:
    pytest.importorskip("apscheduler")
    from apscheduler.schedulers.background import BackgroundScheduler

    from tenure.contrib.apscheduler import LeaderExecutor, single

    ran: List[str] = []
    schedulers, clients = [], []
    for name in ("first", "second"):
        client = server.client(name=name)
        scheduler = BackgroundScheduler()
        executor = LeaderExecutor(client, "aps-test")
        scheduler.add_executor(executor, "leader")
        scheduler.add_job(ran.append, "interval", seconds=0.1, args=[name], executor="leader", misfire_grace_time=5)
        scheduler.start()
        schedulers.append((scheduler, executor))
        clients.append(client)
    wait_until(lambda: len(ran) >= 3)
    assert set(ran) == {"first"} and [executor.leads for _, executor in schedulers] == [True, False]
    schedulers[0][0].shutdown()
    wait_until(lambda: "second" in ran)
    schedulers[1][0].shutdown()

    inside, go = threading.Event(), threading.Event()

    @single(clients[0], "aps-job")
    def job() -> str:
        inside.set()
        assert go.wait(5)
        return "ran"

    results: List[Any] = []
    thread = threading.Thread(target=lambda: results.append(job()))
    thread.start()
    assert inside.wait(5)
    assert single(clients[1], "aps-job")(lambda: "ran too")() is None
    go.set()
    thread.join(5)
    assert results == ["ran"]
    for client in clients:
        client.close()


DJANGO = """
import sys
from django.conf import settings
settings.configure()
import django
django.setup()
from django.core.management import call_command
from tenure.contrib.django import SingleCommand

class Command(SingleCommand):
    lock_name = "django-test"
    def handle(self, *args, **options):
        self.guard.check()
        self.stdout.write(f"ran {self.guard.token}")
        if len(sys.argv) > 1:
            sys.stdin.readline()

Command().run_from_argv(["manage.py", "single", *sys.argv[2:]])
"""


def test_of_several_django_commands_one_runs(server: DevServer) -> None:
    pytest.importorskip("django")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TENURE_ADDR": server.address}
    first = subprocess.Popen([sys.executable, "-c", DJANGO, "hold"], env=env, stdin=-1, stdout=-1, text=True)
    assert first.stdout is not None and first.stdin is not None
    assert first.stdout.readline().startswith("ran ")
    second = subprocess.run([sys.executable, "-c", DJANGO], env=env, capture_output=True, text=True, timeout=30)
    assert second.returncode == 75 and "not run" in second.stderr, second
    first.stdin.close()
    assert first.wait(20) == 0
    first.stdout.close()
    third = subprocess.run([sys.executable, "-c", DJANGO], env=env, capture_output=True, text=True, timeout=30)
    assert third.returncode == 0 and third.stdout.startswith("ran "), third.stderr


def test_the_fixtures_of_pytest_start_a_member(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_lock(tenure_client):\n    with tenure_client.lock('x') as guard:\n        assert guard.token > 0\n"
    )
    # Where the package is installed, pytest would load the plugin by itself, and refuse it a second time.
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tenure.contrib.pytest", "-p", "no:cacheprovider", str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_errors_survive_pickling() -> None:
    import pickle

    from tenure import Loss

    for error in [
        tenure.Refused("HELD", "held", {"ahead": 1}),
        tenure.Lost(Loss("forced", 0, "ops", "stuck"), "deploy"),
        tenure.Unavailable("no member"),
        tenure.Unknown("sent", "id"),
        tenure.Timeout("late", "unknown"),
        tenure.Closed(),
        tenure.StillHeld(["a"]),
        tenure.Invalid("INVALID_NAME", "bad"),
        tenure.Compacted(9),
    ]:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.effect, again.retryable) == (
            type(error),
            str(error),
            error.effect,
            error.retryable,
        )
        assert again.__dict__.keys() == error.__dict__.keys()


def test_a_client_is_not_connected_before_it_is_used() -> None:
    client = Client("127.0.0.1:1")
    assert client._running is None
    client.close()
    with pytest.raises(tenure.Closed):
        client.get("x")

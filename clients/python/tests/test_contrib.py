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


def test_a_job_of_apscheduler_whose_lock_is_lost_counts_as_failed(server: DevServer) -> None:
    pytest.importorskip("apscheduler")
    from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
    from apscheduler.schedulers.background import BackgroundScheduler

    from tenure.contrib.apscheduler import LeaderExecutor, current, single

    client, operator = server.client(name="aps"), server.client(name="ops")

    def lose() -> None:
        operator.force(current().name, current().token, "stuck")
        assert current().lost.wait(5)

    def goes_on() -> str:
        lose()
        return "ran"

    def checks() -> None:
        lose()
        current().check()

    def fails() -> None:
        lose()
        raise OSError("the connection is closed")

    for job in (goes_on, checks, fails):
        with pytest.raises(tenure.Lost) as lost:
            single(client, f"aps-{job.__name__}")(job)()
        assert (lost.value.cause, lost.value.by) == ("forced", "ops")
    # A pause after the job that is cut short does not make it fail.
    done = single(client, "aps-pause", hold=60.0)(lambda: threading.Thread(target=take, args=("aps-pause",)).start() or "ran")

    def take(name: str) -> None:
        time.sleep(0.2)
        holder = operator.show(name).holders[0]
        operator.force(name, holder.token, "stuck", now=True)

    assert done() == "ran"

    events: List[Any] = []
    inside, go = threading.Event(), threading.Event()

    def long() -> None:
        inside.set()
        assert go.wait(10)

    scheduler = BackgroundScheduler()
    scheduler.add_executor(LeaderExecutor(client, "aps-lead"), "leader")
    scheduler.add_listener(events.append, EVENT_JOB_ERROR | EVENT_JOB_EXECUTED)
    scheduler.add_job(long, executor="leader", misfire_grace_time=60)
    scheduler.start()
    assert inside.wait(10)
    leader = operator.leader("aps-lead")
    assert leader is not None
    operator.force("aps-lead", leader.token, "stuck")
    executor = scheduler._executors["leader"]
    wait_until(lambda: not executor.leads)
    go.set()
    wait_until(lambda: events)
    assert events[0].code == EVENT_JOB_ERROR and isinstance(events[0].exception, tenure.Lost), events
    assert events[0].exception.by == "ops"
    scheduler.shutdown()
    with pytest.raises(RuntimeError):
        current()
    client.close()
    operator.close()


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


DJANGO_LOST = """
import sys, tenure
from django.conf import settings
settings.configure()
import django
django.setup()
from tenure.contrib.django import SingleCommand

class Command(SingleCommand):
    lock_name = "django-lost"
    def handle(self, *args, **options):
        if sys.argv[1] == "refused":
            raise tenure.Refused("HELD", "another lock")
        with tenure.Client.from_env(name="ops") as ops:
            ops.force("django-lost", self.guard.token, "stuck")
        assert self.guard.lost.wait(5)
        if sys.argv[1] == "checks":
            self.guard.check()
        if sys.argv[1] == "fails":
            raise OSError("the connection is closed")

Command().run_from_argv(["manage.py", "single", "--wait", "10"])
"""


def test_a_django_command_whose_lock_is_lost_does_not_end_as_if_it_had_run(server: DevServer) -> None:
    pytest.importorskip("django")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TENURE_ADDR": server.address}

    def run(how: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", DJANGO_LOST, how]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)

    for how in ("goes on", "checks", "fails"):
        done = run(how)
        assert done.returncode == 75 and "stopped: " in done.stderr and "stuck" in done.stderr, (how, done)
    refused = run("refused")
    assert "not run" not in refused.stderr and "another lock" in refused.stderr, "it did run"


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

"""APScheduler (3.x) on every machine: each job runs on one of them.

```python
scheduler.add_job(single(client, "nightly")(report), "cron", hour=3)
```

`single` makes a function that runs under a lock of that name, and does nothing where another machine runs it.
`LeaderExecutor` does so for all jobs of a scheduler.

A thread cannot be stopped from outside. A long job calls `current().check()` before each step, which raises `Lost` as soon as
the lock is lost. A job that ends after that counts as failed: the scheduler tells its listeners `EVENT_JOB_ERROR` with `Lost`,
because the job may have overlapped with the next one.
"""

import functools
import logging
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Callable, Iterator, List, Optional, TypeVar, Union

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.executors.base import run_job
from apscheduler.executors.pool import ThreadPoolExecutor

from .. import Client, Guard, Lost
from ..errors import Error

__all__ = ["LeaderExecutor", "current", "single"]

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("tenure.apscheduler")


_current: "ContextVar[Optional[Guard]]" = ContextVar("tenure_apscheduler", default=None)


def current() -> Guard:
    """In a job: the lock, or the leadership, under which it runs. `current().check()` raises `Lost` once that is lost."""
    guard = _current.get()
    if guard is None:
        raise RuntimeError("this is no job that runs under `single` or `LeaderExecutor`")
    return guard


@contextmanager
def _under(guard: Guard) -> Iterator[None]:
    """Makes the guard that of the job that runs now."""
    before = _current.set(guard)
    try:
        yield
    finally:
        _current.reset(before)


def single(client: Union[Client, Callable[[], Client]], lock: str, *, hold: float = 0.0, **options: Any) -> Callable[[F], F]:
    """Runs a job only where the lock is free; elsewhere the call returns `None` at once.

    `hold` seconds pass before the lock is given back at the earliest, so that a machine whose clock is late by less than that
    does not run the same tick again.

    If the lock is lost before the job has ended, the call raises `Lost`, whatever the job returned or raised.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            owner = client if isinstance(client, Client) else client()
            guard = owner.try_lock(lock, **options)
            if guard is None:
                _log.info("%s is not run: another client holds lock `%s`", function.__name__, lock)
                return None
            began = time.monotonic()
            with guard:
                try:
                    with _under(guard):
                        done = function(*args, **kwargs)
                except Exception as error:
                    lost = _loss(guard)
                    if lost is not None:
                        raise lost from error
                    raise
                guard.check()
                guard.lost.wait(max(began + hold - time.monotonic(), 0.0))
                try:
                    guard.release()
                except Lost as late:
                    # The job has ended under the lock: only the pause after it was cut short.
                    _log.warning("lock `%s` was not held for the whole pause after %s: %s", lock, function.__name__, late)
                return done

        return run  # type: ignore[return-value]

    return decorate


def _loss(guard: Guard) -> Optional[Lost]:
    try:
        guard.check()
    except Lost as lost:
        return lost
    return None


class LeaderExecutor(ThreadPoolExecutor):  # type: ignore[misc]
    """Runs the jobs of a scheduler only on the machine that leads an election."""

    def __init__(self, client: Client, election: str = "apscheduler", **options: Any) -> None:
        super().__init__(**options)
        self._client = client
        self._election = election
        self._lead: Optional[Any] = None

    def start(self, scheduler: Any, alias: str) -> None:
        """Begins to campaign, in the background."""
        super().start(scheduler, alias)
        self._campaign()

    def shutdown(self, wait: bool = True) -> None:
        """Waits for running jobs, then resigns."""
        super().shutdown(wait)
        lead, self._lead = self._lead, None
        if lead is not None:
            try:
                lead.resign()
            except Error:
                # It is lost, or ends with its lease.
                pass

    @property
    def leads(self) -> bool:
        """Whether this machine leads at this moment."""
        lead = self._lead
        return lead is not None and lead.standing != "lost"

    def submit_job(self, job: Any, run_times: Any) -> None:
        """Runs a job, if this machine leads."""
        if not self.leads:
            self._campaign()
        if self.leads:
            super().submit_job(job, run_times)
        else:
            _log.debug("job %s is not run: this machine does not lead `%s`", job.id, self._election)

    def _do_submit_job(self, job: Any, run_times: Any) -> None:
        """Hands a job to the pool, under the leadership of this moment."""
        lead = self._lead
        assert lead is not None, "it leads"

        def run() -> List[JobExecutionEvent]:
            lost = _loss(lead)
            if lost is not None:
                # It was queued for longer than this machine has led.
                return [_failed(job.id, job._jobstore_alias, run_time, lost) for run_time in run_times]
            with _under(lead):
                events = run_job(job, job._jobstore_alias, run_times, self._logger.name)
            lost = _loss(lead)
            if lost is None:
                return list(events)
            _log.error("job %s may have overlapped with the next leader's: %s", job.id, lost)
            return [
                _failed(event.job_id, event.jobstore, event.scheduled_run_time, lost)
                if event.code in (EVENT_JOB_EXECUTED, EVENT_JOB_ERROR)
                else event
                for event in events
            ]

        def told(done: Any) -> None:
            error = done.exception()
            if error is None:
                self._run_job_success(job.id, done.result())
            else:
                self._run_job_error(job.id, error, error.__traceback__)

        self._pool.submit(run).add_done_callback(told)

    def _campaign(self) -> None:
        try:
            self._lead = self._client.elect(self._election, self._client.name, wait=0).acquire()
        except Lost as lost:
            _log.warning("does not lead `%s`: %s", self._election, lost)
        except Error as error:
            _log.debug("does not lead `%s`: %s", self._election, error)


def _failed(job_id: str, jobstore: str, run_time: Any, lost: Lost) -> JobExecutionEvent:
    """What listeners are told of a job whose leadership was lost."""
    return JobExecutionEvent(EVENT_JOB_ERROR, job_id, jobstore, run_time, exception=lost, traceback="")

"""APScheduler (3.x) on every machine: each job runs on one of them.

```python
scheduler.add_job(single(client, "nightly")(report), "cron", hour=3)
```

`single` makes a function that runs under a lock of that name, and does nothing where another machine runs it.
`LeaderExecutor` does so for all jobs of a scheduler.
"""

import functools
import logging
import time
from typing import Any, Callable, Optional, TypeVar, Union

from apscheduler.executors.pool import ThreadPoolExecutor

from .. import Client, Lost
from ..errors import Error

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("tenure.apscheduler")


def single(client: Union[Client, Callable[[], Client]], lock: str, *, hold: float = 0.0, **options: Any) -> Callable[[F], F]:
    """Runs a job only where the lock is free; elsewhere the call returns `None` at once.

    `hold` seconds pass before the lock is given back at the earliest, so that a machine whose clock is late by less than that
    does not run the same tick again.
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
                done = function(*args, **kwargs)
                # The lock may be lost meanwhile, which ends the pause: the job has run.
                guard.lost.wait(max(began + hold - time.monotonic(), 0.0))
                return done

        return run  # type: ignore[return-value]

    return decorate


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

    def _campaign(self) -> None:
        try:
            self._lead = self._client.elect(self._election, self._client.name, wait=0).acquire()
        except Lost as lost:
            _log.warning("does not lead `%s`: %s", self._election, lost)
        except Error as error:
            _log.debug("does not lead `%s`: %s", self._election, error)

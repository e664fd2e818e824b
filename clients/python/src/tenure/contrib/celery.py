"""Celery beat on every machine, of which only one schedules.

`celery -A app beat -S tenure.contrib.celery:LeaderScheduler`. The election is called by the setting `tenure_election`
(`celery-beat` without it), and the client is `Client.from_env()` unless `tenure_client` is a function that makes one.

The instance that leads schedules as ever; the others wait in the queue, and one of them takes over when the leader stops, is
killed or cut off. A leader that loses its leadership sends no further task: before each one it compares the clock.
"""

import logging
from typing import Any, Optional

from celery.beat import PersistentScheduler

from .. import Client, Leadership, Lost, Refused, Unavailable, Unknown
from ..errors import Error

_log = logging.getLogger("tenure.celery")

# How many seconds a waiting instance sleeps between two polls of the queue.
_STEP = 1.0


class LeaderScheduler(PersistentScheduler):  # type: ignore[misc]
    """Celery's own scheduler, which does nothing unless this instance leads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._client: Optional[Client] = None
        self._lead: Optional[Leadership] = None
        super().__init__(*args, **kwargs)

    @property
    def election(self) -> str:
        """The name of the election."""
        return str(self.app.conf.get("tenure_election") or "celery-beat")

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Sends what is due, if this instance leads. Returns in how many seconds to look again."""
        if not self._leads():
            return _STEP
        return min(float(super().tick(*args, **kwargs)), _STEP)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Sends one task; not if leadership was lost a moment ago."""
        if self._lead is None or self._lead.standing == "lost":
            _log.warning("%s is not sent: this instance does not lead any more", entry.name)
            return
        super().apply_entry(entry, producer)

    def close(self) -> None:
        """Resigns, so that another instance takes over at once."""
        super().close()
        self._resign()
        if self._client is not None:
            try:
                self._client.close(2.0)
            except Error as error:
                _log.warning("cannot resign; the lease runs out: %s", error)

    def _leads(self) -> bool:
        if self._lead is not None:
            try:
                self._lead.check()
            except Lost as lost:
                _log.warning("does not lead `%s` any more: %s", self.election, lost)
                self._resign()
            else:
                return True
        if self._client is None:
            make = self.app.conf.get("tenure_client") or Client.from_env
            self._client = make()
        try:
            campaign = self._client.elect(self.election, self._client.name, wait=_STEP)
            self._lead = campaign.acquire()
        except (Refused, Unavailable, Unknown) as error:
            if not isinstance(error, Refused) or error.reason != "WAIT_TIMEOUT":
                _log.warning("cannot campaign for `%s`: %s", self.election, error)
            return False
        _log.info("leads `%s` with token %s", self.election, self._lead.token)
        # What was due while another instance led has been sent by that one: count from now on.
        for entry in self.schedule.values():
            entry.last_run_at = entry.default_now()
        self._heap = None
        return True

    def _resign(self) -> None:
        lead, self._lead = self._lead, None
        if lead is not None:
            try:
                lead.resign()
            except Error:
                # It is lost, or ends with its lease.
                pass

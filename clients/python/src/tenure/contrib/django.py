"""Django management commands of which one runs at a time, on however many machines.

```python
class Command(SingleCommand):
    lock_name = "import-orders"       # the name of the command without it

    def handle(self, *args, **options):
        for row in rows:
            self.guard.check()        # raises Lost if the lock is lost
            write(row, token=self.guard.token)
```

The client is `Client.from_env()`, or what the setting `TENURE_CLIENT` makes. `--no-wait` and `--wait SECONDS` say whether a
command queues while another one runs; without them `lock_wait` counts.

If the lock is lost, `self.guard.check()` raises `Lost`; a command that does not check goes on. Either way it exits with 75 and
`stopped: …`, never with 0. A command that could not get the lock exits with 75, 69 or 1 and `not run: …`.
"""

from typing import Any, Optional

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from .. import Client, Guard, Lost, Refused
from ..errors import Error

__all__ = ["SingleCommand", "SingleCommandMixin"]


class SingleCommandMixin:
    """Runs `handle` under a lock. Put it before `BaseCommand`."""

    lock_name: Optional[str] = None
    """The lock; without it the name of the command."""
    lock_wait: Optional[float] = 0.0
    """Seconds to queue while another instance runs; 0 does not, `None` is without limit."""
    lock_ttl: Optional[float] = None
    """Seconds that the lease lives after a renewal."""
    guard: Guard
    """The lock, while `handle` runs."""

    def create_parser(self, *args: Any, **kwargs: Any) -> Any:
        """Adds the options of the lock."""
        parser = super().create_parser(*args, **kwargs)  # type: ignore[misc]
        parser.add_argument("--wait", type=float, dest="tenure_wait", metavar="SECONDS", help="queue for at most so long")
        parser.add_argument("--no-wait", action="store_const", const=0.0, dest="tenure_wait", help="do not queue")
        return parser

    def make_client(self) -> Client:
        """The client: what the setting `TENURE_CLIENT` makes, or that of the environment."""
        make = getattr(settings, "TENURE_CLIENT", None)
        return make() if make is not None else Client.from_env()

    def execute(self, *args: Any, **options: Any) -> Any:
        """Waits for the lock, runs the command, and releases it."""
        name = self.lock_name or type(self).__module__.rpartition(".")[2]
        given = options.pop("tenure_wait", None)
        wait = self.lock_wait if given is None else given
        with self.make_client() as client:
            try:
                guard = client.lock(name, wait=wait, ttl=self.lock_ttl).acquire()
            except Refused as refused:
                raise CommandError(f"not run: {refused}", returncode=75 if refused.retryable else 1) from refused
            except Error as error:
                raise CommandError(f"not run: {error}", returncode=69) from error
            try:
                with guard as self.guard:
                    return super().execute(*args, **options)  # type: ignore[misc]
            except Lost as lost:
                raise CommandError(f"stopped: {lost}", returncode=75) from lost
            except Exception as error:
                # Work that was cut off by the loss fails in its own way.
                if guard.lost.loss is None or guard.lost.loss.cause == "released":
                    raise
                raise CommandError(f"stopped: lost lock `{name}`: {guard.lost.loss}", returncode=75) from error


class SingleCommand(SingleCommandMixin, BaseCommand):  # type: ignore[misc]
    """A management command of which one instance runs at a time."""

"""Locks, leases and elections from a Tenure cluster, for asyncio. The twin for threads is `tenure`.

```python
from tenure import aio

client = aio.Client()
async with client.lock("deploy") as guard:      # if the lock is lost, the task is cancelled and Lost is raised
    await migrate(token=guard.token)
```
"""

from .client import Client, Observer, Watch
from .guard import Guard, Leadership, Lease, Lock, LossEvent

__all__ = ["Client", "Guard", "Leadership", "Lease", "Lock", "LossEvent", "Observer", "Watch"]

"""Locks, leases and elections from a Tenure cluster, for threads. The twin for asyncio is `tenure.aio`.

```python
import tenure

client = tenure.Client()                        # 127.0.0.1:7450, or Client.from_env()
with client.lock("deploy") as guard:
    guard.check()                               # raises Lost if the lock is lost; only compares the clock
    print("token", guard.token)                 # larger at every grant: let the database compare it
```
"""

from ._held import HeldLock
from ._loss import Loss
from .client import Client, Observer, Watch
from .errors import (
    Closed,
    Compacted,
    Error,
    FenceFailed,
    Invalid,
    Lost,
    Refused,
    StillHeld,
    Timeout,
    Unavailable,
    Unknown,
)
from .guard import Guard, Leadership, Lease, Lock, LossEvent
from .values import Batch, ChainStep, Drain, Event, Explanation, Holder, KeyValue, Leader, LockInfo, Past, Waiter

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "ChainStep",
    "Client",
    "Closed",
    "Compacted",
    "Drain",
    "Error",
    "Event",
    "Explanation",
    "FenceFailed",
    "Guard",
    "HeldLock",
    "Holder",
    "Invalid",
    "KeyValue",
    "Leader",
    "Leadership",
    "Lease",
    "Lock",
    "LockInfo",
    "Loss",
    "LossEvent",
    "Lost",
    "Observer",
    "Past",
    "Refused",
    "StillHeld",
    "Timeout",
    "Unavailable",
    "Unknown",
    "Waiter",
    "Watch",
]

"""Acquires, shows and releases a lock with a client that was generated from the OpenAPI description.

Usage: openapi.py PACKAGE_DIRECTORY URL
"""

import sys

sys.path.insert(0, sys.argv[1])

from generated import Client
from generated.api.leases import grant_lease, revoke_lease
from generated.api.locks import acquire_lock, release_lock, show_lock
from generated.models import Acquire, Acquired, ErrorBody, GrantLease, LockAnswer

client = Client(base_url=sys.argv[2])
lock = "team/deploy"
lease = grant_lease.sync(client=client, body=GrantLease(ttl_ms=60_000, client="generated")).lease

held = acquire_lock.sync(lock, client=client, body=Acquire(lease=lease))
assert isinstance(held, Acquired) and held.token, held

shown = show_lock.sync(lock, client=client)
assert isinstance(shown, LockAnswer), shown
assert [it.token for it in shown.lock.holders] == [held.token], shown
assert shown.lock.holders[0].client == "generated", shown

# A refusal has the type that the description gives it.
other = grant_lease.sync(client=client, body=GrantLease(ttl_ms=60_000, client="other")).lease
refused = acquire_lock.sync_detailed(lock, client=client, body=Acquire(lease=other))
assert refused.status_code == 423 and isinstance(refused.parsed, ErrorBody), refused

released = release_lock.sync_detailed(lock, client=client, lease=lease, token=held.token)
assert released.status_code == 200, released
again = acquire_lock.sync(lock, client=client, body=Acquire(lease=other))
assert isinstance(again, Acquired) and int(again.token) > int(held.token), again
for it in (lease, other):
    assert revoke_lease.sync_detailed(it, client=client).status_code == 200
print("ok")

"""Tests a client in another language that has nothing but the .proto files.

Usage: locks.py ADDRESS (the generated stubs are on the path). Says `ok` at the end.
"""

import queue
import sys
import uuid

import grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from tenure.v1 import common_pb2, key_pb2, key_pb2_grpc, lock_pb2, lock_pb2_grpc
from tenure.v1 import locks_pb2, session_pb2, session_pb2_grpc

WITHIN = 30
# Before every name, so that the script can run twice against one cluster.
RUN = str(uuid.uuid4())
DEPLOY, SHARED, WATCHED = f"{RUN}/deploy", f"{RUN}/shared", f"{RUN}/watched/"


class Requests:
    """A stream of requests that is fed while its answers are read."""

    def __init__(self):
        self.waiting = queue.Queue()

    def send(self, request):
        self.waiting.put(request)

    def end(self):
        self.waiting.put(None)

    def __iter__(self):
        return iter(self.waiting.get, None)


def refused(call, code, reason, effect="none"):
    """What a refused call tells, by metadata and by the details that standard libraries unpack."""
    try:
        answer = call()
    except grpc.RpcError as error:
        assert error.code() == code, error
        metadata = dict(error.trailing_metadata())
        assert metadata["tenure-reason"] == reason, metadata
        assert metadata["tenure-effect"] == effect, metadata
        status = rpc_status.from_call(error)
        assert status.code == code.value[0] and status.message == error.details(), status
        details = common_pb2.Error()
        assert status.details[0].Unpack(details), status
        assert details.reason == reason and details.message == status.message, details
        return details
    raise AssertionError(f"not refused: {answer}")


def leases_and_locks(channel):
    stub = lock_pb2_grpc.LockServiceStub(channel)
    lease = stub.LeaseGrant(lock_pb2.LeaseGrantRequest(ttl=30, client_id="py"), timeout=WITHIN)
    other = stub.LeaseGrant(lock_pb2.LeaseGrantRequest(ttl=30, client_id="other"), timeout=WITHIN)
    assert lease.id > 0 and lease.ttl == 30 and lease.header.cluster_id > 0
    ask = lock_pb2.LockRequest(name=DEPLOY, lease_id=lease.id, metadata=b"v1", timeout_ms=0)
    taken = stub.Lock(ask, timeout=WITHIN)
    assert taken.acquired and taken.fencing_token > 0 and taken.key == DEPLOY
    held = stub.TryLock(lock_pb2.TryLockRequest(name=DEPLOY, lease_id=other.id), timeout=WITHIN)
    assert not held.acquired and held.reason == "HELD" and held.holder.client == "py"
    late = stub.Lock(lock_pb2.LockRequest(name=DEPLOY, lease_id=other.id, timeout_ms=20))
    assert not late.acquired and late.reason == "WAIT_TIMEOUT"
    unlock = lock_pb2.UnlockRequest(name=DEPLOY, lease_id=other.id, token=taken.fencing_token)
    details = refused(
        lambda: stub.Unlock(unlock, timeout=WITHIN),
        grpc.StatusCode.FAILED_PRECONDITION,
        "NOT_HOLDER",
    )
    assert details.lock == DEPLOY and details.next
    unlock.lease_id = lease.id
    key = (("idempotency-key", f"{RUN}/unlock"),)
    first = stub.Unlock(unlock, metadata=key, timeout=WITHIN)
    again = stub.Unlock(unlock, metadata=key, timeout=WITHIN)
    assert first.header.revision <= again.header.revision
    refused(
        lambda: stub.LeaseRevoke(lock_pb2.LeaseRevokeRequest(id=99), timeout=WITHIN),
        grpc.StatusCode.NOT_FOUND,
        "LEASE_NOT_FOUND",
    )
    details = refused(
        lambda: stub.LeaseGrant(lock_pb2.LeaseGrantRequest(ttl=0), timeout=WITHIN),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_TTL",
    )
    assert details.limit == "ttl_min_ms" and details.bound == 1000
    return lease.id, other.id


def renewals(channel, lease):
    stub = lock_pb2_grpc.LockServiceStub(channel)
    requests = Requests()
    answers = stub.LeaseKeepAlive(iter(requests), timeout=WITHIN)
    for id, ttl in ((lease, 30), (4242, 0), (lease, 30)):
        requests.send(lock_pb2.LeaseKeepAliveRequest(id=id))
        answer = next(answers)
        assert (answer.id, answer.ttl) == (id, ttl), answer
    requests.end()
    assert list(answers) == []


def watches(channel, lease):
    stub = lock_pb2_grpc.LockServiceStub(channel)
    requests = Requests()
    answers = stub.Watch(iter(requests), timeout=WITHIN)
    requests.send(lock_pb2.WatchRequest(key=WATCHED, prefix=True, watch_id=5))
    assert next(answers).created
    taken = stub.TryLock(lock_pb2.TryLockRequest(name=f"{WATCHED}a", lease_id=lease))
    keys = key_pb2_grpc.KeyServiceStub(channel)
    put = keys.Put(key_pb2.PutRequest(key=f"{WATCHED}k", value=b"1"), timeout=WITHIN)
    granted, written = next(answers), next(answers)
    assert granted.watch_id == 5 and granted.events[0].cause == common_pb2.CAUSE_GRANTED
    assert granted.events[0].token == taken.fencing_token and granted.events[0].client == "py"
    assert written.revision == put.header.revision and written.events[0].kv.value == b"1"
    requests.send(lock_pb2.WatchRequest(watch_id=5, cancel=True))
    assert next(answers).canceled
    requests.end()


def sessions(channel):
    stub = session_pb2_grpc.SessionServiceStub(channel)
    requests = Requests()
    answers = stub.Open(iter(requests), timeout=WITHIN)
    requests.send(session_pb2.SessionRequest(hello=session_pb2.Hello(client="py/session")))
    welcome = next(answers).welcome
    assert welcome.header.member_id > 0 and welcome.in_flight_max > 0
    seen, grants = {}, []

    def answered(id):
        while id not in seen:
            message = next(answers)
            seen.update((answer.id, answer) for answer in message.answers)
            grants.extend(message.grants)
        return seen[id]

    new = common_pb2.NewLease(ttl_ms=30000)
    both = [session_pb2.Request(id=id, grant_lease=new) for id in (1, 2)]
    requests.send(session_pb2.SessionRequest(requests=both))
    first, second = answered(1).lease_granted, answered(2).lease_granted
    acquires = [
        session_pb2.Request(id=id, acquire=locks_pb2.AcquireRequest(lock=SHARED, lease=it.lease))
        for id, it in ((3, first), (4, second))
    ]
    requests.send(session_pb2.SessionRequest(requests=acquires))
    token = answered(3).acquired.token
    assert answered(4).WhichOneof("result") == "queued"
    release = locks_pb2.ReleaseRequest(lock=SHARED, lease=first.lease, token=token)
    wrong = locks_pb2.ReleaseRequest(lock=SHARED, lease=second.lease, token=token)
    pair = [session_pb2.Request(id=5, release=wrong), session_pb2.Request(id=6, release=release)]
    requests.send(session_pb2.SessionRequest(requests=pair))
    assert answered(5).error.reason == "NOT_HOLDER"
    assert answered(6).WhichOneof("result") == "released"
    while not grants:
        grants.extend(next(answers).grants)
    assert grants[0].id == 4 and grants[0].lock == SHARED and grants[0].token > token
    requests.end()


def reflection(channel):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    answer = next(stub.ServerReflectionInfo(iter([ask]), timeout=WITHIN))
    names = {service.name for service in answer.list_services_response.service}
    for name in "Lock LockAdmin Lease Key Election Cluster Maintenance Session".split():
        assert f"tenure.v1.{name}Service" in names, names
    assert "grpc.health.v1.Health" in names, names


def unknown(channel):
    call = channel.unary_unary("/tenure.v1.LockService/Steal", bytes, bytes)
    refused(lambda: call(b"", timeout=WITHIN), grpc.StatusCode.UNIMPLEMENTED, "UNKNOWN_OPERATION")


def main(address):
    with grpc.insecure_channel(address) as channel:
        lease, _ = leases_and_locks(channel)
        renewals(channel, lease)
        watches(channel, lease)
        sessions(channel)
        reflection(channel)
        unknown(channel)
    print("ok")


main(sys.argv[1])

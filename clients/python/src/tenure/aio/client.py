"""The client for asyncio."""

from __future__ import annotations

import functools
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Coroutine, List, Optional, Type, TypeVar, Union

from .. import _operations
from .._ask import ANY, POOL, Ask, Value, check_lease, check_name, is_number
from .._base import BaseClient, BaseGuard, BaseLease
from .._engine import Engine
from .._operations import Time
from .._settings import us
from .._watching import LeaderFeed, WatchFeed
from ..errors import Closed, Invalid
from ..values import Batch, Drain, Explanation, KeyValue, Leader, LockInfo, Past
from ..values import leader as read_leader
from .guard import Campaign, Guard, Lease, Lock, finished

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._options import CampaignOptions, LockOptions, PoolOptions

__all__ = ["Client", "Observer", "Watch"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


class Watch:
    """The changes of locks and keys, revision by revision: each once and in order, across reconnects."""

    def __init__(self, engine: Engine, feed: WatchFeed) -> None:
        self._engine = engine
        self._feed = feed

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        """Waits for the next changes. `Unavailable` means that no member can be reached: call it again to go on."""
        batch = await finished(self._engine.submit(self._feed.next))
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def close(self) -> None:
        """Ends the watch."""
        self._engine.loop.call(self._feed.end)

    def __del__(self) -> None:
        self._engine.loop.call(self._feed.end)


class Observer:
    """Who leads an election: the current leader first, then each change. `None` means that no client leads."""

    def __init__(self, engine: Engine, feed: LeaderFeed) -> None:
        self._engine = engine
        self._feed = feed

    def __aiter__(self) -> AsyncIterator[Optional[Leader]]:
        return self

    async def __anext__(self) -> Optional[Leader]:
        more, leader = await finished(self._engine.submit(self._feed.next))
        if not more:
            raise StopAsyncIteration
        return leader

    async def close(self) -> None:
        """Ends the observation."""
        self._engine.loop.call(self._feed.end)

    def __del__(self) -> None:
        self._engine.loop.call(self._feed.end)


class Client(BaseClient):
    __doc__ = BaseClient.__doc__

    _is_closed = False

    async def _do(self, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        engine = self._live_engine()
        return await finished(engine.submit(lambda: work(engine)))

    def _live_engine(self) -> Engine:
        if self._is_closed:
            raise Closed
        return self._engine

    async def connect(self) -> Client:
        """Waits until a member has answered. Not needed: every request does that."""
        await self._do(_operations.connect)
        return self

    # Locks.

    def lock(self, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """A request for a lock, or for several at once, all or none: `async with client.lock("deploy") as guard:`.

        `wait` seconds are spent in the queue at most: without it there is no limit, 0 does not queue. `timeout` bounds the
        whole call. Further: `ttl`, `shared`, `slots`, `take`, `metadata`, `max_hold`, `min_hold`, `lock_delay`, `priority`,
        `supersede`, `progress_within`, `window`, `grace`, `independent`, `on_queued`, `fence`. Durations are seconds.
        """
        return Lock(self._live_engine, Ask(self._settings, names, **options))

    def lock_any(self, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """A request for any one of several locks: the first, in the order of names, that is free.

        Until then it waits in the queues of all of them and keeps its turn in each. `Guard.name` tells which one it is. The
        options are those of `lock`. Needs feature level 13.
        """
        return Lock(self._live_engine, Ask(self._settings, names, ANY, **options))

    def pool(self, prefix: str, **options: Unpack[PoolOptions]) -> Lock:
        """A request for any slot of a pool: `async with client.pool("gpu/") as gpu:`. `Guard.name` tells which slot it is.

        The slots of `gpu/` are the semaphores below this prefix whose sizes an operator has set with `resize`. The request
        also waits for slots that are added later. `Refused` with `POOL_EMPTY`: there is none, or none as large as `take`.
        Needs feature level 13.
        """
        return Lock(self._live_engine, Ask(self._settings, [prefix], POOL, **options))

    async def try_lock(self, *names: str, **options: Unpack[LockOptions]) -> Optional[Guard]:
        """Does not queue. Returns the guard, or `None` if another client holds the lock."""
        return await self.lock(*names, **options).try_acquire()

    def locked(self, *names: str, pass_guard: bool = False, **options: Unpack[LockOptions]) -> Callable[[F], F]:
        """A decorator: every call waits for the lock, runs, and releases it. `pass_guard` passes `guard=` to the function."""
        lock = self.lock(*names, **options)

        def decorate(function: F) -> F:
            @functools.wraps(function)
            async def locked(*args: Any, **kwargs: Any) -> Any:
                async with lock as guard:
                    if pass_guard:
                        kwargs["guard"] = guard
                    return await guard.run(function(*args, **kwargs))

            return locked  # type: ignore[return-value]

        return decorate

    async def run(self, name: str, work: Callable[[Guard], Awaitable[T]], **options: Unpack[LockOptions]) -> T:
        """Waits for the lock, runs `work(guard)`, and releases it. Returns only if the lock was held until it had ended."""
        async with self.lock(name, **options) as guard:
            return await guard.run(work(guard))

    async def lease(self, ttl: Optional[float] = None, *, metadata: Optional[Value] = None) -> Lease:
        """A lease of your own, under which several locks and keys are held: `async with client.lease() as lease:`."""
        timing = self._settings.timing(ttl, None, None)
        return Lease(await self._do(lambda engine: _operations.grant_lease(engine, timing, metadata)))

    # Elections.

    def elect(self, election: str, value: Value = "", **options: Unpack[CampaignOptions]) -> Campaign:
        """A candidacy with a value for others to see: `async with client.elect("billing", "10.0.0.5:9000") as lead:`."""
        ask = {**options, "metadata": value, "election": True}
        return Campaign(Lock(self._live_engine, Ask(self._settings, [election], **ask)))  # type: ignore[arg-type]

    async def leader(self, election: str) -> Optional[Leader]:
        """The current leader, if there is one."""
        shown = await self._do(lambda engine: _operations.leader(engine, check_name(election)))
        return None if shown is None else read_leader(shown)

    async def observe(self, election: str) -> Observer:
        """Follows who leads: `async for leader in await client.observe("billing"):`."""
        engine = self._live_engine()
        feed = LeaderFeed(engine, election)
        await self._do(lambda _: feed.start())
        return Observer(engine, feed)

    # Keys.

    async def get(self, key: str) -> Optional[KeyValue]:
        """Reads a key; `None` if it does not exist."""
        return await self._do(lambda engine: _operations.get(engine, check_name(key)))

    async def put(
        self,
        key: str,
        value: Value,
        *,
        if_absent: bool = False,
        if_modified: Optional[int] = None,
        if_value: Optional[Value] = None,
        guard: Optional[BaseGuard] = None,
        lease: Optional[BaseLease] = None,
        request: Optional[str] = None,
    ) -> int:
        """Writes a key exactly once, and returns its version.

        With `guard` it is written only while that lock is held under its token: the cluster itself is the fence. A key with a
        `lease` ends with it. `request` repeats a write whose outcome is `Unknown`, under the id that the exception has.
        """
        body = _operations.write_body(key, if_absent, if_modified, if_value, None if guard is None else guard._core)
        name = None if lease is None else lease.id
        return (await self._do(lambda engine: _operations.put(engine, body, value, name, request)))[1]

    async def delete(
        self,
        key: str,
        *,
        if_modified: Optional[int] = None,
        if_value: Optional[Value] = None,
        guard: Optional[BaseGuard] = None,
        request: Optional[str] = None,
    ) -> bool:
        """Deletes a key exactly once, and returns whether it existed."""
        body = _operations.write_body(key, False, if_modified, if_value, None if guard is None else guard._core)
        return await self._do(lambda engine: _operations.delete(engine, body, request))

    async def watch(
        self, name: str, *, prefix: bool = False, from_revision: Optional[int] = None, previous: bool = False
    ) -> Watch:
        """Follows the changes of a lock or key, or with `prefix` of all whose names begin so."""
        engine = self._live_engine()
        feed = WatchFeed(engine, name, prefix, from_revision, previous)
        await self._do(lambda _: feed.start())
        return Watch(engine, feed)

    # What operators need.

    async def show(self, lock: str) -> LockInfo:
        """Shows who holds a lock, and how many wait."""
        return await self._do(lambda engine: _operations.show(engine, check_name(lock)))

    async def explain(self, lock: str, *, lease: Union[str, BaseLease, None] = None) -> Explanation:
        """Shows who holds a lock, who waits and when it can be free; with a `lease`, who is before it and its own place."""
        name = lease.id if isinstance(lease, BaseLease) else lease
        if name is not None:
            check_lease(name)
        return await self._do(lambda engine: _operations.explain(engine, check_name(lock), name))

    async def locks(self, prefix: str = "") -> List[LockInfo]:
        """Lists the locks that are held or awaited."""
        return await self._do(lambda engine: _operations.locks(engine, prefix))

    async def history(
        self,
        lock: str,
        *,
        prefix: bool = False,
        since: Optional[Time] = None,
        until: Optional[Time] = None,
        client: Optional[str] = None,
        lost: bool = False,
        limit: int = 1000,
    ) -> Past:
        """What happened to a lock, or with `prefix` to all whose names begin so, the newest revision last.

        Comes from the cluster and from the archive of the member that answers. `since` and `until` are times: a datetime,
        or seconds since 1970. `client` is the beginning of a client's name. `lost` tells only of ends of holds that the
        holder did not ask for.
        """
        if not is_number(limit, 1):
            raise Invalid("INVALID_FIELD", f"`limit` is a number of at least 1, not {limit!r}")
        path, query = _operations.history_path(lock, prefix, since, until, client, lost)
        return await self._do(lambda engine: _operations.history(engine, path, query, limit))

    async def force(self, lock: str, token: int, reason: str, *, by: Optional[str] = None, now: bool = False) -> float:
        """Takes a lock away from the holder with this token, who is told the reason.

        Returns the seconds after which it is free at the latest. `now` does not let the holder stop first.
        """
        return await self._do(lambda engine: _operations.force(engine, check_name(lock), token, reason, by, now))

    async def revoke(self, lease: str, reason: str, *, by: Optional[str] = None, now: bool = False) -> None:
        """Ends a lease of another client."""
        await self._do(lambda engine: _operations.revoke_lease(engine, lease, reason, by, now))

    async def resize(self, lock: str, slots: Optional[int], *, by: Optional[str] = None) -> None:
        """Sets how many slots a semaphore has, also while it is used. `None` leaves it to the requests again.

        From then on this number counts, whatever number a request names. More slots are granted at once. With fewer, every
        holder keeps its slots; a client that waits for more slots than there are is refused.
        """
        await self._do(lambda engine: _operations.resize(engine, check_name(lock), slots, by))

    async def drain(self, prefix: str, reason: str, *, by: Optional[str] = None) -> None:
        """Closes a prefix: no lock whose name begins so is granted until `undrain` opens it.

        Clients that ask queue, or are refused with `DRAINING` if they do not wait. Holders keep their locks and finish. The
        empty prefix is that of every lock.
        """
        await self._do(lambda engine: _operations.drain(engine, prefix, reason, by))

    async def undrain(self, prefix: str, *, by: Optional[str] = None) -> bool:
        """Opens a prefix that `drain` closed; its queues go on in order. Returns whether it was closed."""
        return await self._do(lambda engine: _operations.undrain(engine, prefix, by))

    async def drains(self) -> List[Drain]:
        """Lists the prefixes that are closed, with how many holders are left below each."""
        return await self._do(_operations.drains)

    # The end.

    async def close(self, timeout: float = 5.0) -> None:
        """Takes no new requests, ends those that wait, and waits until every guard is gone and every release acknowledged.

        The caller stops its work and releases its guards; this only waits for that. After `timeout` seconds raises
        `StillHeld` if guards exist, or `Unknown` if a release was not acknowledged.
        """
        within = us(timeout, "timeout")
        self._is_closed = True
        engine = self._running
        if engine is not None and not engine.is_stopped:
            await finished(engine.submit(lambda: engine.close(within)))

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self.close()
        except Exception:
            # An exception of the body is not masked.
            if error is None:
                raise

"""Plays the conformance scenarios: commands as JSON lines on stdin, answers and events on stdout (`clients/driver.md`).

Commands run as tasks on the asyncio twin. Work of mode `thread` runs on a thread with a guard of the other twin.
"""

import asyncio
import gc
import json
import os
import sys
import threading
import time
from typing import Any, Awaitable, Callable, Coroutine, Dict, List, Optional, Set

import tenure
from tenure import _plant, aio
from tenure._base import BaseGuard
from tenure._driver_words import (
    Answered,
    Unsupported,
    change_of,
    error_of,
    explained,
    loss_of,
    past_of,
    seconds,
    shown,
)

Json = Dict[str, Any]

_STEP = 0.005


def fence_of(does: str, raised: List[int]) -> Callable[[tenure.HeldLock], Awaitable[None]]:
    """A fence that accepts the token, refuses it, or waits until the client no longer does."""

    async def fence(lock: tenure.HeldLock) -> None:
        if does == "refuses":
            raise OSError("a larger token was seen")
        if does == "waits":
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                raise OSError("the connection was closed") from None
        raised.append(lock.token)

    return fence


def now_us() -> int:
    """The clock that all drivers on this machine share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


class Driver:
    """What the commands have made so far."""

    def __init__(self) -> None:
        self._clients: Dict[str, aio.Client] = {}
        self._guards: Dict[str, aio.Guard] = {}
        self._handles: Dict[str, str] = {}
        self._working: Set[str] = set()
        self._leases: Dict[str, aio.Lease] = {}
        self._tasks: Dict[int, "asyncio.Task[None]"] = {}
        self._releases: List["asyncio.Task[None]"] = []
        self._streams: Dict[str, List["asyncio.Task[None]"]] = {}
        self._out = threading.Lock()

    def say(self, message: Json, at_us: Optional[int] = None) -> None:
        """Writes one line."""
        message["at_us"] = now_us() if at_us is None else at_us
        line = json.dumps(message)
        with self._out:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def start(self, command: Json) -> None:
        """Runs a command beside the others."""
        self._tasks[command["id"]] = asyncio.get_running_loop().create_task(self._answer(command))

    async def _answer(self, command: Json) -> None:
        number, at_us = command["id"], None
        try:
            do: Optional[Callable[[Json], Awaitable[Optional[Json]]]] = getattr(self, f"do_{command['do']}", None)
            if do is None:
                raise Unsupported(f"no command is called {command['do']}")
            answer: Json = {"ok": await do(command) or {}}
        except Answered as outcome:
            answer, at_us = {"error": error_of(outcome.error)}, outcome.at_us
        except BaseException as error:  # noqa: BLE001 - told to the runner
            answer = {"error": error_of(error)}
        self.say({"id": number, **answer}, at_us)
        self._tasks.pop(number, None)

    # Clients.

    async def do_hello(self, _: Json) -> Json:
        return {"language": "python", "version": tenure.__version__, "features": ["fork", "plant"]}

    async def do_open(self, it: Json) -> None:
        client = aio.Client(
            it["addrs"],
            name=it.get("name"),
            api_key=it.get("api_key"),
            ca_file=it.get("ca_file"),
            timeout=seconds(it, "timeout_ms") or 10.0,
        )
        self._clients[it["handle"]] = client
        await client.connect()

    async def do_close(self, it: Json) -> None:
        # The program stops its work and gives its guards back; closing the client waits for that.
        for name, guard in self._guards.items():
            if self._handles.get(name) == it["handle"] and name not in self._working:
                self._releases.append(asyncio.get_running_loop().create_task(self._release_quietly(guard)))
        await asyncio.sleep(0)
        # What a closed client's streams still say would be taken for the next scenario's, whose streams have the same names.
        for stream in self._streams.pop(it["handle"], []):
            stream.cancel()
        await self._clients[it["handle"]].close(5.0 if it.get("deadline_ms") is None else it["deadline_ms"] / 1000)

    @staticmethod
    async def _release_quietly(guard: aio.Guard) -> None:
        try:
            await guard.release()
        except tenure.Error:
            # `close` reports what is not given back.
            pass

    async def do_cancel(self, it: Json) -> None:
        task = self._tasks.get(it["of"])
        if task is not None:
            task.cancel()

    async def do_exit(self, _: Json) -> None:
        asyncio.get_running_loop().call_later(0.02, asyncio.get_running_loop().stop)

    # Locks.

    async def do_lock(self, it: Json) -> Json:
        options: Any = {
            "wait": seconds(it, "wait_ms"),
            "timeout": seconds(it, "limit_ms"),
            "ttl": seconds(it, "ttl_ms"),
            "metadata": it.get("metadata"),
            "max_hold": seconds(it, "max_hold_ms"),
            "lock_delay": seconds(it, "lock_delay_ms"),
            "take": it.get("take"),
            "priority": it.get("priority", 0),
            "supersede": it.get("supersede"),
            "min_hold": seconds(it, "min_hold_ms"),
            "progress_within": seconds(it, "progress_within_ms"),
        }
        raised: List[int] = []
        if it.get("fence"):
            options["fence"] = fence_of(it["fence"], raised)
        if it.get("mode") == "shared":
            options["shared"] = True
        if "slots" in it:
            options["slots"] = it["slots"]
        source: Any = self._leases[it["lease"]] if it.get("lease") else self._clients[it["handle"]]
        if "pool" in it:
            lock = source.pool(it["pool"], **options)
        elif it.get("any"):
            lock = source.lock_any(*it["locks"], **options)
        else:
            lock = source.lock(*(it["locks"] if "locks" in it else [it["lock"]]), **options)
        guard = await lock.acquire()
        self._guards[it["guard"]], self._handles[it["guard"]] = guard, it["handle"]
        answer: Json = {
            "lock": guard.name,
            "token": str(guard.token),
            "tokens": {name: str(token) for name, token in guard.tokens.items()},
            "lease": guard.lease,
        }
        if raised:
            answer["raised"] = str(raised[0])
        if guard.slot is not None:
            answer["slot"] = guard.slot
            answer["taken"] = {str(lock.slot): str(lock.token) for lock in guard.locks}
        return answer

    async def do_check(self, it: Json) -> Json:
        guard = self._guards[it["guard"]]
        guard.check()
        return {"state": guard.standing}

    async def do_await_lost(self, it: Json) -> Json:
        return loss_of(await self._guards[it["guard"]].lost.wait())

    async def do_work(self, it: Json) -> Json:
        guard = self._guards[it["guard"]]
        self._working.add(it["guard"])
        try:
            if it.get("mode") == "thread":
                await self._in_thread(lambda: self._thread_work(guard, it["ms"] / 1000, it.get("linger_ms", 0) / 1000))
            else:
                await guard.run(asyncio.sleep(it["ms"] / 1000))
        finally:
            self._working.discard(it["guard"])
        return {"finished": True}

    @staticmethod
    def _thread_work(guard: BaseGuard, length: float, linger: float) -> None:
        twin = tenure.Guard(guard._core)
        end = time.monotonic() + length
        while True:
            try:
                twin.check()
            except tenure.Lost as lost:
                time.sleep(linger)
                raise Answered(now_us(), lost) from None
            left = end - time.monotonic()
            if left <= 0:
                return
            twin.lost.wait(min(left, _STEP))

    @staticmethod
    async def _in_thread(work: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        done: "asyncio.Future[None]" = loop.create_future()

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised in the task
                raised = error
                loop.call_soon_threadsafe(lambda: None if done.done() else done.set_exception(raised))
            else:
                loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(None))

        threading.Thread(target=run, daemon=True).start()
        await done

    async def do_run(self, it: Json) -> Json:
        async def body(_: aio.Guard) -> None:
            await asyncio.sleep(it["ms"] / 1000)

        client = self._clients[it["handle"]]
        await client.run(it["lock"], body, ttl=seconds(it, "ttl_ms"), wait=seconds(it, "wait_ms"))
        return {"finished": True}

    async def do_reenter(self, it: Json) -> Json:
        guard = self._guards[it["guard"]].reenter()
        self._guards[it["as"]] = guard
        return {"token": str(guard.token)}

    async def do_release(self, it: Json) -> None:
        await self._guards[it["guard"]].release()

    async def do_upgrade(self, it: Json) -> Json:
        guard = self._guards[it["guard"]]
        await guard.upgrade(seconds(it, "wait_ms"))
        return {"token": str(guard.token)}

    async def do_downgrade(self, it: Json) -> Json:
        guard = self._guards[it["guard"]]
        await guard.downgrade()
        return {"token": str(guard.token)}

    async def do_hand_on(self, it: Json) -> Json:
        return {"token": str(await self._guards[it["guard"]].hand_on(it["to"]))}

    async def do_progress(self, it: Json) -> Json:
        left = await self._guards[it["guard"]].progress(it["number"])
        return {} if left is None else {"left_ms": round(left * 1000)}

    async def do_lease_grant(self, it: Json) -> Json:
        lease = await self._clients[it["handle"]].lease(it["ttl_ms"] / 1000)
        self._leases[it["lease"]] = lease
        return {"lease": lease.id}

    async def do_lease_release(self, it: Json) -> None:
        await self._leases[it["lease"]].release()

    async def do_cycles(self, it: Json) -> Json:
        lease = await self._clients[it["handle"]].lease(15.0)
        end, count = time.monotonic() + it["ms"] / 1000, 0

        async def work(number: int) -> None:
            nonlocal count
            while time.monotonic() < end:
                async with lease.lock(f"cycles/{number}"):
                    count += 1

        await asyncio.gather(*(work(number) for number in range(it["workers"])))
        await lease.release()
        return {"cycles": count}

    async def do_collect(self, it: Json) -> None:
        gc.collect()

    async def do_fork(self, it: Json) -> Json:
        guard = self._guards[it["guard"]]
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                guard.check()
                said = {"check": guard.standing}
            except tenure.Lost as lost:
                said = {"check": "lost", "cause": lost.cause}
            os.write(write, json.dumps(said).encode())
            os._exit(0)
        os.close(write)
        said = json.loads(os.read(read, 4096))
        os.close(read)
        os.waitpid(child, 0)
        return {"child": said}

    # Elections.

    async def do_campaign(self, it: Json) -> Json:
        client = self._clients[it["handle"]]
        campaign = client.elect(it["election"], it["value"], wait=seconds(it, "wait_ms"), ttl=seconds(it, "ttl_ms"))
        lead = await campaign.acquire()
        self._guards[it["leader"]], self._handles[it["leader"]] = lead, it["handle"]
        return {"token": str(lead.token)}

    def _leader(self, it: Json) -> aio.Leadership:
        lead = self._guards[it["leader"]]
        assert isinstance(lead, aio.Leadership)
        return lead

    async def do_proclaim(self, it: Json) -> None:
        await self._leader(it).proclaim(it["value"])

    async def do_resign(self, it: Json) -> None:
        await self._leader(it).resign()

    def _follow(self, it: Json, work: Coroutine[Any, Any, None]) -> None:
        self._streams.setdefault(it["handle"], []).append(asyncio.get_running_loop().create_task(work))

    async def do_observe(self, it: Json) -> None:
        observer = await self._clients[it["handle"]].observe(it["election"])

        async def follow() -> None:
            while True:
                try:
                    async for leader in observer:
                        value = None if leader is None else leader.text
                        self.say({"event": "leader", "stream": it["stream"], "value": value})
                except tenure.Unavailable:
                    continue
                except tenure.Error as error:
                    self.say({"event": "ended", "stream": it["stream"], "error": error_of(error)})
                    return
                self.say({"event": "ended", "stream": it["stream"]})
                return

        self._follow(it, follow())

    # Keys.

    async def do_put(self, it: Json) -> Json:
        client, key = self._clients[it["handle"]], it["key"]
        options: Any = {"if_absent": bool(it.get("expect_absent"))}
        if it.get("expect_version") is not None:
            known = await client.get(key)
            if known is None or known.version != it["expect_version"]:
                raise tenure.Refused("COMPARE_FAILED", f"key `{key}` is not of version {it['expect_version']}")
            options["if_modified"] = known.modified
        if it.get("guard"):
            options["guard"] = self._guards[it["guard"]]
        if it.get("lease"):
            options["lease"] = self._leases[it["lease"]]
        return {"version": await client.put(key, it["value"], **options)}

    async def do_get(self, it: Json) -> Optional[Json]:
        found = await self._clients[it["handle"]].get(it["key"])
        return None if found is None else {"version": found.version, "value": found.text}

    async def do_delete(self, it: Json) -> Json:
        guard = self._guards[it["guard"]] if it.get("guard") else None
        return {"existed": await self._clients[it["handle"]].delete(it["key"], guard=guard)}

    async def do_watch(self, it: Json) -> None:
        revision = it.get("from_revision")
        try:
            watch = await self._clients[it["handle"]].watch(
                it["key"] if "key" in it else it["lock"],
                prefix=bool(it.get("prefix")),
                from_revision=None if revision is None else int(revision),
            )
        except tenure.Compacted as compacted:
            self.say({"event": "compacted", "stream": it["stream"], "oldest": str(compacted.floor)})
            self.say({"event": "ended", "stream": it["stream"]})
            return

        async def follow() -> None:
            stream = it["stream"]
            while True:
                try:
                    async for batch in watch:
                        for event in batch.events:
                            self.say({"event": "change", "stream": stream, **change_of(batch.revision, event)})
                except tenure.Unavailable:
                    continue
                except tenure.Compacted as compacted:
                    self.say({"event": "compacted", "stream": stream, "oldest": str(compacted.floor)})
                except tenure.Error as error:
                    self.say({"event": "ended", "stream": stream, "error": error_of(error)})
                    return
                self.say({"event": "ended", "stream": stream})
                return

        self._follow(it, follow())

    # What operators see.

    async def do_show(self, it: Json) -> Json:
        return shown(await self._clients[it["handle"]].show(it["lock"]))

    async def do_explain(self, it: Json) -> Json:
        return explained(await self._clients[it["handle"]].explain(it["lock"]))

    async def do_locks(self, it: Json) -> Json:
        names = [lock.name for lock in await self._clients[it["handle"]].locks(it["prefix"])]
        return {"count": len(names), "first": names[0] if names else None, "last": names[-1] if names else None}

    async def do_history(self, it: Json) -> Json:
        client = self._clients[it["handle"]]
        past = await client.history(it["lock"], prefix=bool(it.get("prefix")), lost=bool(it.get("lost")))
        return past_of(past)

    async def do_revoke(self, it: Json) -> None:
        client = self._clients[it["handle"]]
        await client.revoke(it["target"], it["reason"], by=it.get("by"), now=bool(it.get("now")))

    async def do_force(self, it: Json) -> None:
        client = self._clients[it["handle"]]
        await client.force(it["lock"], int(it["token"]), it["reason"], by=it.get("by"), now=bool(it.get("now")))

    async def do_resize(self, it: Json) -> None:
        await self._clients[it["handle"]].resize(it["lock"], it.get("slots"))

    async def do_drain(self, it: Json) -> None:
        await self._clients[it["handle"]].drain(it["prefix"], it["reason"])

    async def do_undrain(self, it: Json) -> Json:
        return {"existed": await self._clients[it["handle"]].undrain(it["prefix"])}

    async def do_drains(self, it: Json) -> Json:
        for drain in await self._clients[it["handle"]].drains():
            if drain.prefix == it["prefix"]:
                return {"reason": drain.reason, "by": drain.by, "holders": drain.holders}
        return {}


def main() -> None:
    """Reads commands until stdin ends."""
    plant = os.environ.get("TENURE_PLANT")
    if plant:
        _plant.select(plant)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    driver = Driver()

    def read() -> None:
        for line in sys.stdin:
            if line.strip():
                command = json.loads(line)
                loop.call_soon_threadsafe(lambda command=command: driver.start(command))  # type: ignore[misc]
        loop.call_soon_threadsafe(loop.stop)

    threading.Thread(target=read, daemon=True).start()
    loop.run_forever()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

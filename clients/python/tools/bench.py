"""Measures the client against a member of its own: idle leases (memory and CPU), and lock cycles per second.

`TENURE_BIN=path/to/tenure python tools/bench.py [leases] [seconds]`
"""

import asyncio
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from tenure import Client, aio
from tenure.testing import DevServer


def memory_kib() -> int:
    """The resident memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def idle(server: DevServer, count: int, seconds: float) -> None:
    client = server.client(ttl=15.0)
    client.connect()
    before = memory_kib()
    guards = []
    began = time.monotonic()

    def some(first: int) -> None:
        for number in range(first, count, 16):
            guards.append(client.lock(f"idle/{number}").acquire())

    threads = [threading.Thread(target=some, args=(first,)) for first in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    grown = memory_kib() - before
    cpu, began = cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    used = (cpu_seconds() - cpu) / (time.monotonic() - began)
    lost = sum(guard.standing == "lost" for guard in guards)
    print(
        f"idle leases={count} acquired_in={took:.1f}s memory={grown / 1024:.1f}MiB "
        f"per_lease={grown * 1024 / count:.0f}B process={memory_kib() / 1024:.0f}MiB cpu={used * 100:.2f}% lost={lost}"
    )
    for guard in guards:
        guard.release()
    client.close(30)


def measure(name: str, seconds: float, cycle: Callable[[], None]) -> None:
    times = []
    cpu, end = cpu_seconds(), time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        cycle()
        times.append(time.monotonic() - began)
    used = (cpu_seconds() - cpu) / len(times)
    times.sort()
    print(
        f"cycles {name} per_second={len(times) / seconds:.0f} p50={times[len(times) // 2] * 1e3:.2f}ms "
        f"p99={times[len(times) * 99 // 100] * 1e3:.2f}ms client_cpu={used * 1e6:.0f}us"
    )


def cycles(server: DevServer, seconds: float) -> None:
    client = server.client()

    def own() -> None:
        with client.lock("cycle"):
            pass

    measure("threads, a lease each", seconds, own)
    with client.lease() as lease:

        def under() -> None:
            with lease.lock("cycle"):
                pass

        measure("threads, one lease", seconds, under)
    with client.lock("check") as guard:
        count, end = 0, time.monotonic() + 1
        while time.monotonic() < end:
            for _ in range(1000):
                guard.check()
            count += 1000
        print(f"check per_second={count}")
    client.close()


def cycles_aio(server: DevServer, seconds: float, tasks: int) -> None:
    async def main() -> None:
        client = aio.Client(server.addresses)
        count, cpu, end = 0, cpu_seconds(), time.monotonic() + seconds

        async def one(number: int) -> None:
            nonlocal count
            while time.monotonic() < end:
                async with client.lock(f"aio/{number}"):
                    count += 1

        await asyncio.gather(*(one(number) for number in range(tasks)))
        used = (cpu_seconds() - cpu) / count
        print(f"cycles asyncio tasks={tasks} per_second={count / seconds:.0f} client_cpu={used * 1e6:.0f}us")
        await client.close()

    asyncio.run(main())


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5.0
    with DevServer() as server:
        Client(server.addresses).connect().close()
        cycles(server, seconds)
        for tasks in (1, 64):
            cycles_aio(server, seconds, tasks)
        idle(server, count, seconds * 3)


if __name__ == "__main__":
    main()

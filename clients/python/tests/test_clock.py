"""The clock counts suspend, and the loop waits by it."""

import time

from tenure import _clock
from tenure._clock import WallAssisted
from tenure._loop import Cancelled, Future, Loop


def test_both_clocks_advance() -> None:
    first = _clock.read()
    time.sleep(0.02)
    second = _clock.read()
    assert 15_000 <= second.boot - first.boot < 2_000_000
    assert abs(second.slept - first.slept) < 15_000


def test_a_wall_clock_that_is_ahead_counts_as_suspend() -> None:
    now = {"monotonic": 1_000_000, "wall": 5_000_000}
    clock = WallAssisted(lambda: now["monotonic"], lambda: now["wall"])

    def passed(monotonic: int, wall: int) -> int:
        now["monotonic"] += monotonic
        now["wall"] += wall
        return clock()

    assert passed(1000, 1000) == 1_001_000
    assert passed(1000, 30_000_000) == 1_002_000 + 29_999_000, "the machine slept"
    assert passed(1000, 1000) == 1_003_000 + 29_999_000
    assert passed(1000, -9_000_000) == 1_004_000 + 29_999_000, "a clock that is set back makes nothing younger"
    for _ in range(100):
        # A wall clock that is adjusted slowly is no suspend.
        before = clock()
        assert passed(2_000_000, 2_001_000) - before == 2_000_000


def run(loop: Loop, seconds: float = 2.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not loop._is_stopping:
        loop._turn()


def test_coroutines_wait_time_out_and_are_cancelled() -> None:
    loop = Loop()
    said = []

    async def work() -> None:
        future: Future[int] = Future()
        assert not await loop.wait(_clock.boot_us() + 10_000, future)
        loop.at(_clock.boot_us() + 5_000, lambda: future.set(7))
        assert await loop.wait(_clock.boot_us() + 1_000_000, future)
        said.append(await future)
        try:
            await loop.sleep(60)
        except Cancelled:
            said.append("cancelled")
            raise

    task = loop.spawn(work())
    loop.at(_clock.boot_us() + 50_000, task.cancel)
    task.then(lambda _: loop.stop())
    run(loop)
    assert said == [7, "cancelled"] and isinstance(task.error(), Cancelled)


def test_a_subscriber_that_fails_does_not_silence_the_others() -> None:
    from tenure import Loss
    from tenure._signal import Signal

    said, signal = [], Signal()

    def closed(_: Loss) -> None:
        raise RuntimeError("Event loop is closed")

    signal.then(closed)
    signal.then(said.append)
    assert signal.fire(Loss("forced")) and not signal.fire(Loss("gone"))
    signal.then(said.append)
    assert [loss.cause for loss in said] == ["forced", "forced"]


def test_a_callback_that_fails_does_not_end_the_loop() -> None:
    loop = Loop()
    said = []

    def fail() -> None:
        raise RuntimeError("a bug")

    loop.call(fail)
    loop.call(lambda: said.append(1))
    loop.call(loop.stop)
    run(loop)
    assert said == [1]

// Tests the clock: suspend counts, and no hint of the wall clock makes a lease count for longer.
import test from "node:test";
import assert from "node:assert/strict";
import { Clock } from "../dist/esm/clock.js";

const SECOND = 1_000_000;

function machine(withUptime) {
  const at = { awake: 100 * SECOND, wall: 5_000 * SECOND, uptime: 200 * SECOND };
  const source = {
    awakeUs: () => at.awake,
    wallUs: () => at.wall,
    ...(withUptime ? { uptimeUs: () => Math.floor(at.uptime / 10_000) * 10_000 } : {}),
  };
  const clock = new Clock(source);
  const run = (us) => ((at.awake += us), (at.wall += us), (at.uptime += us));
  const suspend = (us) => ((at.wall += us), (at.uptime += us));
  return { at, clock, run, suspend };
}

const close = (actual, expected, slack) => assert.ok(Math.abs(actual - expected) <= slack, `${actual} is not near ${expected}`);

for (const withUptime of [true, false]) {
  const where = withUptime ? "with the time since boot" : "without it";

  test(`a suspended machine's time counts, ${where}`, () => {
    const { clock, run, suspend } = machine(withUptime);
    const before = clock.read();
    run(SECOND);
    suspend(30 * SECOND);
    const after = clock.read();
    close(after.boot - before.boot, 31 * SECOND, 20_000);
    close(after.awake - before.awake, SECOND, 0);
    run(SECOND);
    close(clock.read().boot - after.boot, SECOND, 20_000);
  });

  test(`short readings and a slewed wall clock are no suspend, ${where}`, () => {
    const { at, clock, run } = machine(withUptime);
    const before = clock.read();
    for (let each = 0; each < 3_000; each += 1) {
      run(7_333);
      at.wall += 3;
      clock.read();
    }
    const after = clock.read();
    close(after.boot - before.boot, after.awake - before.awake, 0);
  });

  test(`a wall clock that is set back changes nothing, ${where}`, () => {
    const { at, clock, run } = machine(withUptime);
    const before = clock.read();
    at.wall -= 3_600 * SECOND;
    run(SECOND);
    close(clock.read().boot - before.boot, SECOND, 0);
  });
}

test("a wall clock that is set forward shortens where nothing else tells of suspend, and only there", () => {
  const alone = machine(false);
  const before = alone.clock.read();
  alone.at.wall += 60 * SECOND;
  close(alone.clock.read().boot - before.boot, 60 * SECOND, 0);
  const linux = machine(true);
  const start = linux.clock.read();
  linux.at.wall += 60 * SECOND;
  close(linux.clock.read().boot - start.boot, 0, 0);
});

test("when the time since boot cannot be read any more, the wall clock is the hint", () => {
  const { at, clock, run, suspend } = machine(true);
  const before = clock.read();
  run(SECOND);
  Object.defineProperty(at, "uptime", { get: () => NaN, set: () => undefined });
  clock.read();
  suspend(5 * SECOND);
  close(clock.read().boot - before.boot, 6 * SECOND, 20_000);
});

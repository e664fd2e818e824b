/**
 * Reads the clocks: the one that counts while the machine is suspended, and the one that stops.
 *
 * JavaScript has no access to a precise clock that counts suspend, so this one is put together:
 *
 * - `awake` is the monotonic clock of the runtime, which stops in suspend on Linux and macOS.
 * - `boot` is the same plus every suspend that was noticed. On Linux the time since boot (`/proc/uptime`), which counts
 *   suspend with a resolution of 10 ms, tells of it. Elsewhere a forward jump of the wall clock against the monotonic
 *   clock counts as suspend: a wall clock that is set forward can cost a guard, and one that is set back changes
 *   nothing. So the hint only ever shortens how long a lease is relied on.
 */
import type { ClockReading } from "./lease_state.js";

/** The clocks of a platform, in microseconds. */
export interface ClockSource {
  /** The monotonic clock, which may stop in suspend. */
  awakeUs(): number;
  /** The wall clock. */
  wallUs(): number;
  /** The time since boot, which counts suspend, in steps of {@link UPTIME_STEP_US}; absent where there is none. */
  uptimeUs?(): number | undefined;
}

/** The resolution of the time since boot. */
const UPTIME_STEP_US = 10_000;
/** A smaller difference is the time between two readings. */
const JUMP_MIN_US = 50_000;
/** The wall clock may be slewed by this part of the time without that being a jump. */
const SLEW = 1 / 1000;
/** How long (by the clock that stops) a reading of the time since boot is good for, while the wall clock does not jump. */
const UPTIME_AGE_US = 20_000;

/** Reads both clocks. */
export class Clock {
  private sleptUs = 0;
  private lastAwake: number;
  private lastWall: number;
  private lastUptimeAt: number;
  /** The time since boot minus the monotonic clock, without any suspend since this object exists. */
  private uptimeOffset: number | undefined;

  constructor(private readonly source: ClockSource) {
    this.lastAwake = source.awakeUs();
    this.lastWall = source.wallUs();
    this.lastUptimeAt = this.lastAwake;
    const uptime = source.uptimeUs?.();
    // The reading is rounded down by up to a step; the larger offset is the true one or less.
    this.uptimeOffset = uptime === undefined ? undefined : uptime - this.lastAwake;
  }

  /** Nothing is cached, because a check is only as good as its reading. */
  read(): ClockReading {
    // The clock that stops is read first. In this order the measured difference is never too small.
    const awake = this.source.awakeUs();
    const wall = this.source.wallUs();
    const passed = Math.max(0, awake - this.lastAwake);
    const jump = wall - this.lastWall - passed;
    this.lastAwake = awake;
    this.lastWall = wall;
    const jumped = jump > JUMP_MIN_US + passed * SLEW;
    if (this.uptimeOffset === undefined) {
      if (jumped) this.sleptUs += jump;
    } else if (jumped || awake - this.lastUptimeAt >= UPTIME_AGE_US) {
      this.lastUptimeAt = awake;
      this.compareUptime(awake, this.uptimeOffset, jumped ? jump : 0);
    }
    return { boot: awake + this.sleptUs, awake };
  }

  /** The instant that decides, in microseconds. */
  nowUs(): number {
    return this.read().boot;
  }

  private compareUptime(awake: number, offset: number, jump: number): void {
    const uptime = this.source.uptimeUs?.();
    if (uptime === undefined || !Number.isFinite(uptime)) {
      // The file cannot be read any more: the wall clock is the only hint left.
      this.uptimeOffset = undefined;
      this.sleptUs += jump;
      return;
    }
    const ahead = uptime - awake - offset;
    if (ahead < 2 * UPTIME_STEP_US && ahead > 0 && this.sleptUs === 0) {
      // The first reading was rounded down further than this one.
      this.uptimeOffset = offset + ahead;
    } else if (ahead - this.sleptUs > JUMP_MIN_US) {
      this.sleptUs = ahead + UPTIME_STEP_US;
    }
  }
}

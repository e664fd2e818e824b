/** Small tools for waiting: timers with long limits, values that are watched, and scopes that end early. */
import { platform } from "./platform/platform.js";

/** The longest time that a timer of JavaScript takes; longer ones would fire at once. */
const TIMER_MAX_MS = 0x7fff_ffff;

/** The monotonic clock in milliseconds, for limits of requests. Leases use {@link Clock}. */
export function nowMs(): number {
  return platform().clocks.awakeUs() / 1_000;
}

/** A timer for an instant of {@link nowMs}, however far. */
export class Alarm {
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly atMs: number,
    private readonly ring: () => void,
  ) {
    this.arm();
  }

  cancel(): void {
    clearTimeout(this.timer);
  }

  private arm(): void {
    const left = this.atMs - nowMs();
    const step = Math.min(Math.max(0, Math.ceil(left)), TIMER_MAX_MS);
    this.timer = setTimeout(() => {
      if (nowMs() >= this.atMs) this.ring();
      else this.arm();
    }, step);
  }
}

/** Sleeps, but not beyond the limit. */
export function sleep(ms: number, untilMs = Infinity): Promise<void> {
  const at = Math.min(nowMs() + ms, untilMs);
  return new Promise((resolve) => new Alarm(at, resolve));
}

/** A value whose changes can be awaited. */
export class Watched<T> {
  private readonly waiters = new Set<() => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set(value: T): void {
    this.current = value;
    for (const waiter of [...this.waiters]) waiter();
  }

  /** Waits until the test holds; resolves with `undefined` at the limit. */
  waitFor(test: (value: T) => boolean, untilMs: number): Promise<T | undefined> {
    if (test(this.current)) return Promise.resolve(this.current);
    return new Promise((resolve) => {
      let alarm: Alarm | undefined;
      const done = (value: T | undefined): void => {
        this.waiters.delete(look);
        alarm?.cancel();
        resolve(value);
      };
      const look = (): void => {
        if (test(this.current)) done(this.current);
      };
      this.waiters.add(look);
      if (untilMs !== Infinity) alarm = new Alarm(untilMs, () => done(undefined));
    });
  }
}

/** A scope that can end early: whatever is awaited through {@link race} ends with it. */
export class Scope {
  private fail!: (error: unknown) => void;
  private readonly failed: Promise<never>;
  private readonly cleanups: (() => void)[] = [];
  private error: { readonly value: unknown } | undefined;

  constructor() {
    this.failed = new Promise<never>((_, reject) => {
      this.fail = reject;
    });
    // The scope may end while nothing is awaited.
    this.failed.catch(() => undefined);
  }

  /** Ends the scope with an error; the first one counts. */
  end(error: unknown): void {
    this.error ??= { value: error };
    this.fail(this.error.value);
  }

  get isOver(): boolean {
    return this.error !== undefined;
  }

  /** Throws if the scope has ended. */
  check(): void {
    if (this.error !== undefined) throw this.error.value;
  }

  /** Ends the scope at an instant. */
  endAt(atMs: number, error: () => unknown): void {
    const alarm = new Alarm(atMs, () => this.end(error()));
    this.cleanups.push(() => alarm.cancel());
  }

  /** Ends the scope when a signal aborts, with the signal's reason. */
  endOn(signal: AbortSignal | undefined): void {
    if (signal === undefined) return;
    const abort = (): void => this.end(signal.reason);
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    this.cleanups.push(() => signal.removeEventListener("abort", abort));
  }

  /** Runs a function when the scope is left. */
  onLeave(cleanup: () => void): void {
    this.cleanups.push(cleanup);
  }

  /** Awaits a step, unless the scope ends first. */
  async race<T>(step: Promise<T>): Promise<T> {
    this.check();
    return Promise.race([this.failed, step]);
  }

  leave(): void {
    for (const cleanup of this.cleanups.splice(0)) cleanup();
  }
}

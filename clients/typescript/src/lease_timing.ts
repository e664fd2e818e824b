/**
 * Computes the timing of a lease: how long it is relied on after a renewal, and when it is renewed.
 *
 * Durations are whole microseconds; fractions are dropped.
 */

/** The bound on the difference of clock rates: some fifteen times the real difference. */
const RATE_ERROR_PPM = 10_000;
const MILLION = 1_000_000;
/** The shortest and the longest ttl that the client accepts. The cluster may allow less. */
const TTL_MIN_US = 100_000;
const TTL_MAX_US = 3_600_000_000;

/** The times of a lease do not fit each other. */
export class LeaseTimingError extends Error {
  constructor(
    readonly kind: "ttl" | "window" | "grace",
    message: string,
    /** The range that would fit, in microseconds. */
    readonly leastUs?: number,
    readonly mostUs?: number,
  ) {
    super(message);
    this.name = "LeaseTimingError";
  }
}

/** The times of one lease, all derived from its ttl. */
export class LeaseTiming {
  /** How long the lease lives in the cluster after a renewal. */
  readonly ttlUs: number;
  /** How long the client relies on the lease after a renewal was sent. */
  readonly windowUs: number;
  /** When the next renewal is sent, counted from the last acknowledged one. */
  readonly renewAfterUs: number;
  /** How long one attempt may take, and how soon the next one follows. */
  readonly retryUs: number;
  /** How long after a renewal was sent it is overdue, if no newer one is acknowledged. */
  readonly overdueAfterUs: number;
  /** The longest time that surely ends before the ttl does, if every clock is as good as declared. */
  readonly surelyLivesUs: number;

  /**
   * @param windowUs how long to rely on the lease after a renewal, instead of half of the ttl
   * @param graceUs how long the work takes to stop once it is told to
   */
  constructor(ttlUs: number, windowUs?: number, graceUs?: number) {
    if (!Number.isSafeInteger(ttlUs) || ttlUs < TTL_MIN_US || ttlUs > TTL_MAX_US) {
      throw new LeaseTimingError("ttl", `a ttl of ${shown(ttlUs)} is not between 100ms and 1h`);
    }
    this.ttlUs = ttlUs;
    this.renewAfterUs = Math.floor(ttlUs / 3);
    this.retryUs = Math.floor(ttlUs / 24);
    // At most 3.6e9 times 990000: less than 2^53.
    this.surelyLivesUs = Math.floor((ttlUs * (MILLION - RATE_ERROR_PPM)) / (MILLION + RATE_ERROR_PPM));
    const most = this.surelyLivesUs;
    if (windowUs !== undefined && !(windowUs > this.renewAfterUs && windowUs <= most)) {
      const fits = `more than ${shown(this.renewAfterUs)}, at most ${shown(most)}`;
      const message = `window ${shown(windowUs)} does not fit ttl ${shown(ttlUs)} (${fits})`;
      throw new LeaseTimingError("window", message, this.renewAfterUs, most);
    }
    this.windowUs = windowUs ?? Math.floor(ttlUs / 2);
    this.overdueAfterUs = Math.floor((this.renewAfterUs + this.windowUs) / 2);
    const left = this.surelyLivesUs - this.windowUs;
    if (graceUs !== undefined && !(graceUs >= 0 && graceUs <= left)) {
      const message = `grace ${shown(graceUs)} does not fit ttl ${shown(ttlUs)} (at most ${shown(left)})`;
      throw new LeaseTimingError("grace", message, undefined, left);
    }
  }
}

function shown(us: number): string {
  return us >= 1e6 ? `${+(us / 1e6).toFixed(1)}s` : `${+(us / 1e3).toFixed(1)}ms`;
}

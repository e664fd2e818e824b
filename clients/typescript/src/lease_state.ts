/**
 * Tracks the state of one lease from its request to its loss: how long it is surely ours, and when its work must stop.
 *
 * No I/O and no clock in here: clock readings and answers go in; what to send, and until when the lease counts as held,
 * come out. Instants are microseconds.
 *
 * The rule: time counts from the clock reading *before the first send* of the newest acknowledged renewal. The cluster
 * began its ttl at that moment or later. The client stops one window after that reading, and the window is shorter than
 * the ttl by at least what the clocks may differ, so the client stops first. A loss is final: no later answer revives it.
 */
import type { LeaseTiming } from "./lease_timing.js";
import type { Loss } from "./loss.js";

/** A smaller difference between the clocks is not a suspend but the time between their two readings. */
const SLEEP_MIN_US = 50_000;

/** Both clocks of the machine, read together, in microseconds. */
export interface ClockReading {
  /** The clock that counts while the machine is suspended. This one decides. */
  readonly boot: number;
  /** The clock that stops in suspend. Its distance to the other shows how long the machine was suspended. */
  readonly awake: number;
}

/** Whether a lease, and what it holds, may still be relied on. */
export type Standing = "valid" | "overdue" | "lost";

/** A renewal that was sent. */
interface RenewalAttempt {
  readonly number: number;
  sent: number;
}

interface HeldGrant {
  readonly lock: string;
  /** A revision at which the lock was surely held. */
  readonly at: bigint;
  lost: Loss | undefined;
  /** Whether the work under the lock has stopped. */
  stopped: boolean;
  /** Whether the cluster was told that the work has stopped. */
  told: boolean;
}

/** A grant that the state keeps. */
export interface KeptGrant {
  readonly token: bigint;
  readonly lock: string;
  /** Why it is lost, if it is. */
  readonly loss: Loss | undefined;
  /** Whether the work under it had stopped. */
  readonly stopped: boolean;
}

/** What the client tells the cluster once the work under a lock has stopped: `release` it, or `confirm` a loss. */
export type EndMessage = "release" | "confirm";

/** One thing to tell the cluster. */
export interface Farewell {
  readonly token: bigint;
  readonly lock: string;
  readonly end: EndMessage;
}

/** A lease that was requested and is not granted yet. */
export class PendingGrant {
  private first: number | undefined;

  constructor(private readonly timing: LeaseTiming) {}

  /** Records that the request is about to be sent, for the first time or again under the same id. */
  sent(now: ClockReading): void {
    // The answer to a repetition may be the recorded one, so only the first send counts.
    this.first ??= now.boot;
  }

  /** How long ago the request was first sent. */
  tookUs(now: ClockReading): number {
    return since(now.boot, this.first ?? now.boot);
  }

  /** Records the grant. Returns `undefined` if the answer came too late: the lease must be revoked. */
  granted(now: ClockReading): LeaseState | undefined {
    const since = this.first ?? now.boot;
    if (now.boot >= since + this.timing.windowUs) return undefined;
    return new LeaseState(this.timing, since, now);
  }
}

/** The state of a granted lease. */
export class LeaseState {
  /** When the newest acknowledged request was sent for the first time. */
  private since: number;
  private lost: Loss | undefined;
  private tries: RenewalAttempt[] = [];
  private newest = 0;
  private nextTry: number;
  /** The revision up to which the client knows of all involuntary losses. */
  private known = 0n;
  /** An acknowledgement that counts only after the holdings were read. */
  private proof: { sent: number; changed: bigint } | undefined;
  private readonly grants = new Map<bigint, HeldGrant>();
  /** What is known about why nothing was acknowledged. */
  private readonly wake: { due: number; slept: number; late: number; napped: number; failed: number };
  /** Whether members refused the client's credentials since the newest acknowledged renewal. */
  private refused = false;

  constructor(
    readonly timing: LeaseTiming,
    since: number,
    now: ClockReading,
  ) {
    this.since = since;
    this.nextTry = since + timing.renewAfterUs;
    this.wake = { due: this.nextTry, slept: sleptOf(now), late: 0, napped: 0, failed: 0 };
  }

  /** The instant from which the lease counts as lost, unless something newer is acknowledged. */
  get lostAt(): number {
    return this.since + this.timing.windowUs;
  }

  /** When to poll the lease next. */
  get due(): number {
    let overdue = this.since + this.timing.overdueAfterUs;
    if (this.wake.due >= overdue) overdue = this.lostAt;
    return Math.min(this.nextTry, overdue, this.lostAt);
  }

  /** The loss of the lease itself, if it is lost. */
  get loss(): Loss | undefined {
    return this.lost;
  }

  /** Checks the clock, and returns whether to send a renewal now. */
  poll(now: ClockReading): boolean {
    const at = now.boot;
    const late = since(at, this.wake.due);
    const isLate = late > this.timing.retryUs;
    if (isLate) this.wake.late = Math.max(this.wake.late, late);
    const slept = Math.max(0, sleptOf(now) - this.wake.slept);
    this.wake.slept = sleptOf(now);
    if (slept > SLEEP_MIN_US) this.wake.napped += slept;
    this.expire(at);
    if (!isLate && slept <= SLEEP_MIN_US) {
      const unanswered = this.tries.filter((it) => it.sent + this.timing.retryUs <= at).length;
      this.wake.failed = Math.max(this.wake.failed, unanswered);
    }
    this.wake.due = at;
    const renew = this.lost === undefined && at >= this.nextTry;
    this.wake.due = renew ? at + this.timing.retryUs : Math.max(this.due, at);
    return renew;
  }

  /**
   * Whether a renewal is due, or will be within a quarter of the renewal interval. Leases that are renewed together stay
   * together.
   */
  isSoon(now: ClockReading): boolean {
    return this.lost === undefined && now.boot + Math.floor(this.timing.renewAfterUs / 4) >= this.nextTry;
  }

  /** Whether a renewal is still unanswered, or has failed. */
  get isRetrying(): boolean {
    return this.lost === undefined && (this.wake.failed > 0 || this.tries.length > 0);
  }

  /** Records that a renewal is about to be sent, and returns its number, which comes back with the answer. */
  renewing(now: ClockReading): number {
    const sent = now.boot;
    // A renewal that was sent a window ago proves nothing any more.
    this.tries = this.tries.filter((it) => it.sent + this.timing.windowUs > sent);
    this.newest += 1;
    this.tries.push({ number: this.newest, sent });
    this.nextTry = sent + this.timing.retryUs;
    return this.newest;
  }

  /**
   * Records an acknowledged renewal: the lease has `ttlMs` again, or no longer exists if that is 0. Returns whether the
   * caller has to read what the lease holds, and pass it to {@link holdings}.
   */
  renewed(number: number, ttlMs: number, changed: bigint, now: ClockReading): "nothing" | "read_holdings" {
    this.expire(now.boot);
    const found = this.tries.findIndex((it) => it.number === number);
    const attempt = this.tries[found];
    if (attempt === undefined) return "nothing";
    this.tries.splice(found, 1);
    if (this.lost !== undefined) return "nothing";
    if (ttlMs === 0) {
      // The lease could not have expired by our own clock yet: it was ended, and the client was not told.
      this.lose({ cause: "gone" });
      return "nothing";
    }
    if (changed > this.known) {
      const sent = this.proof === undefined ? attempt.sent : Math.max(this.proof.sent, attempt.sent);
      this.proof = { sent, changed };
      return "read_holdings";
    }
    this.acknowledged(attempt.sent);
    return "nothing";
  }

  /** Records that a renewal failed or was not answered in time. */
  notRenewed(number: number): void {
    this.tries = this.tries.filter((it) => it.number !== number);
    this.wake.failed += 1;
  }

  /** Records what the lease held at `revision`; `changed` is the newest loss up to then. */
  holdings(revision: bigint, changed: bigint, holds: readonly bigint[], now: ClockReading): void {
    this.expire(now.boot);
    for (const [token, grant] of this.grants) {
      // A lock that was granted after the reading is rightly missing in it.
      if (grant.at <= revision && !holds.includes(token)) grant.lost ??= { cause: "gone" };
    }
    if (changed > this.known) this.known = changed;
    const proof = this.proof;
    if (proof !== undefined && proof.changed <= this.known) {
      this.proof = undefined;
      if (this.lost === undefined) this.acknowledged(proof.sent);
    }
  }

  /** Records that the lease has ended or is unknown. */
  ended(loss: Loss, now: ClockReading): void {
    // If renewals stopped for local reasons, the local clock knows the cause better than the cluster.
    this.expire(now.boot);
    this.lose(loss);
  }

  /** Records a granted lock. It becomes a guard only if the lease can be relied on now; else returns the loss. */
  granted(lock: string, token: bigint, at: bigint, now: ClockReading): Loss | undefined {
    const loss = this.check(now);
    if (loss !== undefined) return loss;
    // A member that was behind may report a grant after the lease has lost something newer. That loss may be the loss of
    // this very grant, and acknowledged renewals have moved the local deadline beyond it since.
    if (at < this.known) return { cause: "gone" };
    this.grants.set(token, { lock, at, lost: undefined, stopped: false, told: false });
    return undefined;
  }

  /** Moves a held lock to another token. */
  regranted(old: bigint, token: bigint, at: bigint): void {
    const grant = this.grants.get(old);
    if (grant === undefined) return;
    this.grants.delete(old);
    this.grants.set(token, { ...grant, at });
  }

  /** Records the loss of a lock that this client did not release. */
  taken(token: bigint, loss: Loss): void {
    const grant = this.grants.get(token);
    if (grant !== undefined) grant.lost ??= loss;
  }

  /** Checks that the lease can be relied on at this moment, and returns its loss if not. */
  check(now: ClockReading): Loss | undefined {
    this.expire(now.boot);
    return this.lost;
  }

  /** Checks that a lock can be relied on at this moment, and returns its loss if not. */
  checkGrant(token: bigint, now: ClockReading): Loss | undefined {
    const loss = this.check(now);
    if (loss !== undefined) return loss;
    const grant = this.grants.get(token);
    return grant === undefined ? { cause: "released" } : grant.lost;
  }

  /** Returns the standing at this moment. */
  standing(now: ClockReading): Standing {
    if (this.check(now) !== undefined) return "lost";
    return now.boot >= this.since + this.timing.overdueAfterUs ? "overdue" : "valid";
  }

  /** Returns every lock that the state keeps, with its loss if it is lost, in the order of their tokens. */
  kept(): KeptGrant[] {
    const kept: KeptGrant[] = [];
    for (const [token, it] of this.grants) {
      kept.push({ token, lock: it.lock, loss: it.lost ?? this.lost, stopped: it.stopped });
    }
    return kept.sort(byToken);
  }

  /** Returns the names of the locks whose work has not stopped. */
  inUse(): string[] {
    return [...this.grants.values()].filter((it) => !it.stopped).map((it) => it.lock);
  }

  /** Records that the work under a lock has stopped, so that the cluster may be told. */
  stopped(token: bigint): void {
    const grant = this.grants.get(token);
    if (grant !== undefined) grant.stopped = true;
  }

  /**
   * Removes a lock whose work has stopped while it could be relied on, and returns its name for the release. Returns
   * `undefined` if the lock was lost; then {@link stopped} and {@link farewells} determine what to tell the cluster.
   */
  givenBack(token: bigint, now: ClockReading): string | undefined {
    if (this.checkGrant(token, now) !== undefined) return undefined;
    const lock = this.grants.get(token)?.lock;
    this.grants.delete(token);
    return lock;
  }

  /** Returns what to tell the cluster now, each item once. A lock is never released before its work has stopped. */
  farewells(): Farewell[] {
    const farewells: Farewell[] = [];
    for (const [token, grant] of this.grants) {
      if (grant.told || !grant.stopped) continue;
      grant.told = true;
      farewells.push({ token, lock: grant.lock, end: grant.lost === undefined ? "release" : "confirm" });
      this.grants.delete(token);
    }
    return farewells.sort(byToken);
  }

  /** Whether no work runs under the lease, so that it may be revoked. */
  get isIdle(): boolean {
    for (const grant of this.grants.values()) if (!grant.stopped) return false;
    return true;
  }

  /**
   * Ends the lease if no work runs under it, and returns whether it has ended. From then on no grant becomes a guard, so
   * the lease may be revoked.
   */
  endIfIdle(): boolean {
    const idle = this.isIdle;
    if (idle) this.lose({ cause: "released" });
    return idle;
  }

  /** Members refuse the client's credentials: that is the cause if no renewal is acknowledged before the deadline. */
  credentialsRefused(): void {
    this.refused = true;
  }

  private acknowledged(sent: number): void {
    this.since = Math.max(this.since, sent);
    // Renewals that were sent before this one prove nothing more.
    this.tries = this.tries.filter((it) => it.sent > this.since);
    this.nextTry = this.since + this.timing.renewAfterUs;
    this.refused = false;
    this.wake.failed = 0;
    this.wake.late = 0;
    this.wake.napped = 0;
    this.wake.due = Math.min(this.wake.due, this.due);
  }

  private expire(at: number): void {
    if (this.lost !== undefined || at < this.lostAt) return;
    const late = Math.max(this.wake.late, since(at, this.wake.due));
    const silent = since(at, this.since);
    if (this.refused) this.lose({ cause: "credentials_refused", forUs: silent });
    else if (this.wake.failed > 0) this.lose({ cause: "cluster_unreachable", forUs: silent });
    else if (this.wake.napped > SLEEP_MIN_US) this.lose({ cause: "suspended", forUs: this.wake.napped });
    else if (late > this.timing.retryUs) this.lose({ cause: "local_stall", forUs: late });
    else this.lose({ cause: "cluster_unreachable", forUs: silent });
  }

  private lose(loss: Loss): void {
    if (this.lost !== undefined) return;
    this.lost = loss;
    this.tries = [];
  }
}

/** How long after `earlier` an instant is, or zero if it is not later. */
function since(us: number, earlier: number): number {
  return Math.max(0, us - earlier);
}

function sleptOf(now: ClockReading): number {
  return Math.max(0, now.boot - now.awake);
}

function byToken(a: { token: bigint }, b: { token: bigint }): number {
  return a.token < b.token ? -1 : a.token > b.token ? 1 : 0;
}

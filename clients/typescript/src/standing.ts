/** Keeps a lock request standing in the cluster, across as many sessions as it takes, and reads what is said about it. */
import { HARMLESS, type Core } from "./core.js";
import { Closed, Lost, meaningOf, Refused, StrangeAnswer, Timeout, Unavailable, Unknown } from "./errors.js";
import type { TenureError } from "./errors.js";
import type { HeldLock } from "./guard.js";
import type { HeldLease, Seq } from "./held_lease.js";
import type { LockRequest } from "./options.js";
import { jittered } from "./platform/platform.js";
import type { Asked, Response, Session } from "./session.js";
import { nowMs, Scope, sleep } from "./waiting.js";
import type { WaitEnded, WireAcquire, WireError, WireGrant, WireLease } from "./wire.js";

/** The pause after a session ended or a member could not serve, and the bound up to which repeated ones grow. */
export const PAUSE_MS = 20;
const PAUSE_MAX_MS = 500;
/** How long members must refuse the credentials before a request that waits is given up. */
const DENIED_MS = 1_000;
/** The cluster ends a wait by itself. The client waits this much longer for the cluster's word, and then ends it. */
export const SLACK_MS = 50;
/** How long a request that does not queue waits for its answer: longer than a change of leader takes. */
const AT_ONCE_MS = 3_000;

/** What was granted, and a revision at which it was held. */
export interface GrantedAt {
  readonly locks: HeldLock[];
  readonly at: bigint;
}

/** When the caller wants its answer at the latest, and whether that is its `timeout` rather than its `wait`. */
export interface Limit {
  readonly atMs: number;
  readonly isTimeout: boolean;
}

/** Runs an acquire within the caller's limits: its signal, its time, and the life of the client. */
export async function limited<T>(
  core: Core,
  ask: LockRequest,
  acquire: (limit: Limit, scope: Scope) => Promise<T>,
): Promise<T> {
  if (core.isClosing) throw new Closed();
  ask.signal?.throwIfAborted();
  const limit = limitOf(core, ask);
  const scope = new Scope();
  scope.endOn(ask.signal);
  scope.onLeave(core.onClose(() => scope.end(new Closed())));
  try {
    return await acquire(limit, scope);
  } catch (error) {
    const outOfTime =
      error instanceof Unknown ||
      error instanceof Unavailable ||
      (error instanceof Refused && error.reason === "WAIT_TIMEOUT");
    if (limit.isTimeout && outOfTime && nowMs() >= limit.atMs - SLACK_MS) {
      throw new Timeout(error.effect, ask.timeoutMs ?? 0);
    }
    throw error;
  } finally {
    scope.leave();
  }
}

/** A request that stands in the cluster. */
export class StandingRequest {
  /** Whether the request may still stand in the cluster after a failure. */
  mayStand = false;
  private sent = false;
  private seq: Seq | undefined;
  private waitMs: number | undefined;

  constructor(
    private readonly held: HeldLease,
    private readonly ask: LockRequest,
    private readonly limit: Limit,
    /** A lease that is given up together with its request needs no numbers. */
    private readonly isNumbered: boolean,
    /** Whether the cluster has said that the request is queued. */
    private queued = false,
  ) {}

  /** Runs until the request is granted, refused or given up. `asked` is where it was already sent. */
  async run(scope: Scope, asked: { session: Session; asked: Asked } | undefined): Promise<GrantedAt> {
    const { held, ask, limit } = this;
    const core = held.core;
    const began = nowMs();
    const limitMs = limit.atMs + SLACK_MS;
    this.sent = asked !== undefined;
    this.mayStand = this.sent;
    if (limit.atMs !== Infinity) scope.endAt(limitMs, () => this.outOfTime(began));
    let on = asked?.asked;
    try {
      if (ask.waitMs === 0 && !this.sent) {
        const session = await scope.race(core.sessionAtOnce(Math.min(limitMs, began + AT_ONCE_MS)));
        if (session === undefined) throw core.noSession();
      }
      let pause = PAUSE_MS;
      let deniedSince: number | undefined;
      for (;;) {
        if (on === undefined) {
          const session = await scope.race(core.session(Infinity));
          const request = session && (await scope.race(this.request()));
          on = request && session.ask(request);
          if (on === undefined) {
            // Credentials that are being replaced may be right a moment later.
            const denied = core.noSession();
            deniedSince = denied instanceof Refused ? (deniedSince ?? nowMs()) : undefined;
            if (deniedSince !== undefined && nowMs() - deniedSince >= DENIED_MS) throw denied;
            await scope.race(sleep(PAUSE_MS));
            continue;
          }
          this.sent = true;
          this.mayStand = true;
        }
        deniedSince = undefined;
        const update = updateOf(await scope.race(on.next()), ask);
        if (update.is === "granted") {
          this.mayStand = false;
          return update.granted;
        }
        if (update.is === "queued") {
          ask.onQueued?.(update.ahead);
          // The request is answered. Keeping its number for the whole wait would block all later ones; a repetition
          // under another number keeps the place in the queue.
          this.endSeq();
          pause = PAUSE_MS;
          this.queued = true;
          continue;
        }
        on.end();
        on = undefined;
        if (update.is === "no") {
          this.mayStand = false;
          throw update.error;
        }
        if (update.is === "over") {
          this.mayStand = false;
          if (limit.atMs === Infinity) throw new Lost({ cause: "gone" });
          throw waitTimeout(ask);
        }
        await scope.race(sleep(Math.max(jittered(pause), update.afterMs)));
        pause = Math.min(pause * 2, PAUSE_MAX_MS);
      }
    } finally {
      on?.end();
      this.endSeq();
    }
  }

  private async request() {
    const acquire: WireAcquire = { ...wireAcquire(this.ask, undefined), lease: this.held.id };
    // A request that was queued and replaced by a newer one of its group must not replace that one.
    if (this.queued && acquire.supersede !== undefined) acquire.resume = true;
    if (!this.isNumbered) {
      setWait(acquire, leftMs(this.ask, this.limit));
      return this.held.core.request({ acquire }, HARMLESS);
    }
    if (this.seq === undefined) {
      this.seq = await this.held.seq();
      this.waitMs = leftMs(this.ask, this.limit);
    }
    // A repetition under the same number must be identical.
    setWait(acquire, this.waitMs);
    return this.held.core.request({ acquire }, this.seq.identity());
  }

  private endSeq(): void {
    this.seq?.end();
    this.seq = undefined;
  }

  /** The wait is over by the client's own clock. */
  private outOfTime(began: number): TenureError {
    if (!this.sent) return this.held.core.noSession();
    return this.queued ? waitTimeout(this.ask) : new Unknown(nowMs() - began);
  }
}

/** The outcome of a message about a request. */
type AskUpdate =
  | { readonly is: "granted"; readonly lease: WireLease | undefined; readonly granted: GrantedAt }
  | { readonly is: "queued"; readonly lease: WireLease | undefined; readonly ahead: number }
  /** The wait is over without a grant. */
  | { readonly is: "over" }
  | { readonly is: "no"; readonly error: TenureError }
  /** The outcome is not known: the request is sent again. */
  | { readonly is: "again"; readonly afterMs: number };

export function updateOf(response: Response, ask: LockRequest): AskUpdate {
  switch (response.kind) {
    case "gone":
      return { is: "again", afterMs: 0 };
    case "wait_ended":
      return waitEnded(response.ended);
    case "granted": {
      const locks = locksOf(ask, response.granted);
      if (locks === undefined) return { is: "no", error: new StrangeAnswer() };
      return { is: "granted", lease: undefined, granted: { locks, at: BigInt(response.granted.revision) } };
    }
    case "answer": {
      const { acquired, queued, ended, error } = response.answer;
      if (acquired !== undefined) {
        const locks = locksOf(ask, acquired);
        if (locks === undefined) return { is: "no", error: new StrangeAnswer() };
        return { is: "granted", lease: acquired.lease, granted: { locks, at: response.revision } };
      }
      if (queued !== undefined) return { is: "queued", lease: queued.lease, ahead: queued.ahead };
      if (ended !== undefined) return { is: "over" };
      if (error === undefined) return { is: "no", error: new StrangeAnswer() };
      return refusedBy(error);
    }
  }
}

/** Reads the end of a wait: replaced by a newer request of its group, refused, or out of time. */
function waitEnded({ superseded_by: by, superseded_by_lease: lease, error }: WaitEnded): AskUpdate {
  if (by !== undefined) {
    return { is: "no", error: new Refused("SUPERSEDED", `superseded by a newer request of ${by}, lease ${lease}`) };
  }
  return error === undefined ? { is: "over" } : refusedBy(error);
}

function refusedBy(error: WireError): AskUpdate {
  const meaning = meaningOf(error);
  if (meaning.is === "no") return { is: "no", error: meaning.error };
  return { is: "again", afterMs: meaning.is === "again" ? meaning.afterMs : 0 };
}

/** Reads the locks of a grant: a single one stands alone, several are in a list. */
function locksOf(ask: LockRequest, grant: WireGrant): HeldLock[] | undefined {
  if (grant.locks !== undefined && grant.locks.length > 0) {
    return grant.locks.map((it) => ({ name: it.lock, token: BigInt(it.token), slot: it.slot }));
  }
  // A notice names the lock; an answer does not.
  const name = grant.lock ?? ask.locks[0];
  if (name === undefined || grant.token === undefined) return undefined;
  return [{ name, token: BigInt(grant.token), slot: grant.slot }];
}

export function wireAcquire(ask: LockRequest, waitMs: number | undefined): WireAcquire {
  const how = ask.mode === "exclusive" ? {} : { mode: ask.mode, ...ask.how };
  const acquire: WireAcquire = { ...ask.extra };
  if (ask.choice === "pool") Object.assign(acquire, { pool: ask.locks[0] }, ask.how);
  else if (ask.locks.length === 1) Object.assign(acquire, { lock: ask.locks[0] }, how);
  else acquire.locks = ask.locks.map((lock) => ({ lock, ...how }));
  if (ask.choice === "any" && ask.locks.length > 1) acquire.any = true;
  setWait(acquire, waitMs);
  return acquire;
}

function setWait(acquire: WireAcquire, waitMs: number | undefined): void {
  if (waitMs === undefined) delete acquire.wait_ms;
  else acquire.wait_ms = waitMs;
}

/** The wait to request from the cluster: what is left until the limit. */
export function leftMs(ask: LockRequest, limit: Limit): number | undefined {
  if (ask.waitMs === 0) return 0;
  if (limit.atMs === Infinity) return undefined;
  return Math.max(1, Math.floor(limit.atMs - nowMs()));
}

function limitOf(core: Core, ask: LockRequest): Limit {
  const { timeoutMs } = ask;
  let waitMs = ask.waitMs ?? Infinity;
  if (ask.waitMs === 0) waitMs = timeoutMs === undefined ? Math.min(AT_ONCE_MS, core.settings.timeoutMs) : Infinity;
  const isTimeout = timeoutMs !== undefined && timeoutMs <= waitMs;
  return { atMs: nowMs() + Math.min(waitMs, timeoutMs ?? Infinity), isTimeout };
}

export function waitTimeout(ask: LockRequest): Refused {
  const names = `\`${ask.locks.join("`, `")}\``;
  const what = { all: `lock ${names}`, any: `any of ${names}`, pool: `a slot of pool ${names}` }[ask.choice];
  return new Refused("WAIT_TIMEOUT", `timed out waiting for ${what}`);
}

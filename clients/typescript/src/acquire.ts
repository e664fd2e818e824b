/**
 * Turns a lock request into a guard, across as many sessions as it takes.
 *
 * A request queues in the cluster, not on a session. When a session ends, the client repeats the request on the next one,
 * under the same number or the same lease, and the cluster answers with its current state. A notice saves a query; only
 * the answer is authoritative.
 */
import { HARMLESS, within, type Core } from "./core.js";
import { Closed, Lost, meaningOf, Refused, StrangeAnswer, Timeout, Unavailable, Unknown } from "./errors.js";
import type { TenureError } from "./errors.js";
import { Guard, type HeldLock } from "./guard.js";
import { giveBackLease, HeldLease, newLease, type Seq } from "./held_lease.js";
import { PendingGrant } from "./lease_state.js";
import type { LockRequest } from "./options.js";
import { jittered } from "./platform/platform.js";
import type { Asked, Response, Session } from "./session.js";
import { nowMs, Scope, sleep } from "./waiting.js";
import type { WireAcquire, WireGrant, WireLease } from "./wire.js";

/** The pause after a session ended or a member could not serve, and the bound up to which repeated ones grow. */
const PAUSE_MS = 20;
const PAUSE_MAX_MS = 500;
/** How long members must refuse the credentials before a request that waits is given up. */
const DENIED_MS = 1_000;
/** The cluster ends a wait by itself. The client waits this much longer for the cluster's word, and then ends it. */
const SLACK_MS = 50;
/** How long a request that does not queue waits for its answer: longer than a change of leader takes. */
const AT_ONCE_MS = 3_000;

/** What was granted, and a revision at which it was held. */
interface GrantedAt {
  readonly locks: HeldLock[];
  readonly at: bigint;
}

/** When the caller wants its answer at the latest, and whether that is its `timeout` rather than its `wait`. */
interface Limit {
  readonly atMs: number;
  readonly isTimeout: boolean;
}

/** Acquires under an existing lease. */
export function acquireUnder(held: HeldLease, ask: LockRequest): Promise<Guard> {
  return limited(held.core, ask, async (limit, scope) => {
    const leave = held.onLost((loss) => scope.end(held.core.isClosing ? new Closed() : new Lost(loss)));
    scope.onLeave(leave);
    const turns = await takeTurns(held, ask, limit, scope);
    const standing = new StandingRequest(held, ask, limit, true);
    try {
      const granted = await standing.run(scope, undefined);
      return Guard.of(held, false, granted.locks, granted.at, turns);
    } catch (error) {
      // What may still stand in the cluster is left in the background; only then the next request here may go on.
      if (standing.mayStand) held.core.cleanUp(() => leaveQueue(held, ask).finally(turns));
      else turns();
      throw error;
    }
  });
}

/** Acquires with a new lease, which the same command grants. */
export function acquireOwn(core: Core, ask: LockRequest): Promise<Guard> {
  return limited(core, ask, async (limit, scope) => {
    const began = nowMs();
    const reachMs = Math.min(began + core.settings.timeoutMs, limit.atMs + SLACK_MS);
    const unknown = (): TenureError => new Unknown(nowMs() - began);
    for (let turn = 0; ; turn += 1) {
      let guard: Guard | undefined;
      try {
        guard = await ownOnce(core, ask, limit, reachMs, scope);
      } catch (error) {
        // This attempt was not sent, but an earlier one was.
        throw error instanceof Unavailable && turn > 0 ? unknown() : error;
      }
      if (guard !== undefined) return guard;
      // The first answer came too late to be of use: start again with a new lease, within the time of any request.
      if (nowMs() >= reachMs || !core.spend()) throw unknown();
    }
  });
}

/** Runs an acquire within the caller's limits: its signal, its time, and the life of the client. */
async function limited(
  core: Core,
  ask: LockRequest,
  acquire: (limit: Limit, scope: Scope) => Promise<Guard>,
): Promise<Guard> {
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

async function ownOnce(
  core: Core,
  ask: LockRequest,
  limit: Limit,
  reachMs: number,
  scope: Scope,
): Promise<Guard | undefined> {
  const began = nowMs();
  const pending = new PendingGrant(ask.timing);
  // An answer after this leaves too little of the window to be of use.
  const worthlessMs = began + (ask.timing.windowUs / 1_000) * 0.75;
  const lease = newLease(core, ask.timing);
  const acquire: WireAcquire = { ...wireAcquire(ask, leftMs(ask, limit)), new_lease: lease };
  let sent = false;
  let held: HeldLease | undefined;
  try {
    for (;;) {
      scope.check();
      const found = ask.waitMs === 0 ? core.sessionAtOnce(reachMs) : core.session(reachMs);
      const session = await scope.race(found);
      if (session === undefined) throw sent ? new Unknown(nowMs() - began) : core.noSession();
      if (nowMs() >= worthlessMs) return undefined;
      // Read the clock before the send; a repetition under the same lease also counts from here.
      pending.sent(core.clock.read());
      const asked = session.ask(core.request({ acquire }, HARMLESS));
      if (asked === undefined) {
        await scope.race(sleep(PAUSE_MS));
        continue;
      }
      sent = true;
      let keep = false;
      try {
        const response = await scope.race(within(asked.next(), Math.min(worthlessMs, reachMs)));
        if (response === undefined) return undefined;
        const update = updateOf(response, ask);
        if (update.is === "again") {
          await scope.race(sleep(Math.max(jittered(PAUSE_MS), update.afterMs), reachMs));
          continue;
        }
        if (update.is === "no") {
          sent = false;
          throw update.error;
        }
        if (update.is === "over" || update.lease === undefined) throw new StrangeAnswer();
        const state = pending.granted(core.clock.read());
        if (state === undefined) return undefined;
        held = new HeldLease(core, update.lease, state);
        sent = false;
        if (update.is === "granted") return Guard.of(held, true, update.granted.locks, update.granted.at);
        ask.onQueued?.(update.ahead);
        keep = true;
        const mine = held;
        scope.onLeave(held.onLost((loss) => scope.end(core.isClosing ? new Closed() : new Lost(loss))));
        const standing = new StandingRequest(mine, ask, limit, false, true);
        const granted = await standing.run(scope, { session, asked });
        return Guard.of(mine, true, granted.locks, granted.at);
      } finally {
        if (!keep) asked.end();
      }
    }
  } catch (error) {
    // Whatever is left of the request ends with its lease.
    if (held !== undefined) core.cleanUp(() => held!.revoke());
    throw error;
  } finally {
    // A lease that may have been granted although its caller no longer waits.
    if (sent) giveBackLease(core, lease.lease);
  }
}

/** A request that stands in the cluster. */
class StandingRequest {
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

/** Leaves the queue, and releases what was granted meanwhile. */
async function leaveQueue(held: HeldLease, ask: LockRequest): Promise<void> {
  const lock = ask.locks[0];
  if (lock === undefined) return;
  const { answer } = await held.numbered({ leave: { lock, lease: held.id } });
  for (const grant of answer.left?.held ?? []) await held.release(grant.lock, BigInt(grant.token));
}

/**
 * Waits until no other request of this process holds or awaits any of the locks under this lease. Returns what gives the
 * places back.
 */
async function takeTurns(held: HeldLease, ask: LockRequest, limit: Limit, scope: Scope): Promise<() => void> {
  const taken: string[] = [];
  const giveBack = (): void => taken.splice(0).forEach((lock) => held.leaveTurn(lock));
  try {
    // In one order everywhere, so that two requests never wait for each other.
    for (const lock of [...new Set(ask.locks)].sort()) {
      if (!held.takeTurnNow(lock)) {
        if (ask.waitMs === 0) throw new Refused("HELD", `lock \`${lock}\` is held by this lease`);
        const turn = held.takeTurn(lock);
        try {
          const waited = await scope.race(within(turn.taken.then(() => true as const), limit.atMs));
          if (waited === undefined) throw waitTimeout(ask);
        } catch (error) {
          turn.leave();
          throw error;
        }
      }
      taken.push(lock);
    }
    return giveBack;
  } catch (error) {
    giveBack();
    throw error;
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

function updateOf(response: Response, ask: LockRequest): AskUpdate {
  switch (response.kind) {
    case "gone":
      return { is: "again", afterMs: 0 };
    case "wait_ended":
      return { is: "over" };
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
      const meaning = meaningOf(error);
      if (meaning.is === "no") return { is: "no", error: meaning.error };
      return { is: "again", afterMs: meaning.is === "again" ? meaning.afterMs : 0 };
    }
  }
}

/** Reads the locks of a grant: a single one stands alone, several are in a list. */
function locksOf(ask: LockRequest, grant: WireGrant): HeldLock[] | undefined {
  if (grant.locks !== undefined && grant.locks.length > 0) {
    return grant.locks.map((it) => ({ name: it.lock, token: BigInt(it.token), slot: it.slot }));
  }
  const name = ask.locks[0];
  if (name === undefined || grant.token === undefined) return undefined;
  return [{ name, token: BigInt(grant.token), slot: grant.slot }];
}

function wireAcquire(ask: LockRequest, waitMs: number | undefined): WireAcquire {
  const how = ask.mode === "exclusive" ? {} : { mode: ask.mode, ...(ask.slots === undefined ? {} : { slots: ask.slots }) };
  const acquire: WireAcquire = { ...ask.extra };
  if (ask.locks.length === 1) Object.assign(acquire, { lock: ask.locks[0] }, how);
  else acquire.locks = ask.locks.map((lock) => ({ lock, ...how }));
  setWait(acquire, waitMs);
  return acquire;
}

function setWait(acquire: WireAcquire, waitMs: number | undefined): void {
  if (waitMs === undefined) delete acquire.wait_ms;
  else acquire.wait_ms = waitMs;
}

/** The wait to request from the cluster: what is left until the limit. */
function leftMs(ask: LockRequest, limit: Limit): number | undefined {
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

function waitTimeout(ask: LockRequest): Refused {
  return new Refused("WAIT_TIMEOUT", `timed out waiting for lock \`${ask.locks.join("`, `")}\``);
}

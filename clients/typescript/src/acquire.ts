/**
 * Turns a lock request into a guard, across as many sessions as it takes.
 *
 * A request queues in the cluster, not on a session. When a session ends, the client repeats the request on the next one,
 * under the same number or the same lease, and the cluster answers with its current state. A notice saves a query; only
 * the answer is authoritative.
 */
import { HARMLESS, within, type Core, type Identity } from "./core.js";
import { Closed, Lost, Refused, StrangeAnswer, Unavailable, Unknown, type TenureError } from "./errors.js";
import { fenced } from "./fence.js";
import { Guard } from "./guard.js";
import { giveBackLease, HeldLease, newLease } from "./held_lease.js";
import { PendingGrant } from "./lease_state.js";
import type { LockRequest } from "./options.js";
import { jittered, randomKey } from "./platform/platform.js";
import { leftMs, limited, PAUSE_MS, SLACK_MS, StandingRequest, updateOf, waitTimeout, wireAcquire, type Limit } from "./standing.js";
import { nowMs, sleep, type Scope } from "./waiting.js";
import type { WireAcquire } from "./wire.js";

/** Acquires under an existing lease. */
export function acquireUnder(held: HeldLease, ask: LockRequest): Promise<Guard> {
  return fenced(held.core, ask, grantedUnder(held, ask));
}

/** Acquires with a new lease, which the same command grants. */
export function acquireOwn(core: Core, ask: LockRequest): Promise<Guard> {
  return fenced(core, ask, grantedOwn(core, ask));
}

function grantedUnder(held: HeldLease, ask: LockRequest): Promise<Guard> {
  return limited(held.core, ask, async (limit, scope) => {
    const leave = held.onLost((loss) => scope.end(held.core.isClosing ? new Closed() : new Lost(loss)));
    scope.onLeave(leave);
    const permits = await acquirePermits(held, ask, limit, scope);
    const standing = new StandingRequest(held, ask, limit, true);
    try {
      const granted = await standing.run(scope, undefined);
      permits.keep(granted.locks.map((it) => it.name));
      return Guard.of(held, false, granted.locks, granted.at, permits.release);
    } catch (error) {
      // What may still stand in the cluster is left in the background; only then the next request here may go on.
      if (standing.mayStand) held.core.cleanUp(() => leaveQueues(held, ask).finally(permits.release));
      else permits.release();
      throw error;
    }
  });
}

function grantedOwn(core: Core, ask: LockRequest): Promise<Guard> {
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
  // A repetition of a request that was replaced by a newer one of its group must not replace that one.
  const replaceable = acquire.supersede !== undefined;
  const identity: Identity = replaceable ? { by: "key", key: randomKey() } : HARMLESS;
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
      const asked = session.ask(core.request({ acquire }, identity));
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
        if (update.is === "over" && replaceable) throw new Lost({ cause: "gone" });
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

/**
 * Leaves the queues, and releases what was granted meanwhile. If any of the locks was enough, each may be the one that was
 * granted; otherwise the first one stands for all of them.
 */
async function leaveQueues(held: HeldLease, ask: LockRequest): Promise<void> {
  for (const lock of ask.choice === "any" ? ask.locks : ask.locks.slice(0, 1)) {
    if (await leaveQueue(held, lock)) return;
  }
}

/** Returns whether there was a place in the queue of this lock, or a hold of it, to give up. */
async function leaveQueue(held: HeldLease, lock: string): Promise<boolean> {
  try {
    const { answer } = await held.numbered({ leave: { lock, lease: held.id } });
    for (const grant of answer.left?.held ?? []) await held.release(grant.lock, BigInt(grant.token));
    return true;
  } catch (error) {
    if (error instanceof Refused) return false;
    throw error;
  }
}

/** The local permits of a request. */
interface LocalPermits {
  /** Gives back those of the locks that were not granted. */
  keep(granted: readonly string[]): void;
  release(): void;
}

/** Waits until no other request of this process holds or awaits any of the locks under this lease. */
async function acquirePermits(held: HeldLease, ask: LockRequest, limit: Limit, scope: Scope): Promise<LocalPermits> {
  let taken: string[] = [];
  const keep = (granted: readonly string[]): void => {
    const over = taken.filter((lock) => !granted.includes(lock));
    taken = taken.filter((lock) => granted.includes(lock));
    over.forEach((lock) => held.releasePermit(lock));
  };
  const release = (): void => keep([]);
  try {
    // In one order everywhere, so that two requests never wait for each other.
    for (const lock of [...new Set(ask.locks)].sort()) {
      if (!held.tryAcquirePermit(lock)) {
        if (ask.waitMs === 0) throw new Refused("HELD", `lock \`${lock}\` is held by this lease`);
        const waiter = held.acquirePermit(lock);
        try {
          const waited = await scope.race(within(waiter.taken.then(() => true as const), limit.atMs));
          if (waited === undefined) throw waitTimeout(ask);
        } catch (error) {
          waiter.leave();
          throw error;
        }
      }
      taken.push(lock);
    }
    return { keep, release };
  } catch (error) {
    release();
    throw error;
  }
}

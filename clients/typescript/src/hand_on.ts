/** Changes who holds a lock and how: upgrades a shared hold, and gives a hold to a client that waits. */
import { Invalid, Lost, Refused, StrangeAnswer, Unavailable, Unknown } from "./errors.js";
import type { HeldLock } from "./guard.js";
import type { HeldLease } from "./held_lease.js";
import { lockRequest, type UpgradeOptions } from "./options.js";
import { limited, StandingRequest, type GrantedAt } from "./standing.js";
import { nowMs } from "./waiting.js";

/**
 * Turns the shared hold of a lease into an exclusive one, and resolves with the token. `doubt` is called if it is not
 * certain how the lock is held.
 */
export async function upgradeHold(
  held: HeldLease,
  lock: HeldLock,
  options: UpgradeOptions,
  doubt: () => void,
): Promise<bigint> {
  const { wait, timeout, signal, independent, onQueued } = options;
  const chosen = Object.entries({ wait, timeout, signal, independent, onQueued }).filter(([, it]) => it !== undefined);
  const ask = lockRequest(held.core.settings, lock.name, Object.fromEntries(chosen));
  ask.extra.upgrade = true;
  const began = nowMs();
  return limited(held.core, ask, async (limit, scope) => {
    scope.onLeave(held.onLost((loss) => scope.end(new Lost(loss))));
    const standing = new StandingRequest(held, ask, limit, true);
    let granted: GrantedAt;
    try {
      granted = await standing.run(scope, undefined);
    } catch (error) {
      if (error instanceof Lost) doubt();
      if (error instanceof Lost || !standing.mayStand) throw error;
      // The answer tells whether the upgrade came first: then the token is another one.
      const found = await leaveUpgrade(held, lock, began, doubt);
      if (found === undefined) throw error;
      granted = found;
    }
    const token = granted.locks.find((it) => it.name === lock.name)?.token ?? lock.token;
    if (token !== lock.token) held.regranted(lock.token, token, granted.at);
    return token;
  });
}

/** Leaves the queue in which a lease waits for an upgrade. Returns the hold if it was upgraded before. */
async function leaveUpgrade(
  held: HeldLease,
  lock: HeldLock,
  began: number,
  doubt: () => void,
): Promise<GrantedAt | undefined> {
  try {
    const { answer, revision } = await held.numbered({ leave: { lock: lock.name, lease: held.id } });
    if (answer.left === undefined) throw new StrangeAnswer();
    const locks = (answer.left.held ?? []).map((it) => ({ name: it.lock, token: BigInt(it.token), slot: it.slot }));
    const found = locks.find((it) => it.name === lock.name && it.token !== lock.token);
    return found && { locks: [found], at: revision };
  } catch (error) {
    doubt();
    // The lease holds nothing of the lock any more.
    if (error instanceof Refused) throw new Lost({ cause: "gone" });
    throw error instanceof Unavailable ? new Unknown(nowMs() - began) : error;
  }
}

/** Gives a hold to a lease that waits for the lock, and resolves with the token of its grant. */
export async function handOnHold(held: HeldLease, lock: HeldLock, to: string, doubt: () => void): Promise<bigint> {
  if (!/^[0-9]{1,19}$/.test(to)) throw new Invalid("INVALID_FIELD", `to is the id of a lease, not ${to}`);
  const hold = { lock: lock.name, lease: held.id, token: String(lock.token), to };
  try {
    const { answer } = await held.numbered({ hand_on: hold });
    if (answer.handed_on === undefined) throw new StrangeAnswer();
    return BigInt(answer.handed_on.token);
  } catch (error) {
    // After a refusal the hold is as it was.
    if (!(error instanceof Refused || error instanceof Unavailable)) doubt();
    throw error;
  }
}

/** Leaves the queue of an upgrade, and releases the lock under whichever token the lease holds it. */
export async function giveBackWhatThereIs(held: HeldLease, lock: HeldLock): Promise<void> {
  let tokens = [lock.token];
  try {
    const { answer } = await held.numbered({ leave: { lock: lock.name, lease: held.id } });
    const found = answer.left?.held ?? [];
    if (found.length > 0) tokens = found.map((it) => BigInt(it.token));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
  for (const token of tokens) {
    // A loss says that it is not held under this token.
    await held.release(lock.name, token).catch((error: unknown) => {
      if (!(error instanceof Lost)) throw error;
    });
  }
}

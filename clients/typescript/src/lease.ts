/** Defines the lease of a client: several locks can be held under it, and are lost together. */
import "./dispose.js";
import { acquireUnder } from "./acquire.js";
import { HARMLESS, type Core } from "./core.js";
import { Closed, Invalid, Lost, Refused, StrangeAnswer, Unknown } from "./errors.js";
import type { Guard } from "./guard.js";
import { giveBackLease, HeldLease, newLease } from "./held_lease.js";
import { PendingGrant, type Standing } from "./lease_state.js";
import { lockRequest, timingOf, type LeaseTimes, type LockOptions } from "./options.js";

/** A client's lease in the cluster, kept alive until it is released. */
export class Lease {
  private constructor(private readonly held: HeldLease) {}

  /**
   * Requests a lease from the cluster.
   *
   * @internal
   */
  static async grant(core: Core, times: LeaseTimes): Promise<Lease> {
    if (core.isClosing) throw new Closed();
    const timing = timingOf(core.settings, times);
    const pending = new PendingGrant(timing);
    const lease = newLease(core, timing);
    // Granting by id is harmless to repeat; the lease time counts from the first send.
    pending.sent(core.clock.read());
    const withinMs = Math.min(core.settings.timeoutMs, timing.windowUs / 1_000);
    try {
      const { answer } = await core.call({ grant_lease: lease }, HARMLESS, withinMs);
      if (answer.lease_granted === undefined) throw new StrangeAnswer();
      const now = core.clock.read();
      const state = pending.granted(now);
      if (state !== undefined) return new Lease(new HeldLease(core, answer.lease_granted, state));
      giveBackLease(core, lease.lease);
      throw new Lost({ cause: "cluster_unreachable", forUs: pending.tookUs(now) });
    } catch (error) {
      if (error instanceof Unknown) giveBackLease(core, lease.lease);
      throw error;
    }
  }

  /** The lease's id. */
  get id(): string {
    return this.held.id;
  }

  /** Requests a lock, or several: all or none. Waits in the queue. The lease has times of its own already. */
  async lock(locks: string | readonly string[], options: Omit<LockOptions, keyof LeaseTimes> = {}): Promise<Guard> {
    return acquireUnder(this.held, lockRequest(this.held.core.settings, locks, options));
  }

  /** Requests any one of several locks under this lease, as `client.lockAny` does. */
  async lockAny(locks: readonly string[], options: Omit<LockOptions, keyof LeaseTimes> = {}): Promise<Guard> {
    return acquireUnder(this.held, lockRequest(this.held.core.settings, locks, options, { choice: "any" }));
  }

  /** Requests a lock without queueing. Resolves with `null` if another client holds it. */
  async tryLock(
    locks: string | readonly string[],
    options: Omit<LockOptions, keyof LeaseTimes | "wait"> = {},
  ): Promise<Guard | null> {
    return heldAsNull(this.lock(locks, { ...options, wait: 0 }));
  }

  /** Checks that the lease can be relied on at this moment, and throws {@link Lost} if not. */
  check(): void {
    const loss = this.held.checkLease();
    if (loss !== undefined) throw new Lost(loss);
  }

  /** Whether the lease can be relied on at this moment. */
  get standing(): Standing {
    return this.held.standing();
  }

  /** Resolves when the lease is lost, with why and by whom. */
  lost(): Promise<Lost> {
    return new Promise((resolve) => this.held.onLost((loss) => resolve(new Lost(loss))));
  }

  /** Ends the lease now. Its guards must be released, because the work under it must have stopped. */
  async release(): Promise<void> {
    if (!this.held.peek().isIdle) throw new Invalid("LEASE_IN_USE", "the lease has guards");
    try {
      await this.held.revoke();
    } catch (error) {
      // It had ended before.
      if (!(error instanceof Lost)) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}

/** The guard, or `null` if another client holds the lock. */
export async function heldAsNull(acquiring: Promise<Guard>): Promise<Guard | null> {
  try {
    return await acquiring;
  } catch (error) {
    if (error instanceof Refused && error.reason === "HELD") return null;
    throw error;
  }
}

/** Keeps a granted lease, numbers its requests, and tells everything that relies on it when it is lost. */
import { HARMLESS, wasDoubtful, type Answered, type Core, type Identity } from "./core.js";
import { Lost, Refused, StrangeAnswer } from "./errors.js";
import type { ClockReading, LeaseState, Standing } from "./lease_state.js";
import type { LeaseTiming } from "./lease_timing.js";
import type { Loss } from "./loss.js";
import { randomId } from "./platform/platform.js";
import type { Command, Decimal, WireLease, WireNewLease } from "./wire.js";

/** The maximum number of unanswered requests of one lease: somewhat less than the cluster allows. */
const WINDOW = 200;
/** Losses of grants that are not known yet: the answer that tells of the grant is still on its way to its task. */
const EARLY_MAX = 64;

/** Hears of the loss of a grant, once. */
export type LossListener = (loss: Loss) => void;

/** The lease itself, from its grant on. */
export class HeldLease {
  readonly id: Decimal;
  readonly created: Decimal;
  private readonly listeners = new Map<bigint, LossListener>();
  private readonly leaseListeners = new Set<LossListener>();
  private readonly early = new Map<bigint, Loss>();
  /** The local queue of each lock that this process requests or holds under the lease. */
  private readonly busy = new Map<string, (() => void)[]>();
  private newestSeq = 0;
  /** Numbers that are not finally answered, in order. */
  private openSeqs: number[] = [];
  private readonly seqWaiters: (() => void)[] = [];
  private told = false;
  private revoked = false;

  constructor(
    readonly core: Core,
    granted: WireLease,
    private readonly state: LeaseState,
  ) {
    this.id = granted.lease;
    this.created = granted.created;
    core.leases.set(this.id, this);
    core.renewals.consider(state.due);
  }

  /** Whether the lease was ended here. */
  get isRevoked(): boolean {
    return this.revoked;
  }

  /** The lease state, for reading what needs no clock. */
  peek(): LeaseState {
    return this.state;
  }

  /** Changes the lease state, and tells everything that relies on what the change loses. */
  with<T>(act: (state: LeaseState) => T, now: ClockReading = this.core.clock.read()): T {
    const done = act(this.state);
    this.state.check(now);
    this.report();
    return done;
  }

  /** Checks by the clock that a grant can be relied on, and returns its loss if not. */
  check(token: bigint): Loss | undefined {
    const now = this.core.clock.read();
    const loss = this.state.checkGrant(token, now);
    if (loss !== undefined) this.report();
    return loss;
  }

  /** Checks by the clock that the lease can be relied on, and returns its loss if not. */
  checkLease(): Loss | undefined {
    const loss = this.state.check(this.core.clock.read());
    if (loss !== undefined) this.report();
    return loss;
  }

  standing(): Standing {
    const now = this.core.clock.read();
    return this.with((state) => state.standing(now), now);
  }

  /** Records a granted lock, and who hears of its loss. Returns the loss if it cannot be relied on. */
  granted(lock: string, token: bigint, at: bigint, listener: LossListener): Loss | undefined {
    const now = this.core.clock.read();
    const loss = this.state.granted(lock, token, at, now);
    if (loss !== undefined) return loss;
    this.listeners.set(token, listener);
    const early = this.early.get(token);
    if (early !== undefined) this.with((state) => state.taken(token, early), now);
    return early;
  }

  /** The cluster took a lock away. */
  taken(token: bigint, loss: Loss): void {
    if (this.early.size < EARLY_MAX) this.early.set(token, loss);
    this.with((state) => state.taken(token, loss));
  }

  /** Moves a held lock to another token, together with the subscription to its loss. */
  regranted(old: bigint, token: bigint, at: bigint): void {
    const listener = this.listeners.get(old);
    this.listeners.delete(old);
    if (listener !== undefined) this.listeners.set(token, listener);
    this.with((state) => state.regranted(old, token, at));
  }

  /** Subscribes to the loss of the lease itself. */
  onLost(listener: LossListener): () => void {
    const loss = this.state.loss;
    if (loss !== undefined) listener(loss);
    else this.leaseListeners.add(listener);
    return () => this.leaseListeners.delete(listener);
  }

  // Local queues.

  /** Acquires the local permit of a lock if no other request of this process has it under this lease. */
  tryAcquirePermit(lock: string): boolean {
    if (this.busy.has(lock)) return false;
    this.busy.set(lock, []);
    return true;
  }

  /** Waits for the local permit of a lock. `leave` gives up waiting. */
  acquirePermit(lock: string): { readonly taken: Promise<void>; leave(): void } {
    const queue = this.busy.get(lock);
    if (queue === undefined) {
      this.busy.set(lock, []);
      return { taken: Promise.resolve(), leave: () => this.releasePermit(lock) };
    }
    let wake!: () => void;
    let has = false;
    const taken = new Promise<void>((resolve) => {
      wake = () => {
        has = true;
        resolve();
      };
    });
    queue.push(wake);
    const leave = (): void => {
      if (has) return this.releasePermit(lock);
      const at = queue.indexOf(wake);
      if (at >= 0) queue.splice(at, 1);
    };
    return { taken, leave };
  }

  /** Gives the local permit of a lock to the next request. */
  releasePermit(lock: string): void {
    const next = this.busy.get(lock)?.shift();
    if (next === undefined) this.busy.delete(lock);
    else next();
  }

  // Requests under the lease.

  /** The next request number, once the window has room. */
  async seq(): Promise<Seq> {
    while (this.openSeqs.length >= WINDOW) {
      await new Promise<void>((resolve) => this.seqWaiters.push(resolve));
    }
    this.newestSeq += 1;
    this.openSeqs.push(this.newestSeq);
    return new Seq(this, this.newestSeq);
  }

  /** Every number up to this one is answered or abandoned. */
  get doneSeq(): number {
    const oldest = this.openSeqs[0];
    return oldest === undefined ? this.newestSeq : oldest - 1;
  }

  endSeq(seq: number): void {
    const at = this.openSeqs.indexOf(seq);
    if (at < 0) return;
    this.openSeqs.splice(at, 1);
    this.seqWaiters.shift()?.();
  }

  /** Sends a command under the lease, exactly once. */
  async numbered(command: Command): Promise<Answered> {
    const seq = await this.seq();
    try {
      return await this.core.call(command, seq.identity());
    } finally {
      seq.end();
    }
  }

  // The end.

  /** Releases a lock. The token identifies the grant, so doing it twice is doing it once. */
  async release(lock: string, token: bigint): Promise<void> {
    try {
      const command = { release: { lock, lease: this.id, token: String(token) } };
      const { answer } = await this.core.call(command, HARMLESS);
      if (answer.released === undefined) throw new StrangeAnswer();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const ended = error.reason === "NOT_HOLDER" || error.reason === "LEASE_NOT_FOUND";
      if (!ended) throw error;
      // An earlier, unanswered attempt may have released the lock. Otherwise it was lost, and the notice has not come.
      if (!(wasDoubtful(error) && error.reason === "NOT_HOLDER")) throw new Lost({ cause: "gone" });
    }
  }

  /** Removes a lock whose work has stopped while it was held. Returns its name, or `undefined` if it was lost. */
  giveBack(token: bigint): string | undefined {
    const now = this.core.clock.read();
    const lock = this.with((state) => state.givenBack(token, now), now);
    if (lock !== undefined) this.listeners.delete(token);
    return lock;
  }

  /** Tells the cluster what it may know about grants whose work has stopped. */
  async farewell(tokens: readonly bigint[]): Promise<void> {
    const now = this.core.clock.read();
    const lost = this.state.check(now);
    this.with((state) => {
      for (const token of tokens) state.stopped(token);
    }, now);
    const farewells = this.state.farewells();
    for (const token of tokens) this.listeners.delete(token);
    let failure: { readonly error: unknown } | undefined;
    for (const { token, lock, end } of farewells) {
      // A lost lease is revoked as a whole.
      if (lost !== undefined && end === "release") continue;
      try {
        await (end === "release" ? this.release(lock, token) : this.confirm(lock, token));
      } catch (error) {
        failure ??= { error };
      }
    }
    // The last work under a lost lease has stopped: revoke it, so that others do not wait until it runs out.
    if (lost !== undefined) await this.revoke();
    if (failure !== undefined) throw failure.error;
  }

  /** Ends the lease, if no work runs under it. */
  async revoke(): Promise<void> {
    if (!this.with((state) => state.endIfIdle()) || this.revoked) return;
    this.revoked = true;
    this.core.leases.delete(this.id);
    try {
      await this.core.call({ revoke: { lease: this.id } }, HARMLESS);
    } catch (error) {
      if (!(error instanceof Refused) || error.reason !== "LEASE_NOT_FOUND") throw error;
      // Unless an earlier attempt did it, the lease had ended before, which the client was not told.
      if (!wasDoubtful(error)) throw new Lost({ cause: "gone" });
    }
  }

  /** Confirms that the work under a lock that was taken away has stopped, so that the next grant need not wait. */
  private async confirm(lock: string, token: bigint): Promise<void> {
    const stopped = { lock, lease: this.id, lease_created: this.created, token: String(token) };
    try {
      await this.core.call({ stopped }, HARMLESS);
    } catch (error) {
      // Not cooling: the lock has already gone to the next holder, so there is nothing to confirm.
      if (!(error instanceof Refused) || error.reason !== "NOT_COOLING") throw error;
    }
  }

  /** Tells the listeners of what is lost, each once. */
  private report(): void {
    const loss = this.state.loss;
    if (loss !== undefined && !this.told) {
      this.told = true;
      const listeners = [...this.leaseListeners];
      this.leaseListeners.clear();
      for (const listener of listeners) listener(loss);
    }
    if (this.listeners.size === 0) return;
    for (const grant of this.state.kept()) {
      const listener = grant.loss && this.listeners.get(grant.token);
      if (listener === undefined || grant.loss === undefined) continue;
      this.listeners.delete(grant.token);
      listener(grant.loss);
    }
  }
}

/** A request's number. The request counts as unanswered until {@link end}. */
export class Seq {
  constructor(
    private readonly held: HeldLease,
    private readonly number: number,
  ) {}

  identity(): Identity {
    return { by: "seq", seq: this.number, done: this.held.doneSeq };
  }

  /** The request is answered or abandoned; every later request reports this to the cluster. */
  end(): void {
    this.held.endSeq(this.number);
  }
}

/** A request for a new lease, under an id chosen here so that the request can be repeated. */
export function newLease(core: Core, timing: LeaseTiming): WireNewLease {
  return { ttl_ms: Math.round(timing.ttlUs / 1_000), lease: String(randomId()), client: core.settings.name };
}

/** Revokes a lease in the background that may have been granted and that no caller uses. */
export function giveBackLease(core: Core, id: Decimal): void {
  core.cleanUp(() => core.call({ revoke: { lease: id } }, HARMLESS));
}

/** Implements the guard: the value that stands for a held lock, tells work to stop in time and releases the lock. */
import "./dispose.js";
import { HARMLESS } from "./core.js";
import { Invalid, Lost, StrangeAnswer, Unavailable } from "./errors.js";
import { giveBackWhatThereIs, handOnHold, upgradeHold } from "./hand_on.js";
import type { HeldLease } from "./held_lease.js";
import type { Standing } from "./lease_state.js";
import type { Loss } from "./loss.js";
import type { UpgradeOptions } from "./options.js";
import { nowMs } from "./waiting.js";
import { contentFields, type Content } from "./wire.js";

/** One lock of a guard. */
export interface HeldLock {
  readonly name: string;
  /** The fencing token of the grant. */
  readonly token: bigint;
  /** The slot of a semaphore, counted from 0. */
  readonly slot: number | undefined;
}

/** What guards of the same grant share. */
interface GrantState {
  readonly held: HeldLease;
  /** Whether the lease exists for this grant alone. */
  readonly own: boolean;
  locks: HeldLock[];
  readonly at: bigint;
  /** Gives the local places of the locks back. */
  readonly releasePermits: () => void;
  /** How many guards exist. */
  guards: number;
  loss: Loss | undefined;
  controller: AbortController | undefined;
  lossListeners: ((loss: Loss) => void)[];
  /** Whether it is not certain how the lock is held. */
  inDoubt: boolean;
}

/**
 * A held lock, or several that were requested together.
 *
 * While the guard exists, the client renews its lease. {@link release}, or leaving a block with `await using`, declares
 * that the work has stopped and gives the lock back. A lost lock stays lost: {@link check}, {@link signal} and
 * {@link lost} tell of it before another client may start.
 */
export class Guard {
  private released: Promise<void> | undefined;
  /** Whether the loss was thrown to the caller. */
  private reported = false;

  private constructor(private readonly grant: GrantState) {}

  /**
   * Creates a guard of what was granted, if the lease can be relied on at this moment; otherwise gives it back.
   *
   * @internal
   */
  static of(
    held: HeldLease,
    own: boolean,
    locks: HeldLock[],
    at: bigint,
    releasePermits: () => void = () => undefined,
  ): Guard {
    const grant: GrantState = {
      held,
      own,
      locks,
      at,
      releasePermits,
      guards: 1,
      loss: undefined,
      controller: undefined,
      lossListeners: [],
      inDoubt: false,
    };
    const tell = (loss: Loss): void => tellLoss(grant, loss);
    let loss: Loss | undefined;
    for (const lock of locks) loss ??= held.granted(lock.name, lock.token, at, tell);
    if (loss === undefined) return new Guard(grant);
    // No work has begun: everything can go back at once.
    held.core.cleanUp(async () => {
      await held.farewell(locks.map((lock) => lock.token)).catch(() => undefined);
      if (own) await held.revoke();
      else for (const lock of locks) await held.release(lock.name, lock.token).catch(() => undefined);
      releasePermits();
    });
    throw new Lost(loss);
  }

  /** The fencing token. Pass it to the resource that the lock protects. Of several locks: that of the first by name. */
  get token(): bigint {
    return this.first.token;
  }

  /** The lock's name. Of several locks: the first by name. */
  get name(): string {
    return this.first.name;
  }

  /** The slot of a semaphore, counted from 0. */
  get slot(): number | undefined {
    return this.first.slot;
  }

  /** Every lock that the guard stands for, in the order of their names. */
  get locks(): readonly HeldLock[] {
    return this.grant.locks;
  }

  /** The id of the lease that the lock is held under. */
  get lease(): string {
    return this.grant.held.id;
  }

  /** A revision at which the lock was held: that of the grant, unless the client had to ask again. */
  get revision(): bigint {
    return this.grant.at;
  }

  /**
   * Checks that the lock can be relied on at this moment, and throws {@link Lost} if not. Compares the clock and sends
   * nothing, so it is right although a blocked event loop stops timers. Call it before every step that must not run late.
   */
  check(): void {
    const loss = this.lossNow();
    if (loss === undefined) return;
    this.reported = true;
    throw new Lost(loss);
  }

  /** Whether the lock can be relied on at this moment: `valid`, `overdue` (renewals are late), or `lost`. */
  get standing(): Standing {
    return this.lossNow() === undefined ? this.grant.held.standing() : "lost";
  }

  /**
   * Aborts when the lock is lost, with a {@link Lost} as its reason: within milliseconds, once the event loop runs. Its
   * `aborted` and `throwIfAborted()` compare the clock, as {@link check} does.
   */
  get signal(): AbortSignal {
    const { grant } = this;
    if (grant.controller === undefined) {
      grant.controller = new AbortController();
      clocked(grant.controller.signal, () => lossOf(grant));
      const loss = lossOf(grant);
      if (loss !== undefined) grant.controller.abort(new Lost(loss));
    }
    return grant.controller.signal;
  }

  /** Resolves when the lock is lost, with why and by whom. Never, if it is released first. */
  lost(): Promise<Lost> {
    const loss = lossOf(this.grant);
    if (loss !== undefined) return Promise.resolve(new Lost(loss));
    return new Promise((resolve) => this.grant.lossListeners.push((it) => resolve(new Lost(it))));
  }

  /**
   * Runs work under the lock, and waits until it has ended, also if the lock is lost meanwhile: the work has to watch
   * {@link signal} or call {@link check}. Work that ends after the lock was lost, in whichever way, is answered with
   * {@link Lost}; what it returned or threw is in there. The lock stays held: {@link release} it.
   */
  async run<T>(work: (guard: Guard) => T | PromiseLike<T>): Promise<T> {
    this.check();
    let outcome: { readonly output: T } | { readonly error: unknown };
    try {
      outcome = { output: await work(this) };
    } catch (error) {
      outcome = { error };
    }
    const loss = this.lossNow();
    if (loss !== undefined) {
      this.reported = true;
      throw new Lost(loss, outcome);
    }
    if ("error" in outcome) throw outcome.error;
    return outcome.output;
  }

  /**
   * Another guard of the same grant, for a callee that takes the lock again, without a request to the cluster. The lock
   * is given back when the last of these guards is released.
   */
  reenter(): Guard {
    this.check();
    this.grant.guards += 1;
    return new Guard(this.grant);
  }

  /**
   * Releases the lock and waits until the cluster has acknowledged it. The caller must have stopped its work.
   *
   * If the lock is lost, this throws {@link Lost} at once, and the client tells the cluster in the background that the
   * work has stopped; `client.close` waits for that. Releasing again does nothing.
   */
  release(): Promise<void> {
    this.released ??= this.end();
    return this.released;
  }

  /**
   * Releases the lock at the end of an `await using` block. Throws {@link Lost} if the lock was lost before the end of
   * the block and nothing has told the block so: its result is no success.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.released !== undefined) return;
    try {
      await this.release();
    } catch (error) {
      if (error instanceof Lost && this.reported) return;
      // Any other failure of the release does not undo the work; the lease runs out.
      if (error instanceof Lost) throw error;
    }
  }

  /** Turns an exclusive hold into a shared one, without a gap. The token changes. */
  async downgrade(): Promise<void> {
    const { grant } = this;
    if (grant.guards > 1) throw new Invalid("GUARD_SHARED", "there are other guards of the same hold");
    this.check();
    for (const [at, lock] of grant.locks.entries()) {
      const hold = { lock: lock.name, lease: grant.held.id, token: String(lock.token) };
      const { answer, revision } = await grant.held.numbered({ downgrade: hold });
      if (answer.downgraded === undefined) throw new StrangeAnswer();
      const token = BigInt(answer.downgraded.token);
      grant.held.regranted(lock.token, token, revision);
      grant.locks[at] = { ...lock, token };
    }
  }

  /**
   * Turns a shared hold into an exclusive one, under a new token, once there is no other holder. The lock stays held all
   * the time: shared while this waits, before all others in the queue, and shared still if the wait is over first. If
   * another holder waits for the same already, this one is refused with `DEADLOCK`: release the lock then, so that the
   * other one can go on. A hold that is exclusive already stays as it is. Needs feature level 10.
   *
   * If the `signal` aborts, the client leaves the queue before this rejects. If the outcome cannot be learned, the guard
   * is lost: stop the work and release it.
   */
  async upgrade(options: UpgradeOptions = {}): Promise<void> {
    const { grant } = this;
    const lock = this.only();
    const token = await upgradeHold(grant.held, lock, options, () => doubt(grant));
    grant.locks[0] = { ...lock, token };
  }

  /**
   * Gives the hold to the client of another lease, which must wait for this lock alone, in the same mode. It gets the lock
   * at once, ahead of all others, under the token that this resolves with; the lock is never free in between. The caller
   * must have stopped its work. Needs feature level 10.
   *
   * If that lease does not wait, this is refused with `NOT_WAITING`, and the lock is held as before. If the outcome is
   * unknown, the guard is lost: release it.
   */
  async handOn(to: string | { readonly id: string }): Promise<bigint> {
    const { grant } = this;
    const lock = this.only();
    const token = await handOnHold(grant.held, lock, typeof to === "string" ? to : to.id, () => doubt(grant));
    const { held, own } = grant;
    const isLost = held.giveBack(lock.token) === undefined;
    grant.guards = 0;
    this.released = Promise.resolve();
    // There is nothing to release any more, except a lease that exists for this lock alone.
    held.core.cleanUp(async () => {
      if (isLost) await held.farewell([lock.token]).catch(() => undefined);
      if (own) await held.revoke();
    });
    grant.releasePermits();
    return token;
  }

  /**
   * Reports how far the work has come, for a lock that was taken with `progressWithin`. Only a number that is larger than
   * all before counts as progress; before the first report it is 0. Resolves with the milliseconds within which a larger
   * number is due, or `undefined` if none was promised. One report counts for all locks of the guard.
   */
  async progress(number: number | bigint): Promise<number | undefined> {
    const { held } = this.grant;
    const isNumber = typeof number === "bigint" ? BigInt.asUintN(64, number) === number : Number.isSafeInteger(number);
    if (!isNumber || number < 0) throw new Invalid("INVALID_FIELD", `number is an integer of 64 bits, not ${number}`);
    const hold = { lock: this.name, lease: held.id, token: String(this.token) };
    // The number itself makes a repetition harmless.
    const { answer } = await held.core.call({ progress: { ...hold, number: String(number) } }, HARMLESS);
    if (answer.progressed === undefined) throw new StrangeAnswer();
    return answer.progressed.left_ms;
  }

  /** Replaces the metadata of the grant, which others can read. */
  async update(metadata: Content): Promise<void> {
    const { held } = this.grant;
    this.check();
    const hold = { lock: this.name, lease: held.id, token: String(this.token) };
    const { answer } = await held.numbered({ update: { ...hold, ...contentFields(metadata, "metadata") } });
    if (answer.updated === undefined) throw new StrangeAnswer();
  }

  /** Has a member sign a ticket: the grant as a JWT, which a resource can verify without asking the cluster. */
  async ticket(): Promise<string> {
    const { core, id } = this.grant.held;
    const session = await core.session(nowMs() + core.settings.timeoutMs);
    if (session === undefined) throw new Unavailable();
    const body = { lock: this.name, lease: id, token: String(this.token) };
    const signed = await core.http.json(session.address, "POST", "/v1/tickets", body, core.settings.timeoutMs);
    return (signed as { ticket: string }).ticket;
  }

  /** The only lock of the only guard of the grant. */
  private only(): HeldLock {
    const { guards, locks } = this.grant;
    if (guards > 1) throw new Invalid("GUARD_SHARED", "there are other guards of the same hold");
    if (locks.length !== 1) throw new Invalid("SEVERAL_LOCKS", "the guard stands for several locks");
    this.check();
    return this.first;
  }

  private get first(): HeldLock {
    return this.grant.locks[0]!;
  }

  /** Compares the clock. A guard that was released does not hold anything. */
  private lossNow(): Loss | undefined {
    if (this.grant.loss !== undefined) return this.grant.loss;
    if (this.released !== undefined) return { cause: "released" };
    for (const lock of this.grant.locks) {
      const loss = this.grant.held.check(lock.token);
      if (loss !== undefined) return loss;
    }
    return undefined;
  }

  private async end(): Promise<void> {
    const { grant } = this;
    const loss = this.lossNow();
    grant.guards -= 1;
    if (grant.guards === 0) {
      const finishing = finish(grant, loss);
      grant.held.core.cleanUp(() => finishing);
      if (loss === undefined) return finishing;
    }
    if (loss !== undefined) throw new Lost(loss);
  }
}

/** Tells the cluster that the work has stopped, in the way that fits the lease. */
async function finish(grant: GrantState, loss: Loss | undefined): Promise<void> {
  const { held, own, locks } = grant;
  const tokens = locks.map((lock) => lock.token);
  const only = locks.length === 1 ? locks[0] : undefined;
  try {
    if (grant.inDoubt && !own) await giveBackWhatThereIs(held, locks[0]!);
    if (own && loss === undefined) {
      // The lease is the guard's own and no lock was taken away: one revoke ends everything.
      const lost = tokens.map((token) => held.giveBack(token)).some((name) => name === undefined);
      if (lost) throw new Lost(grant.loss ?? { cause: "gone" });
      await held.revoke();
    } else if (only !== undefined && loss === undefined) {
      const name = held.giveBack(only.token);
      if (name === undefined) throw new Lost(grant.loss ?? { cause: "gone" });
      await held.release(name, only.token);
    } else {
      await held.farewell(tokens);
    }
  } finally {
    // A lease of its own ends with its guard, whatever became of its locks.
    if (own && !held.isRevoked) held.core.cleanUp(() => held.farewell(tokens).finally(() => held.revoke()));
    grant.releasePermits();
  }
}

/** It is not certain how the lock is held: the guard is lost, and its release gives back what there is. */
function doubt(grant: GrantState): void {
  grant.inDoubt = true;
  for (const lock of grant.locks) grant.held.with((state) => state.taken(lock.token, { cause: "gone" }));
}

/** Compares the clock. A grant that was given back is not lost. */
function lossOf(grant: GrantState): Loss | undefined {
  for (const lock of grant.loss === undefined ? grant.locks : []) {
    const loss = grant.held.check(lock.token);
    if (loss !== undefined && loss.cause !== "released") return loss;
  }
  return grant.loss;
}

function tellLoss(grant: GrantState, loss: Loss): void {
  if (grant.loss !== undefined) return;
  grant.loss = loss;
  grant.controller?.abort(new Lost(loss));
  for (const listener of grant.lossListeners.splice(0)) listener(loss);
}

/** Lets a signal's own answers compare the clock: timers stand still while the event loop is blocked. */
function clocked(signal: AbortSignal, look: () => Loss | undefined): void {
  const aborted = Object.getOwnPropertyDescriptor(AbortSignal.prototype, "aborted")?.get;
  Object.defineProperties(signal, {
    aborted: { get: () => (aborted?.call(signal) as boolean) || look() !== undefined },
    throwIfAborted: {
      value: () => {
        const loss = look();
        if (loss !== undefined) throw new Lost(loss);
        AbortSignal.prototype.throwIfAborted.call(signal);
      },
    },
  });
}

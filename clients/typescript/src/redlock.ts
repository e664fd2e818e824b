/**
 * Offers the API of the package `redlock` (version 5) over Tenure: `acquire`, `using`, `lock.release`, `lock.extend`.
 *
 * What differs: the cluster is one system that agrees on each grant, waiters queue in order, and every lock has a fencing
 * token. `duration` is the ttl of the lock's lease: the client renews it while the lock is held, so a lock does not run
 * out under work that takes longer, and the lock of a process that dies is free after `duration`. Durations below one
 * second count as one second, the shortest ttl.
 *
 * @packageDocumentation
 */
import { EventEmitter } from "node:events";
import type { Client } from "./client.js";
import { Refused, TenureError } from "./errors.js";
import type { Guard } from "./guard.js";

/** The shortest and the longest ttl of a lease. */
const TTL_MIN_MS = 1_000;
const TTL_MAX_MS = 3_600_000;

/** How long to try. `retryCount` times (`retryDelay` plus `retryJitter`) is how long a request queues; -1 is no limit. */
export interface Settings {
  readonly retryCount: number;
  readonly retryDelay: number;
  readonly retryJitter: number;
  /** Taken and not needed: clocks are bounded by the ttl, and the client renews by itself. */
  readonly driftFactor: number;
  readonly automaticExtensionThreshold: number;
}

const DEFAULTS: Settings = {
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  driftFactor: 0.01,
  automaticExtensionThreshold: 500,
};

/** What an operation did. There is one attempt: the cluster decides once. */
export interface ExecutionResult {
  readonly attempts: readonly Promise<ExecutionStats>[];
}

export interface ExecutionStats {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: ReadonlySet<unknown>;
  readonly votesAgainst: ReadonlyMap<unknown, Error>;
}

/** An operation did not succeed. `cause` is the client's error. */
export class ExecutionError extends Error {
  constructor(
    message: string,
    readonly attempts: readonly Promise<ExecutionStats>[],
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = "ExecutionError";
  }
}

/** Another client holds the lock. */
export class ResourceLockedError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "ResourceLockedError";
  }
}

/** The signal of `using`: aborted once the lock is lost, with why in `error`. */
export type RedlockAbortSignal = AbortSignal & { error?: Error };

export interface RedlockUsingContext {
  readonly lock: Lock;
  readonly extensions: number;
}

/** A held lock. */
export class Lock {
  /** When the lock is free at the latest if this process dies now. It moves with {@link extend}. */
  expiration: number;

  /** @internal */
  constructor(
    readonly redlock: Redlock,
    readonly resources: string[],
    readonly attempts: readonly Promise<ExecutionStats>[],
    /** The guard behind it. */
    readonly guard: Guard,
    readonly durationMs: number,
  ) {
    this.expiration = Date.now() + durationMs;
  }

  /** The fencing token as text, in the place of the random value. */
  get value(): string {
    return String(this.guard.token);
  }

  release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }
}

/** The shape of `redlock`, over one client or a list with one client. */
export class Redlock extends EventEmitter {
  readonly settings: Settings;
  private readonly client: Client;

  constructor(client: Client | Iterable<Client>, settings: Partial<Settings> = {}) {
    super();
    const [first, ...more] = Symbol.iterator in client ? [...client] : [client];
    if (first === undefined || more.length > 0) throw new Error("Redlock over Tenure takes one client: the cluster is one system");
    this.client = first;
    this.settings = { ...DEFAULTS, ...settings };
  }

  /** Acquires all of the resources or none. */
  async acquire(resources: string[], duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    const { retryCount, retryDelay, retryJitter } = { ...this.settings, ...settings };
    if (!Number.isSafeInteger(duration)) throw new Error("Duration must be an integer value in milliseconds.");
    const ttl = Math.min(Math.max(duration, TTL_MIN_MS), TTL_MAX_MS);
    const wait = retryCount < 0 ? {} : { wait: retryCount * (retryDelay + retryJitter) };
    try {
      const guard = await this.client.lock(resources, { ttl, ...wait });
      return new Lock(this, resources, [votes()], guard, ttl);
    } catch (error) {
      throw this.failed("The operation was unable to achieve a quorum during its retry window.", error);
    }
  }

  /** Gives the lock back. The work under it must have stopped. */
  async release(lock: Lock): Promise<ExecutionResult> {
    try {
      lock.expiration = 0;
      await lock.guard.release();
      return { attempts: [votes()] };
    } catch (error) {
      throw this.failed("The lock is not held any more.", error);
    }
  }

  /** Checks by the clock that the lock is held. The client renews it in any case. */
  async extend(existing: Lock, duration: number): Promise<Lock> {
    if (existing.expiration < Date.now()) throw new ExecutionError("Cannot extend an already-expired lock.", []);
    try {
      existing.guard.check();
      existing.expiration = Date.now() + duration;
      return existing;
    } catch (error) {
      throw this.failed("The lock is not held any more.", error);
    }
  }

  /** Acquires, runs the routine and releases. A routine that ends after the loss of the lock ends in an error. */
  using<T>(
    resources: string[],
    duration: number,
    routine: (signal: RedlockAbortSignal, context: RedlockUsingContext) => Promise<T>,
  ): Promise<T>;
  using<T>(
    resources: string[],
    duration: number,
    settings: Partial<Settings>,
    routine: (signal: RedlockAbortSignal, context: RedlockUsingContext) => Promise<T>,
  ): Promise<T>;
  async using<T>(
    resources: string[],
    duration: number,
    ...rest:
      | [(signal: RedlockAbortSignal, context: RedlockUsingContext) => Promise<T>]
      | [Partial<Settings>, (signal: RedlockAbortSignal, context: RedlockUsingContext) => Promise<T>]
  ): Promise<T> {
    const [settings, routine] = rest.length === 1 ? [{}, rest[0]] : rest;
    const lock = await this.acquire(resources, duration, settings);
    const signal = lock.guard.signal as RedlockAbortSignal;
    signal.addEventListener("abort", () => {
      signal.error = signal.reason as Error;
    });
    try {
      return await lock.guard.run(() => routine(signal, { lock, extensions: 0 }));
    } catch (error) {
      throw error instanceof TenureError ? this.failed("The lock was lost.", error) : error;
    } finally {
      await lock.guard.release().catch(() => undefined);
    }
  }

  /** Closes the client. */
  async quit(): Promise<void> {
    await this.client.close();
  }

  private failed(message: string, error: unknown): unknown {
    if (!(error instanceof TenureError)) return error;
    const locked = error instanceof Refused && (error.reason === "HELD" || error.reason === "WAIT_TIMEOUT");
    const cause = locked ? new ResourceLockedError(error.message, { cause: error }) : error;
    // As with `redlock`: errors of single attempts are events, and nothing is thrown if no one listens.
    if (this.listenerCount("error") > 0) this.emit("error", cause);
    return new ExecutionError(message, [votes(cause)], { cause: error });
  }
}

export default Redlock;

async function votes(against?: Error): Promise<ExecutionStats> {
  return {
    membershipSize: 1,
    quorumSize: 1,
    votesFor: new Set(against === undefined ? ["tenure"] : []),
    votesAgainst: new Map(against === undefined ? [] : [["tenure", against]]),
  };
}

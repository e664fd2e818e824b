/** Configures a client, connects it to a cluster and offers everything that can be asked of it. */
import "./dispose.js";
import { acquireOwn } from "./acquire.js";
import { Core, HARMLESS, within } from "./core.js";
import { milliseconds, type Duration } from "./duration.js";
import { Invalid, Lost, StillHeld, StrangeAnswer, Unknown, type Tried } from "./errors.js";
import { Election } from "./election.js";
import type { Guard } from "./guard.js";
import { readHistory, type HistoryOptions, type Past } from "./history.js";
import { Key } from "./key.js";
import { heldAsNull, Lease } from "./lease.js";
import { checkedLease, checkedName } from "./names.js";
import { lockRequest, optionsFromEnvironment, settingsOf } from "./options.js";
import type { ClientOptions, LeaseTimes, LockOptions, PoolOptions } from "./options.js";
import { randomKey } from "./platform/platform.js";
import { nowMs, sleep } from "./waiting.js";
import { Watch, type WatchOptions } from "./watch.js";
import type { DrainShown, Explained, LockShown } from "./wire.js";

/** How long {@link Client.close} waits unless told otherwise. */
const CLOSE_MS = 5_000;

/** How a lock is taken away from its holder. */
export interface ForceOptions {
  /** The token that the caller was shown: what is taken away is this grant and no later one. */
  token: bigint;
  /** The reason, for the record and for the holder. */
  reason: string;
  /** Who decided this. The client's name unless set. */
  by?: string;
  /** At once, without letting the holder stop first. Only a fence protects the resource then. */
  now?: boolean;
}

/** To whom a lock is explained. */
export interface ExplainOptions {
  /** A lease that waits: the answer says who is before it, and its own position. */
  lease?: string | { readonly id: string };
}

/** How a lease of another client is ended. */
export interface RevokeOptions {
  /** The reason, for the record and for the holder. */
  reason: string;
  /** Who decided this. The client's name unless set. */
  by?: string;
  /** At once, without letting the holder stop first. Only a fence protects the resource then. */
  now?: boolean;
}

/** Who decided what an operator does. */
export interface OperatorOptions {
  /** The name for the history. The client's name unless set. */
  by?: string;
}

/**
 * A connection to a cluster. One client serves a whole process: many locks, leases and requests share its sessions.
 *
 * The process stays alive until {@link close}.
 */
export class Client {
  private constructor(private readonly core: Core) {}

  /** Connects to a cluster, and waits until a member has answered. */
  static async connect(options: ClientOptions | string = {}): Promise<Client> {
    const settings = settingsOf(typeof options === "string" ? { addresses: options } : options);
    const core = new Core(settings);
    const session = await core.session(nowMs() + settings.timeoutMs);
    if (session !== undefined) return new Client(core);
    const error = core.noSession();
    core.stop();
    throw error;
  }

  /**
   * Connects to the cluster that the environment names: `TENURE_ADDR` (else `127.0.0.1:7450`), `TENURE_CA`,
   * `TENURE_CERT`, `TENURE_KEY`, and `TENURE_API_KEY`, `TENURE_API_KEY_FILE` or `TENURE_TOKEN_FILE`.
   */
  static fromEnv(options: ClientOptions = {}): Promise<Client> {
    return Client.connect({ ...optionsFromEnvironment(), ...options });
  }

  /** The client's name, which others see. */
  get name(): string {
    return this.core.settings.name;
  }

  /** The addresses that were tried, with their outcomes. */
  get tried(): readonly Tried[] {
    return this.core.connections.current.value.tried;
  }

  /**
   * Requests a lock, or several (all or none), under a new lease of its own, and waits in the queue.
   *
   * ```ts
   * await using guard = await client.lock("deploy", { wait: "1m", signal });
   * ```
   */
  async lock(locks: string | readonly string[], options: LockOptions = {}): Promise<Guard> {
    return acquireOwn(this.core, lockRequest(this.core.settings, locks, options));
  }

  /**
   * Requests any one of several locks under a new lease: the first, in the order of names, that is free. Until then the
   * request waits in the queues of all of them and keeps its turn in each. `guard.name` tells which one it is. Needs
   * feature level 13.
   *
   * ```ts
   * await using gpu = await client.lockAny(["gpu/0", "gpu/1", "gpu/2"]);
   * ```
   */
  async lockAny(locks: readonly string[], options: LockOptions = {}): Promise<Guard> {
    return acquireOwn(this.core, lockRequest(this.core.settings, locks, options, { choice: "any" }));
  }

  /**
   * Requests any slot of a pool under a new lease. The slots of `gpu/` are the semaphores below this prefix whose sizes an
   * operator has set with {@link resize}. The request also waits for slots that are added later. `guard.name` tells which
   * slot it is. Refused with `POOL_EMPTY` if there is none, or none as large as `take`. Needs feature level 13.
   *
   * ```ts
   * await using gpu = await client.pool("gpu/");
   * ```
   */
  async pool(prefix: string, options: PoolOptions = {}): Promise<Guard> {
    return acquireOwn(this.core, lockRequest(this.core.settings, prefix, options, { choice: "pool" }));
  }

  /** Requests a lock without queueing. Resolves with `null` if another client holds it. */
  async tryLock(locks: string | readonly string[], options: Omit<LockOptions, "wait"> = {}): Promise<Guard | null> {
    return heldAsNull(this.lock(locks, { ...options, wait: 0 }));
  }

  /**
   * Waits for a lock, runs the work, and releases the lock once the work has ended.
   *
   * If the lock is lost, `guard.signal` aborts; `run` waits until the work has ended and then throws {@link Lost}. It
   * also does if the work ends after the lock was lost without having noticed. A result means that the lock was held
   * until the work had ended. An error of the work comes through as it is.
   */
  run<T>(locks: string | readonly string[], work: (guard: Guard) => T | PromiseLike<T>): Promise<T>;
  run<T>(
    locks: string | readonly string[],
    options: LockOptions,
    work: (guard: Guard) => T | PromiseLike<T>,
  ): Promise<T>;
  async run<T>(
    locks: string | readonly string[],
    ...rest: [(guard: Guard) => T | PromiseLike<T>] | [LockOptions, (guard: Guard) => T | PromiseLike<T>]
  ): Promise<T> {
    const [options, work] = rest.length === 1 ? [{}, rest[0]] : rest;
    return runUnder(await this.lock(locks, options), work);
  }

  /** Requests a lease that several locks can be held under. */
  lease(times: LeaseTimes = {}): Promise<Lease> {
    return Lease.grant(this.core, times);
  }

  /** The election of this name. */
  election(name: string): Election {
    return new Election(this.core, name);
  }

  /** A key of the small store beside the locks. */
  key(name: string): Key {
    return new Key(this.core, name);
  }

  /** Watches a lock or key, or with `prefix` every name that starts so (also the empty prefix). */
  watch(name: string, options: WatchOptions = {}): Watch {
    if (!options.prefix) checkedName(name);
    return new Watch(this.core, name, options);
  }

  /** Shows a lock: its holders, and how many wait. `null` if it is free. */
  async show(lock: string): Promise<LockShown | null> {
    const { answer } = await this.core.call({ get_lock: { name: checkedName(lock) } }, HARMLESS);
    if (answer.lock === undefined) throw new StrangeAnswer();
    return answer.lock.lock ?? null;
  }

  /** Lists the locks that are held or awaited and whose names start so, in the order of their names. */
  async locks(prefix = ""): Promise<LockShown[]> {
    const locks: LockShown[] = [];
    const query = new URLSearchParams({ prefix });
    for (;;) {
      const page = (await this.core.http.query(`/v1/locks?${query}`)) as { locks: LockShown[]; next?: string };
      locks.push(...page.locks);
      if (!page.next) return locks;
      query.set("after", page.next);
    }
  }

  /** Explains a lock: who has it, who waits, and when it can be free. */
  async explain(lock: string, { lease }: ExplainOptions = {}): Promise<Explained> {
    const which = { lock: checkedName(lock), ...(lease === undefined ? {} : { lease: checkedLease(lease) }) };
    const { answer, revision } = await this.core.call({ explain: which }, HARMLESS);
    if (answer.explained === undefined) throw new StrangeAnswer();
    return { ...answer.explained, revision };
  }

  /**
   * Reads what happened to a lock, or with `prefix` to every lock whose name starts so (also the empty prefix): the newest
   * revisions, from the cluster and from the archive of the member that answers.
   *
   * ```ts
   * const { batches } = await client.history("deploy", { since: Date.now() - 7_200_000, lost: true });
   * ```
   */
  history(lock: string, options: HistoryOptions = {}): Promise<Past> {
    return readHistory(this.core, lock, options);
  }

  /** Takes a lock away from its holder. Resolves with how long it is not granted at most, in milliseconds. */
  async force(lock: string, { token, reason, by, now }: ForceOptions): Promise<number> {
    const force = { lock: checkedName(lock), token: String(token), reason, by: by ?? this.name };
    // The token identifies the grant, so a repetition finds it gone and is recognised by its key.
    const command = { force: now ? { ...force, now } : force };
    const { answer } = await this.core.call(command, { by: "key", key: randomKey() });
    if (answer.forced === undefined) throw new StrangeAnswer();
    return answer.forced.left_ms;
  }

  /**
   * Ends the lease of another client and everything bound to it. The holder is told who did it and why; its locks pass on
   * when it has stopped, or when the lease would have ended.
   */
  async revoke(lease: string | { readonly id: string }, { reason, by, now }: RevokeOptions): Promise<void> {
    if (typeof reason !== "string") throw new Invalid("INVALID_FIELD", "reason is missing: the lease is another client's");
    const revoke = { lease: checkedLease(lease), reason, by: by ?? this.name };
    const command = { revoke: now ? { ...revoke, now } : revoke };
    const { answer } = await this.core.call(command, { by: "key", key: randomKey() });
    if (answer.revoked === undefined) throw new StrangeAnswer();
  }

  /**
   * Sets how many slots a semaphore has, also while it is used. From then on this number counts, whatever number a request
   * names; `null` leaves it to the requests again. More slots are granted at once. With fewer, every holder keeps its
   * slots, and a client that waits for more slots than there are is refused. Needs feature level 11.
   */
  async resize(lock: string, slots: number | null, { by }: OperatorOptions = {}): Promise<void> {
    if (slots !== null && !(Number.isSafeInteger(slots) && slots > 0)) {
      throw new Invalid("INVALID_SLOTS", "slots is a number of at least 1");
    }
    const resize = { lock: checkedName(lock), slots: slots ?? 0, by: by ?? this.name };
    const { answer } = await this.core.call({ resize }, { by: "key", key: randomKey() });
    if (answer.resized === undefined) throw new StrangeAnswer();
  }

  /**
   * Closes a prefix: no lock whose name begins so is granted until {@link undrain} opens it. Clients that ask queue, or are
   * refused with `DRAINING` if they do not wait. Holders keep their locks and finish. The empty prefix is that of every
   * lock.
   */
  async drain(prefix: string, reason: string, { by }: OperatorOptions = {}): Promise<void> {
    const drain = { prefix, reason, by: by ?? this.name };
    const { answer } = await this.core.call({ drain }, { by: "key", key: randomKey() });
    if (answer.drained === undefined) throw new StrangeAnswer();
  }

  /** Opens a prefix that {@link drain} closed; its queues go on in order. Resolves with whether it was closed. */
  async undrain(prefix: string, { by }: OperatorOptions = {}): Promise<boolean> {
    const { answer } = await this.core.call({ undrain: { prefix, by: by ?? this.name } }, { by: "key", key: randomKey() });
    if (answer.undrained === undefined) throw new StrangeAnswer();
    return answer.undrained.existed;
  }

  /** The prefixes that are closed, with how many holders are left below each. */
  async drains(): Promise<readonly DrainShown[]> {
    const page = await this.core.http.query("/v1/drains");
    return (page as { drains: DrainShown[] }).drains;
  }

  /**
   * Closes the client: takes no new requests for locks, ends those that wait, and waits until every guard is released
   * and the cluster has acknowledged it. Call it before the program ends.
   *
   * At the end of the time, throws {@link StillHeld} if guards exist (the client goes on for them), and {@link Unknown}
   * if a release was not acknowledged; what is not released ends with its lease.
   */
  async close(options: { deadline?: Duration } = {}): Promise<void> {
    const { core } = this;
    const began = nowMs();
    const untilMs = began + milliseconds(options.deadline ?? CLOSE_MS, "deadline");
    core.close();
    for (;;) {
      for (const lease of [...core.leases.values()]) {
        if (lease.peek().isIdle) core.cleanUp(() => lease.revoke());
      }
      if (core.leases.size === 0 && core.cleanupsOpen === 0) return core.stop();
      if (nowMs() >= untilMs) break;
      const used = [...core.leases.values()].some((lease) => !lease.peek().isIdle);
      await (used ? sleep(10, untilMs) : within(core.settled(), untilMs));
    }
    const locks = [...core.leases.values()].flatMap((lease) => lease.peek().inUse());
    if (locks.length > 0) throw new StillHeld(locks);
    core.stop();
    throw new Unknown(nowMs() - began);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Runs work under a guard and releases it. */
export async function runUnder<T>(guard: Guard, work: (guard: Guard) => T | PromiseLike<T>): Promise<T> {
  let output: T;
  try {
    output = await guard.run(work);
  } catch (error) {
    // The error of the work counts, or the loss; the release goes on in the background.
    void guard.release().catch(() => undefined);
    throw error;
  }
  try {
    await guard.release();
  } catch (error) {
    // A loss that the release reports counts, because the work may have outlived the lock. Any other failure of the
    // release does not undo the work; the lease runs out.
    if (error instanceof Lost) throw new Lost(error.loss, { output });
  }
  return output;
}


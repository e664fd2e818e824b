/** Elects one of several clients as leader, and lets others observe who leads. */
import "./dispose.js";
import { acquireOwn } from "./acquire.js";
import type { Core } from "./core.js";
import { meaningOf, TenureError, type Lost } from "./errors.js";
import type { Guard } from "./guard.js";
import { inPath } from "./http.js";
import { checkedName } from "./names.js";
import { lockRequest, type LockOptions } from "./options.js";
import { EventStream } from "./stream.js";
import { contentBytes, type Content, type WireError } from "./wire.js";

/** The current leader of an election. */
export interface Leader {
  readonly client: string;
  /** The value it leads with. */
  readonly value: Uint8Array;
  /** The value as text. */
  readonly text: string;
  /** The fencing token of its grant. */
  readonly token: bigint;
  readonly lease: string;
}

/** An election: a lock whose metadata is the leader's value. Elections and locks share one namespace. */
export class Election {
  /** @internal */
  constructor(
    private readonly core: Core,
    readonly name: string,
  ) {
    checkedName(name);
  }

  /** Waits in the queue until this client leads, with a value for others to see. */
  async campaign(value: Content, options: Omit<LockOptions, "metadata" | "shared" | "slots"> = {}): Promise<Leadership> {
    const request = lockRequest(this.core.settings, this.name, { ...options, metadata: value }, { election: true });
    return new Leadership(await acquireOwn(this.core, request));
  }

  /** The current leader, or `null` if there is none. */
  async leader(): Promise<Leader | null> {
    const seen = this.observe();
    try {
      const first = await seen.next();
      return first.value ?? null;
    } finally {
      await seen.return();
    }
  }

  /** Observes the leader: the current one first, then each later change; `null` while there is none. */
  observe(options: { signal?: AbortSignal } = {}): Observer {
    return new Observer(this.core, this.name, options.signal);
  }
}

/** Leadership: a guard, and the value that others see. */
export class Leadership {
  /** @internal */
  constructor(
    /** The guard of the leader's lock. */
    readonly guard: Guard,
  ) {}

  /** The fencing token of the leader's grant. */
  get token(): bigint {
    return this.guard.token;
  }

  /** Aborts when leadership is lost, with the cause. */
  get signal(): AbortSignal {
    return this.guard.signal;
  }

  /** Checks by the clock that this client leads, and throws {@link Lost} if it cannot rely on that. */
  check(): void {
    this.guard.check();
  }

  /** Resolves when leadership is lost. */
  lost(): Promise<Lost> {
    return this.guard.lost();
  }

  /** Runs work while this client leads; see {@link Guard.run}. */
  run<T>(work: (leadership: Leadership) => T | PromiseLike<T>): Promise<T> {
    return this.guard.run(() => work(this));
  }

  /** Replaces the value that others see. */
  proclaim(value: Content): Promise<void> {
    return this.guard.update(value);
  }

  /** Gives up leadership. The caller must have stopped its work. */
  resign(): Promise<void> {
    return this.guard.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.guard[Symbol.asyncDispose]();
  }
}

/** Observes an election. After `Unavailable` it can be iterated again. */
export class Observer implements AsyncIterableIterator<Leader | null> {
  private readonly stream: EventStream;
  private last: string | undefined;
  private over = false;

  /** @internal */
  constructor(core: Core, name: string, signal: AbortSignal | undefined) {
    const path = `/v1/elections/${inPath(name)}?view=observe`;
    this.stream = new EventStream(core, () => ({ path, headers: {} }), signal);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Leader | null, undefined>> {
    while (!this.over) {
      try {
        const { event, data } = await this.stream.next();
        if (event === "closing") {
          const meaning = meaningOf((JSON.parse(data) as { error: WireError }).error);
          if (meaning.is === "no") throw meaning.error;
          this.stream.restart();
          continue;
        }
        if (event !== "leader" && event !== "vacant") continue;
        const leader = event === "leader" ? leaderOf(JSON.parse(data)) : null;
        // After a reconnect, the first event may repeat a change that was already told.
        const seen = leader === null ? "" : `${leader.token} ${leader.text}`;
        if (seen === this.last) continue;
        this.last = seen;
        return { done: false, value: leader };
      } catch (error) {
        if (!(error instanceof TenureError && error.retryable)) this.end();
        throw error;
      }
    }
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<Leader | null, undefined>> {
    this.end();
    return { done: true, value: undefined };
  }

  private end(): void {
    this.over = true;
    this.stream.end();
  }
}

interface WireLeadership {
  client: string;
  token: string;
  lease: string;
  value?: string;
  value_base64?: string;
}

function leaderOf(data: { leader?: WireLeadership }): Leader | null {
  const { leader } = data;
  if (leader === undefined) return null;
  const value = contentBytes(leader.value, leader.value_base64);
  return {
    client: leader.client,
    value,
    text: new TextDecoder().decode(value),
    token: BigInt(leader.token),
    lease: leader.lease,
  };
}

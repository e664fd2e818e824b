/** Watches locks and keys: every change exactly once and in order, across reconnects. */
import type { Core } from "./core.js";
import { meaningOf, Refused, StrangeAnswer, TenureError } from "./errors.js";
import { EventStream } from "./stream.js";
import { contentBytes, type WireError } from "./wire.js";

/** One change. Which fields are there depends on its cause. */
export interface WatchEvent {
  /** Why: `granted`, `released`, `expired`, `queued`, `put`, … */
  readonly cause: string;
  readonly lock?: string;
  readonly key?: string;
  readonly client?: string;
  readonly lease?: string;
  readonly token?: bigint;
  readonly slot?: number;
  /** The new value of a key, or the new metadata of a lock. */
  readonly value?: Uint8Array;
  readonly metadata?: Uint8Array;
  /** With `previous`: what was there before; absent if nothing was, or if the cluster does not know it any more. */
  readonly previous?: PreviousContent;
  /** Who took a lock away or revoked a lease, and the reason they gave. */
  readonly by?: string;
  readonly reason?: string;
  /** When it happened, by the wall clock of the leader of that moment. A label: no decision depends on it. */
  readonly at?: Date;
  /** Everything that the member sent. */
  readonly raw: Readonly<Record<string, unknown>>;
}

/** The value of a key, or the metadata of a lock, before a change. */
export interface PreviousContent {
  readonly value: Uint8Array;
  /** The revision that had written it. */
  readonly modified: bigint;
}

/** All changes of one revision. */
export interface WatchBatch {
  readonly revision: bigint;
  readonly events: readonly WatchEvent[];
}

export interface WatchOptions {
  /** Watches every name that starts so, instead of one. */
  prefix?: boolean;
  /** The first revision to tell of. What comes after now, unless set. */
  from?: bigint;
  /** Tells with each change what was there before. */
  previous?: boolean;
  /** Ends the watch. */
  signal?: AbortSignal;
}

/**
 * A running watch. After `Unavailable` (no member within the client's timeout) it can be iterated again, and goes on
 * where it was; after any other error, such as `Refused` with `COMPACTED`, it has ended.
 */
export class Watch implements AsyncIterableIterator<WatchBatch> {
  private readonly stream: EventStream;
  /** The next revision that has not been told. */
  private following: bigint | undefined;
  private over = false;
  private confirmed = false;
  /** What came before the first call of {@link next}. */
  private readonly first: WatchBatch[] = [];

  /** @internal */
  constructor(
    core: Core,
    name: string,
    options: WatchOptions,
  ) {
    this.following = options.from;
    const target = () => {
      const query = new URLSearchParams({ [options.prefix ? "prefix" : "name"]: name });
      if (this.following !== undefined) query.set("from", String(this.following));
      if (options.previous) query.set("previous", "true");
      return { path: `/v1/watch?${query}`, headers: {} };
    };
    this.stream = new EventStream(core, target, options.signal);
  }

  /** Where a new watch would have to start to miss nothing. Known once the watch has started. */
  get nextRevision(): bigint | undefined {
    return this.following;
  }

  /** Waits until a member has confirmed the watch: everything that happens from then on is told. */
  async started(): Promise<void> {
    while (!this.over && !this.confirmed) {
      const batch = await this.step();
      if (batch !== undefined) this.first.push(batch);
    }
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<WatchBatch, undefined>> {
    while (!this.over) {
      const batch = this.first.shift() ?? (await this.step());
      if (batch !== undefined) return { done: false, value: batch };
    }
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<WatchBatch, undefined>> {
    this.end();
    return { done: true, value: undefined };
  }

  private end(): void {
    this.over = true;
    this.stream.end();
  }

  private async step(): Promise<WatchBatch | undefined> {
    try {
      const { event, data } = await this.stream.next();
      this.confirmed = true;
      return this.take(event, JSON.parse(data));
    } catch (error) {
      if (!(error instanceof TenureError && error.retryable)) this.end();
      throw error;
    }
  }

  private take(event: string, data: unknown): WatchBatch | undefined {
    switch (event) {
      case "change": {
        const { revision, events } = data as { revision: string; events: Record<string, unknown>[] };
        const at = BigInt(revision);
        // Revisions that were already told are skipped, whatever a member sends.
        if (this.following !== undefined && at < this.following) return undefined;
        this.following = at + 1n;
        return { revision: at, events: events.map(watchEvent) };
      }
      case "progress": {
        const after = BigInt((data as { revision: string }).revision) + 1n;
        if (this.following === undefined || after > this.following) this.following = after;
        return undefined;
      }
      case "compacted": {
        const { floor } = data as { floor: string };
        const message = `the oldest retained revision is ${floor}`;
        throw new Refused("COMPACTED", message, { revision: floor });
      }
      case "slow_consumer":
        this.following = BigInt((data as { resume: string }).resume);
        this.stream.restart();
        return undefined;
      case "closing": {
        const { error } = data as { error: WireError };
        const meaning = meaningOf(error);
        if (meaning.is === "no") throw meaning.error;
        this.stream.restart();
        return undefined;
      }
      default:
        throw new StrangeAnswer();
    }
  }
}

/** Reads one event of a member. */
export function watchEvent(raw: Record<string, unknown>): WatchEvent {
  const text = (field: string): string | undefined => raw[field] as string | undefined;
  const bytes = (field: string): Uint8Array | undefined =>
    raw[field] === undefined && raw[`${field}_base64`] === undefined
      ? undefined
      : contentBytes(text(field), text(`${field}_base64`));
  const [token, at] = [text("token"), text("at")];
  const event = {
    cause: text("cause") ?? "",
    lock: text("lock"),
    key: text("key"),
    client: text("client"),
    lease: text("lease"),
    token: token === undefined ? undefined : BigInt(token),
    slot: raw["slot"] as number | undefined,
    value: bytes("value"),
    metadata: bytes("metadata"),
    previous: previous(raw["previous"]),
    by: text("by"),
    reason: text("reason"),
    at: at === undefined ? undefined : new Date(at),
    raw,
  };
  return Object.fromEntries(Object.entries(event).filter(([, value]) => value !== undefined)) as unknown as WatchEvent;
}

function previous(raw: unknown): PreviousContent | undefined {
  if (typeof raw !== "object" || raw === null) return undefined;
  const { value, value_base64, modified } = raw as { value?: string; value_base64?: string; modified: string };
  return { value: contentBytes(value, value_base64), modified: BigInt(modified) };
}

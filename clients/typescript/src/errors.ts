/** Defines the client's errors, and what the caller may conclude from each. */
import { lossSentence, type Cause, type Loss } from "./loss.js";
import type { Holder, RingLink, WireError } from "./wire.js";

/** Whether a request that failed may have taken effect. `none`: it did not happen and will not. */
export type Effect = "none" | "unknown";

/** Reasons that go away by themselves or that a later attempt may not meet. */
const RETRYABLE = new Set([
  "HELD",
  "WAIT_TIMEOUT",
  "NOT_LEADER",
  "NO_LEADER",
  "NO_QUORUM",
  "DEADLINE",
  "OVERLOADED",
  "QUOTA",
  "QUOTA_EXCEEDED",
  "SHUTTING_DOWN",
  "CORRUPT",
  "REQUEST_WINDOW",
  "REQUESTS_FULL",
  "QUEUE_FULL",
  "TOO_MANY_LEASES",
  "NO_SPACE",
  "QUIET",
  "DRAINING",
  "DISK_FULL",
  "TOO_SLOW",
  "SLOW_CONSUMER",
  "NOT_CAUGHT_UP",
  "LEVEL_NOT_KNOWN",
  "MEMBERSHIP_CHANGING",
  "TOO_MANY_HOPS",
]);

/** The base of every error of this package. */
export abstract class TenureError extends Error {
  /** Whether the request may have taken effect. */
  abstract readonly effect: Effect;
  /** Whether nothing happened, and the same request may succeed if it is repeated later. */
  abstract readonly retryable: boolean;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The cluster decided, and the answer is no. Nothing was done. */
export class Refused extends TenureError {
  readonly effect = "none";
  readonly retryable: boolean;
  /** The stable word for programs: `HELD`, `WAIT_TIMEOUT`, `DEADLOCK`, `PERMISSION_DENIED`, … */
  readonly reason: string;
  /** Who holds the lock, if that is why. */
  readonly holder: Holder | undefined;
  /** For a deadlock: the ring of waits, starting with the asker. */
  readonly ring: readonly RingLink[] | undefined;
  /** The revision that the refusal is about; for `COMPACTED`, the oldest one that is retained. */
  readonly revision: bigint | undefined;
  /** What to do next, in words. */
  readonly next: string | undefined;
  /** In how many milliseconds to try again, if the cluster says so. */
  readonly retryAfterMs: number | undefined;

  constructor(reason: string, message: string, details: Partial<WireError> = {}) {
    super(message);
    this.reason = reason;
    this.retryable = RETRYABLE.has(reason);
    this.holder = details.holder;
    this.ring = details.ring;
    this.revision = details.revision === undefined ? undefined : BigInt(details.revision);
    this.next = details.next;
    this.retryAfterMs = details.retry_after_ms;
  }
}

/** The lease or lock is lost. The work under it was told to stop, or the caller has to stop it. */
export class Lost extends TenureError {
  readonly effect = "none";
  readonly retryable = false;
  /** The cause as a stable word. */
  override readonly cause: Cause;
  /** Who took the lock away or revoked the lease, as they called themselves. */
  readonly by: string | undefined;
  /** The reason they gave: foreign text. */
  readonly reason: string | undefined;

  constructor(
    readonly loss: Loss,
    /** What became of work that ended after the lock was lost: what it returned, or the error that it threw. */
    readonly work?: { readonly output: unknown } | { readonly error: unknown },
  ) {
    super(`lost: ${lossSentence(loss)}`);
    this.cause = loss.cause;
    this.by = loss.by;
    this.reason = loss.reason;
  }
}

/** An address, and the outcome of the last attempt to connect to it. */
export interface Tried {
  readonly address: string;
  /** `connected`, or the reason why not. */
  readonly outcome: string;
}

/** No member took the request. It had no effect. */
export class Unavailable extends TenureError {
  readonly effect = "none";
  readonly retryable = true;

  constructor(
    /** The addresses that were tried, with their outcomes. */
    readonly tried: readonly Tried[] = [],
    /** Why the last attempt failed, if a member was reached. */
    cause?: unknown,
  ) {
    const each = tried.map((it) => `${it.address} ${it.outcome}`).join(", ");
    super(`no member took the request; nothing happened${each && ` (${each})`}`, cause === undefined ? {} : { cause });
  }
}

/** The request was sent, and its outcome is not known. It may have taken effect. */
export class Unknown extends TenureError {
  readonly effect = "unknown";
  readonly retryable = false;

  constructor(
    /** How long the client waited for the outcome. */
    readonly waitedMs: number,
    /** The id under which the request can be repeated, if it can: `key.put(value, { requestId })`. */
    readonly requestId?: string,
  ) {
    const of = requestId === undefined ? "" : ` of request ${requestId}`;
    super(`no outcome${of} within ${(waitedMs / 1000).toFixed(1)}s; it may have happened`);
  }
}

/** The caller's own limit (`timeout`) is over. The client gives back in the background what may have been granted. */
export class Timeout extends TenureError {
  readonly retryable: boolean;

  constructor(
    readonly effect: Effect,
    readonly limitMs: number,
  ) {
    const then = effect === "none" ? "nothing happened" : "it may have happened";
    super(`not done within ${(limitMs / 1000).toFixed(1)}s; ${then}`);
    this.retryable = effect === "none";
  }
}

/** The fence at the resource did not accept the token of a new holder. The lock is given back; no work has begun. */
export class FenceFailed extends TenureError {
  readonly effect = "none";
  readonly retryable = false;

  constructor(
    /** The lock; absent if the fence did not answer in time. */
    readonly lock: string | undefined,
    /** What the function that raises the fence threw. */
    cause: unknown,
  ) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(`the fence${lock === undefined ? "" : ` of lock \`${lock}\``} was not raised: ${why}`, { cause });
  }
}

/** The client was closed. Nothing happened. */
export class Closed extends TenureError {
  readonly effect: Effect = "none";
  readonly retryable = false;

  constructor(message = "the client is closed") {
    super(message);
  }
}

/** The client was to close, and guards still exist at the end of the time. */
export class StillHeld extends Closed {
  constructor(
    /** The locks of these guards. */
    readonly locks: readonly string[],
  ) {
    super(`still held: ${locks.join(", ")}`);
  }
}

/** An argument cannot be as it is. Nothing was sent. */
export class Invalid extends TenureError {
  readonly effect = "none";
  readonly retryable = false;

  constructor(
    /** The stable word for programs: `INVALID_NAME`, `INVALID_TTL`, `INVALID_FIELD`, … */
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

/** The member answered something else than was asked; the effect is not known. */
export class StrangeAnswer extends TenureError {
  readonly effect = "unknown";
  readonly retryable = false;
  readonly reason = "STRANGE_ANSWER";

  constructor() {
    super("the member answered something else than was asked");
  }
}

/** What a wire error means for the sender of the request. */
export type Meaning =
  /** The request had no effect and may be sent again; `error` says why, if a person has to know. */
  | { readonly is: "again"; readonly afterMs: number; readonly error: Refused | undefined }
  /** The request may have taken effect. */
  | { readonly is: "doubt" }
  /** The request had no effect, and repeating it will not help. */
  | { readonly is: "no"; readonly error: Refused };

/** Of all reasons that allow a retry, these go away soon and without intervention. */
const PASSING = new Set([
  "NOT_LEADER",
  "NO_LEADER",
  "NO_QUORUM",
  "DEADLINE",
  "OVERLOADED",
  "SHUTTING_DOWN",
  "CORRUPT",
  "REQUEST_WINDOW",
  "TOO_MANY_HOPS",
]);

/** Reads an error of the wire. */
export function meaningOf(error: WireError): Meaning {
  if (error.effect === "unknown") return { is: "doubt" };
  const refused = new Refused(error.reason, error.message, error);
  const afterMs = error.retry_after_ms ?? 0;
  // A quota that is counted by time says when there is room again; others are full until their user frees some.
  const fullForNow = error.reason === "QUOTA" && afterMs > 0;
  if (fullForNow || PASSING.has(error.reason)) {
    const saysWhy = fullForNow || error.reason === "OVERLOADED";
    return { is: "again", afterMs, error: saysWhy ? refused : undefined };
  }
  return { is: "no", error: refused };
}

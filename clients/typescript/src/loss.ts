/** Describes a loss: its cause, who caused it and why. */

/**
 * Why a lease or a lock was lost.
 *
 * - `expired`: the cluster ended the lease because it was not renewed in time.
 * - `revoked`: another client revoked the lease.
 * - `forced`: an operator or another client took the lock away.
 * - `max_hold`: the lock was held for its maximum hold time.
 * - `no_progress`: the holder did not report a larger number in the time that it promised.
 * - `gone`: the cluster no longer has the lease or the grant, and this client does not know why.
 * - `cluster_unreachable`: no member acknowledged a renewal in time.
 * - `credentials_refused`: the members refused the client's credentials, so no renewal was acknowledged in time.
 * - `local_stall`: this process, or its event loop, did not run in time.
 * - `suspended`: the machine was suspended.
 * - `released`: the holder released the lock.
 */
export type Cause =
  | "expired"
  | "revoked"
  | "forced"
  | "max_hold"
  | "no_progress"
  | "gone"
  | "cluster_unreachable"
  | "credentials_refused"
  | "local_stall"
  | "suspended"
  | "released";

/** A loss: its cause and, if another client or an operator caused it, who and why. */
export interface Loss {
  readonly cause: Cause;
  /** Who took the lock away or revoked the lease, as they called themselves. */
  readonly by?: string;
  /** The reason they gave. It is foreign text: filter control characters before you print it to a terminal. */
  readonly reason?: string;
  /** How long renewals were not acknowledged, the process did not run, or the machine slept, in microseconds. */
  readonly forUs?: number;
}

/** The causes that come from the cluster; all others that it may ever name count as `gone`. */
const FROM_CLUSTER: readonly Cause[] = ["expired", "revoked", "forced", "max_hold", "no_progress"];

/** Reads the cause of a loss from the wire. */
export function causeOf(word: string): Cause {
  return FROM_CLUSTER.find((it) => it === word) ?? "gone";
}

/** The sentence of a loss. */
export function lossSentence(loss: Loss): string {
  const named = loss.by !== undefined && (loss.cause === "forced" || loss.cause === "revoked");
  const base = named ? `${loss.cause} by ${loss.by}` : causeSentence(loss);
  return loss.reason === undefined ? base : `${base}: ${loss.reason}`;
}

function causeSentence(loss: Loss): string {
  const seconds = `${((loss.forUs ?? 0) / 1e6).toFixed(1)}s`;
  switch (loss.cause) {
    case "expired":
      return "the lease was not renewed in time";
    case "revoked":
      return "the lease was revoked by another caller";
    case "forced":
      return "taken away by force";
    case "max_hold":
      return "held as long as max_hold allows";
    case "no_progress":
      return "no progress in the promised time";
    case "gone":
      return "the cluster does not have it any more";
    case "cluster_unreachable":
      return `cluster unreachable for ${seconds}`;
    case "credentials_refused":
      return `the credentials are refused; not renewed for ${seconds}`;
    case "local_stall":
      return `this process did not run for ${seconds}`;
    case "suspended":
      return `this machine slept for ${seconds}`;
    case "released":
      return "given back by its holder";
  }
}

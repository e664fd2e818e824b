/** Reads durations: a number of milliseconds, or text such as `"15s"`. */
import { Invalid } from "./errors.js";

/** A duration: a number of milliseconds, or text such as `"500ms"`, `"15s"`, `"1.5m"`, `"1h"`. */
export type Duration = number | string;

const UNITS_MS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Returns the duration in milliseconds. */
export function milliseconds(duration: Duration, field: string): number {
  let ms: number;
  if (typeof duration === "number") {
    ms = duration;
  } else {
    const found = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(duration);
    ms = found ? Number(found[1]) * UNITS_MS[found[2]!]! : Number.NaN;
  }
  if (!Number.isFinite(ms) || ms < 0) {
    throw new Invalid("INVALID_FIELD", `${field}: ${JSON.stringify(duration)} is no duration (milliseconds, or "15s")`);
  }
  return ms;
}

/** The same, for a field that may be absent. */
export function optionalMilliseconds(duration: Duration | undefined, field: string): number | undefined {
  return duration === undefined ? undefined : milliseconds(duration, field);
}

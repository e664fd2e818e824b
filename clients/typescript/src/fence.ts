/** Raises the fence at a resource before a guard is handed out. */
import type { Core } from "./core.js";
import { FenceFailed, Lost, Timeout } from "./errors.js";
import type { Guard } from "./guard.js";
import type { LockRequest } from "./options.js";
import { Alarm, nowMs } from "./waiting.js";

/**
 * Returns the guard once the fence accepts the token of each of its locks, and gives the locks back otherwise. A fence
 * has as much time as any request of the client.
 */
export async function fenced(core: Core, ask: LockRequest, acquiring: Promise<Guard>): Promise<Guard> {
  const began = nowMs();
  const guard = await acquiring;
  const { fence, signal, timeoutMs } = ask;
  if (fence === undefined) return guard;
  const timeoutAt = began + (timeoutMs ?? Infinity);
  const untilMs = Math.min(nowMs() + core.settings.timeoutMs, timeoutAt);
  const ending = new AbortController();
  const cancel = (): void => ending.abort(signal?.reason);
  const stop = (): void => ending.abort(guard.signal.reason);
  const alarm = new Alarm(untilMs, () => ending.abort(late(timeoutAt <= untilMs ? timeoutMs : undefined, core)));
  signal?.addEventListener("abort", cancel);
  guard.signal.addEventListener("abort", stop);
  const ended = new Promise<never>((_, reject) => {
    ending.signal.addEventListener("abort", () => reject(ending.signal.reason));
  });
  // It is raced with the fence, and may have no other listener then.
  ended.catch(() => undefined);
  try {
    signal?.throwIfAborted();
    guard.check();
    for (const lock of guard.locks) {
      const raised = (async () => fence(lock, ending.signal))().catch((error: unknown) => {
        throw new FenceFailed(lock.name, error);
      });
      await Promise.race([raised, ended]);
      guard.check();
    }
    return guard;
  } catch (error) {
    const lost = error instanceof FenceFailed ? lossOf(guard) : undefined;
    ending.abort(error);
    // No work has begun. What the release reports does not count: the lease ends with its time.
    void guard.release().catch(() => undefined);
    throw lost ?? error;
  } finally {
    alarm.cancel();
    signal?.removeEventListener("abort", cancel);
    guard.signal.removeEventListener("abort", stop);
  }
}

/** The loss of the lock by the clock of this moment: a fence may notice it before the client is told. */
function lossOf(guard: Guard): Lost | undefined {
  try {
    guard.check();
    return undefined;
  } catch (error) {
    return error instanceof Lost ? error : undefined;
  }
}

/** The time is over: that of the caller, or that of any request. */
function late(timeoutMs: number | undefined, core: Core): Error {
  if (timeoutMs !== undefined) return new Timeout("none", timeoutMs);
  return new FenceFailed(undefined, new Error(`no answer within ${(core.settings.timeoutMs / 1_000).toFixed(1)}s`));
}

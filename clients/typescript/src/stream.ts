/** Follows a stream of server-sent events across reconnects, for watches and observers. */
import type { Core } from "./core.js";
import { Closed, Refused } from "./errors.js";
import { NotNow, type ServerSentEvent } from "./http.js";
import { jittered } from "./platform/platform.js";
import { nowMs, Scope, sleep } from "./waiting.js";

/** The pause between attempts to resume grows from the first value to the second. */
const PAUSE_MIN_MS = 20;
const PAUSE_MAX_MS = 1_000;
/** A stream without an event for this long is broken: the member tells its progress every 10 s. */
const SILENT_MS = 25_000;

/** One stream, opened again whenever it breaks. */
export class EventStream {
  private open: { events: AsyncGenerator<ServerSentEvent>; ending: AbortController } | undefined;
  private over = false;
  /** How long the member that refused the stream asks to wait. */
  private afterMs = 0;

  constructor(
    private readonly core: Core,
    /** Where to resume. */
    private readonly target: () => { path: string; headers: Record<string, string> },
    private readonly signal: AbortSignal | undefined,
  ) {}

  /**
   * The next event. If no member can be reached within the client's timeout, throws `Unavailable`; the next call
   * goes on where the stream was.
   */
  async next(): Promise<ServerSentEvent> {
    const scope = new Scope();
    scope.endOn(this.signal);
    scope.onLeave(this.core.onClose(() => scope.end(new Closed())));
    try {
      let untilMs = nowMs() + this.core.settings.timeoutMs;
      let pause = PAUSE_MIN_MS;
      for (;;) {
        if (this.over) throw new Closed("the stream has ended");
        scope.check();
        if (this.open === undefined) {
          await scope.race(this.begin(untilMs));
          if (this.open === undefined) {
            if (nowMs() >= untilMs) throw this.core.noSession();
            await scope.race(sleep(Math.max(jittered(pause), this.afterMs), untilMs));
            pause = Math.min(pause * 2, PAUSE_MAX_MS);
          }
          continue;
        }
        const event = await scope.race(this.read(this.open));
        if (event !== undefined) return event;
        this.drop();
        untilMs = nowMs() + this.core.settings.timeoutMs;
      }
    } catch (error) {
      if (scope.isOver) this.end();
      throw error;
    } finally {
      scope.leave();
    }
  }

  /** Ends the stream. */
  end(): void {
    this.over = true;
    this.drop();
  }

  /** The member ended the stream: the next call opens it again. */
  restart(): void {
    this.drop();
  }

  private drop(): void {
    this.open?.ending.abort();
    this.open = undefined;
  }

  private async begin(untilMs: number): Promise<void> {
    const session = await this.core.session(untilMs);
    if (session === undefined) throw this.core.noSession();
    const ending = new AbortController();
    const timer = setTimeout(() => ending.abort(), Math.max(1, untilMs - nowMs()));
    try {
      const { path, headers } = this.target();
      const events = await this.core.http.events(session.address, path, headers, ending);
      if (this.over) ending.abort();
      else this.open = { events, ending };
    } catch (error) {
      ending.abort();
      // A member that cannot serve now is asked again, or another one is.
      this.afterMs = error instanceof NotNow ? error.afterMs : 0;
      if (error instanceof Refused) throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** The next event, or `undefined` if the stream is broken. */
  private async read(open: { events: AsyncGenerator<ServerSentEvent>; ending: AbortController }) {
    const timer = setTimeout(() => open.ending.abort(), SILENT_MS);
    try {
      const { value, done } = await open.events.next();
      return done ? undefined : value;
    } catch {
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  }
}

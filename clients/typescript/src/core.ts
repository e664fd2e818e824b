/** Holds what a client, its leases and its requests share, and sends requests until they are answered. */
import { Clock } from "./clock.js";
import { Connections, type ConnectionOwner } from "./connections.js";
import type { Credentials } from "./credentials.js";
import { meaningOf, Refused, StrangeAnswer, Unavailable, Unknown, type TenureError } from "./errors.js";
import type { HeldLease } from "./held_lease.js";
import { HttpApi } from "./http.js";
import { causeOf, type Loss } from "./loss.js";
import { jittered, platform, type TlsFiles } from "./platform/platform.js";
import { Renewals } from "./renewals.js";
import type { Dial, Session } from "./session.js";
import { nowMs, sleep, Alarm } from "./waiting.js";
import type { Answer, Command, LeaseEnded, Welcome, WireLost, WireRequest } from "./wire.js";

/** How long a member may look for a leader before it reports that it knows none. */
const MEMBER_MS = 9_000;
/** The pause between attempts grows from the first value to the second. */
const PAUSE_MIN_MS = 10;
const PAUSE_MAX_MS = 500;
/**
 * The retry budget, in tenths of a retry. Each answer earns one tenth back, so that retries add at most a tenth to the
 * load of a cluster in trouble.
 */
const BUDGET = 1_000;
const RETRY_COST = 10;
/** As many leases as a hello and a renewal may name. */
export const RENEW_MAX = 4_096;

/** The settings of a client, after every default. */
export interface Settings {
  readonly addresses: readonly string[];
  readonly name: string;
  readonly timeoutMs: number;
  readonly ttlUs: number;
  readonly windowUs: number | undefined;
  readonly graceUs: number | undefined;
  readonly tls: TlsFiles | undefined;
  readonly credentials: Credentials;
  readonly traceparent: (() => string | undefined) | undefined;
}

/** How the cluster recognises a request that is sent again. */
export type Identity =
  /** Not recognised: applying it twice has the effect of applying it once. */
  | { readonly by: "nothing" }
  /** Recognised by a key that the cluster remembers. */
  | { readonly by: "key"; readonly key: string }
  /** Recognised by its number under its lease. */
  | { readonly by: "seq"; readonly seq: number; readonly done: number };

export const HARMLESS: Identity = { by: "nothing" };

/** An answer, and a revision that is not older than it. */
export interface Answered {
  readonly answer: Answer;
  readonly revision: bigint;
  /** Whether an earlier attempt may have taken effect, too. */
  readonly doubt: boolean;
}

/** Identifies one history of one cluster. Another one knows nothing of our leases, even if its numbers look the same. */
interface ClusterIncarnation {
  readonly cluster: string;
  readonly epoch: number;
  readonly incarnation: string;
}

/** What the parts of a client share. */
export class Core implements ConnectionOwner {
  readonly clock = new Clock(platform().clocks);
  readonly http: HttpApi;
  readonly leases = new Map<string, HeldLease>();
  readonly connections: Connections;
  readonly renewals: Renewals;
  private closed = false;
  private readonly closeListeners = new Set<() => void>();
  private readonly cleanups = new Set<Promise<unknown>>();
  private budget = BUDGET;
  private incarnation: ClusterIncarnation | undefined;

  constructor(readonly settings: Settings) {
    this.http = new HttpApi(this);
    this.connections = new Connections(this, [...settings.addresses]);
    this.renewals = new Renewals(this);
    void this.connections.run();
  }

  /** Whether the client takes no new requests for locks. */
  get isClosing(): boolean {
    return this.closed;
  }

  /** Takes no new requests for locks from now on, and ends those that wait. */
  close(): void {
    this.closed = true;
    for (const listener of [...this.closeListeners]) listener();
  }

  /** Calls a function when the client closes, at once if it has. Returns what ends that. */
  onClose(listener: () => void): () => void {
    if (this.closed) listener();
    this.closeListeners.add(listener);
    return () => this.closeListeners.delete(listener);
  }

  // What the connections need.

  dial(address: string, withinMs: number): Dial {
    const { tls, credentials, name } = this.settings;
    // Addresses come from other members too: each is checked before anything is sent there.
    credentials.mayGoTo(address, tls !== undefined);
    return {
      address,
      tls,
      authorization: credentials.authorization(),
      hello: { client: name, ...(this.incarnation === undefined ? {} : { cluster_id: this.incarnation.cluster }) },
      leases: this.leaseIds().slice(0, RENEW_MAX),
      withinMs,
    };
  }

  members(session: Session): Promise<string[]> {
    return this.http.members(session.address);
  }

  leaseIds(): string[] {
    return Array.from(this.leases.keys());
  }

  credentialsRefused(): void {
    for (const lease of this.leases.values()) lease.with((state) => state.credentialsRefused());
  }

  changed(): void {
    this.connections.changed();
  }

  /** Checks that a member belongs to our cluster. A cluster that was restored since has ended all of our leases. */
  welcomed(welcome: Welcome): void {
    const met = { cluster: welcome.header.cluster_id, epoch: welcome.epoch, incarnation: welcome.incarnation };
    const known = this.incarnation;
    if (known !== undefined && known.cluster !== met.cluster) throw new Error("belongs to another cluster");
    if (known !== undefined && known.epoch > met.epoch) {
      throw new Error("belongs to the cluster as it was before it was restored");
    }
    this.incarnation = met;
    if (known !== undefined && (known.epoch !== met.epoch || known.incarnation !== met.incarnation)) {
      for (const lease of this.leases.values()) {
        const now = this.clock.read();
        lease.with((state) => state.ended({ cause: "gone" }, now), now);
      }
    }
  }

  lockLost(lost: WireLost, ended: readonly LeaseEnded[]): void {
    const lease = lost.lease === undefined ? undefined : this.leases.get(lost.lease);
    if (lease === undefined) return;
    // The cluster sends the reason of a revoke once, with the lease, and not with each of its locks.
    const reason = lost.reason || ended.find((it) => it.lease === lost.lease)?.reason;
    lease.taken(BigInt(lost.token), lossOf(lost.cause, lost.by, reason));
  }

  leaseEnded(ended: LeaseEnded): void {
    const now = this.clock.read();
    this.leases.get(ended.lease)?.with((state) => {
      state.ended(lossOf(ended.cause, ended.by, ended.reason), now);
    }, now);
  }

  // Sessions.

  /** The current session, if there is one. */
  sessionNow(): Session | undefined {
    const first = this.connections.current.value.first;
    return first?.isOver ? undefined : first;
  }

  /** A session, as soon as there is one. `undefined` at the limit, or when members refuse the credentials. */
  async session(untilMs: number): Promise<Session | undefined> {
    const is = (first: Session | undefined): boolean => first !== undefined && !first.isOver;
    const there = await this.connections.current.waitFor((it) => it.denied !== undefined || is(it.first), untilMs);
    return is(there?.first) ? there?.first : undefined;
  }

  /** The same for a caller that does not wait: also `undefined` once a whole round of attempts reached no member. */
  async sessionAtOnce(untilMs: number): Promise<Session | undefined> {
    const before = this.connections.current.value.failedRounds;
    const is = (first: Session | undefined): boolean => first !== undefined && !first.isOver;
    const test = (it: (typeof this.connections.current)["value"]): boolean =>
      it.denied !== undefined || it.failedRounds !== before || is(it.first);
    const there = await this.connections.current.waitFor(test, untilMs);
    return is(there?.first) ? there?.first : undefined;
  }

  /** The error of a request for which there is no session, or which none could serve. */
  noSession(cause?: unknown): TenureError {
    const { denied, tried } = this.connections.current.value;
    return denied === undefined ? new Unavailable(tried, cause) : new Refused(denied.reason, denied.message);
  }

  // Requests.

  /** A request of the caller, with the caller's span and what makes it recognisable. */
  request(command: Command, identity: Identity): WireRequest {
    const traceparent = this.callerSpan();
    return { ...this.ownRequest(command, identity), ...(traceparent ? { traceparent } : {}) };
  }

  /** The W3C `traceparent` of the caller. A request without a span is better than none. */
  private callerSpan(): string | undefined {
    try {
      return this.settings.traceparent?.();
    } catch {
      return undefined;
    }
  }

  /** A request that no caller asked for: it belongs to no span. */
  ownRequest(command: Command, identity: Identity): WireRequest {
    const request: WireRequest = { ...command };
    if (identity.by === "key") request.idempotency_key = identity.key;
    if (identity.by === "seq") {
      request.seq = identity.seq;
      request.done = identity.done;
    }
    return request;
  }

  /**
   * Sends a request until it is answered, or until it is known that no answer will come. Every request here may be sent
   * again: the cluster recognises it, or it is harmless to repeat.
   */
  call(command: Command, identity: Identity, withinMs = this.settings.timeoutMs): Promise<Answered> {
    return this.answered(this.request(command, identity), identity, withinMs);
  }

  /** The same for a request that no caller asked for. */
  ownCall(command: Command, identity: Identity, withinMs: number): Promise<Answered> {
    return this.answered(this.ownRequest(command, identity), identity, withinMs);
  }

  private async answered(request: WireRequest, identity: Identity, withinMs: number): Promise<Answered> {
    const began = nowMs();
    const untilMs = began + withinMs;
    const requestId = identity.by === "key" ? identity.key : undefined;
    // An unanswered query changed nothing, however often it was sent.
    const isQuery = "get_lease" in request || "get_lock" in request || "get_key" in request || "explain" in request;
    let doubt = false;
    let newest: TenureError | undefined;
    let pause = PAUSE_MIN_MS;
    const givenUp = (): TenureError =>
      doubt && !isQuery ? new Unknown(nowMs() - began, requestId) : (newest ?? this.noSession());
    for (let tries = 1; ; tries += 1) {
      const session = await this.session(untilMs);
      if (session === undefined) throw givenUp();
      const left = untilMs - nowMs();
      const deadline = Math.max(1, Math.floor(Math.min(left, MEMBER_MS)));
      const asked = session.ask({ ...request, deadline_ms: deadline });
      if (asked === undefined) {
        if (nowMs() >= untilMs) throw givenUp();
        await sleep(PAUSE_MIN_MS);
        continue;
      }
      const response = await within(asked.next(), untilMs);
      asked.end();
      let afterMs = 0;
      if (response?.kind === "answer") {
        const { answer, revision } = response;
        if (answer.error === undefined) {
          this.earn();
          return { answer, revision, doubt };
        }
        const meaning = meaningOf(answer.error);
        if (meaning.is === "no") {
          this.earn();
          throw Object.assign(meaning.error, { [DOUBT]: doubt });
        }
        if (meaning.is === "again") {
          afterMs = meaning.afterMs;
          newest = meaning.error ?? newest;
        } else {
          doubt = true;
        }
      } else if (response === undefined || response.kind === "gone") {
        doubt = true;
      } else {
        throw new StrangeAnswer();
      }
      // The first retry is free, because a change of leader needs it. Further ones draw on the budget.
      const wait = Math.max(jittered(pause), afterMs);
      if (nowMs() + wait >= untilMs || (tries > 1 && !this.spend())) throw givenUp();
      await sleep(wait);
      pause = Math.min(pause * 2, PAUSE_MAX_MS);
    }
  }

  /** An answer came: the cluster is well. */
  earn(): void {
    if (this.budget < BUDGET) this.budget += 1;
  }

  /** Takes one retry from the budget, if any is left. */
  spend(): boolean {
    if (this.budget < RETRY_COST) return false;
    this.budget -= RETRY_COST;
    return true;
  }

  // The end.

  /** Runs a clean-up in the background. {@link settled} waits for it. */
  cleanUp(rest: () => Promise<unknown>): void {
    // A clean-up that fails leaves its lease to run out.
    const running: Promise<unknown> = rest()
      .catch(() => undefined)
      .finally(() => this.cleanups.delete(running));
    this.cleanups.add(running);
  }

  get cleanupsOpen(): number {
    return this.cleanups.size;
  }

  /** Waits for the clean-ups that run now. */
  async settled(): Promise<void> {
    await Promise.all(this.cleanups);
  }

  /** Ends every connection. */
  stop(): void {
    this.renewals.stop();
    this.connections.stop();
    this.http.stop();
  }
}

/** Marks a refusal that followed an attempt which may have taken effect. */
const DOUBT = Symbol("doubt");

/** Whether a refusal followed an attempt that may have taken effect. */
export function wasDoubtful(error: Refused): boolean {
  return (error as { [DOUBT]?: boolean })[DOUBT] === true;
}

/** A loss with the name and reason from the cluster. */
function lossOf(cause: string, by: string | undefined, reason: string | undefined): Loss {
  return { cause: causeOf(cause), ...(by ? { by } : {}), ...(reason ? { reason } : {}) };
}

/** The outcome of a promise, or `undefined` at the limit. */
export function within<T>(promise: Promise<T>, untilMs: number): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const alarm = new Alarm(untilMs, () => resolve(undefined));
    promise.then(resolve, reject).finally(() => alarm.cancel());
  });
}

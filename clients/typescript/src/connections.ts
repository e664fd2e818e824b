/**
 * Manages the client's connections: one session with the leader, one with another member on standby.
 *
 * The first session is with the leader and follows it when it changes. The second is with another member and stays open
 * for renewals and for the moment the first ends. Others only see the current pair.
 */
import type { Clock } from "./clock.js";
import type { Tried } from "./errors.js";
import { jittered } from "./platform/platform.js";
import { DialError, Session, type Dial, type SessionEvents } from "./session.js";
import { Alarm, nowMs, Watched } from "./waiting.js";

/** The maximum time to connect and receive the welcome. */
const DIAL_MS = 2_000;
/** The pause between attempts grows from the first value to the second. */
const PAUSE_MIN_MS = 20;
const PAUSE_MAX_MS = 1_000;
/** How long the client does not retry a leader that it could not reach. */
const SHUN_MS = 500;
/** The maximum number of addresses to remember. */
const KNOWN_MAX = 64;

/** The current sessions. */
export interface CurrentSessions {
  /** The session with the leader, or with a member that forwards to it. */
  readonly first: Session | undefined;
  /** The session with another member. */
  readonly second: Session | undefined;
  /** The outcome of the last attempt at each address. */
  readonly tried: readonly Tried[];
  /** The refusal of the client's credentials, if the last round of attempts met one and no session could be opened. */
  readonly denied: { readonly reason: string; readonly message: string } | undefined;
  /** How many rounds of attempts connected to no member. */
  readonly failedRounds: number;
}

/** What the manager needs from the client. */
export interface ConnectionOwner extends SessionEvents {
  readonly clock: Clock;
  /** How to introduce the client to an address. Throws if nothing may be sent there. */
  dial(address: string, withinMs: number): Dial;
  /** The addresses of the members, according to one of them. */
  members(session: Session): Promise<string[]>;
  /** The ids of the leases that are held. */
  leaseIds(): string[];
  /** Members refuse the client's credentials. */
  credentialsRefused(): void;
}

/** Keeps the sessions. */
export class Connections {
  readonly current = new Watched<CurrentSessions>({
    first: undefined,
    second: undefined,
    tried: [],
    denied: undefined,
    failedRounds: 0,
  });
  private first: Session | undefined;
  private second: Session | undefined;
  private readonly tried = new Map<string, string>();
  private denied: CurrentSessions["denied"];
  private lastDenied: CurrentSessions["denied"];
  private failedRounds = 0;
  private turn = Math.floor(Math.random() * 64);
  private pauseMs = PAUSE_MIN_MS;
  private stopped = false;
  private wake: (() => void) | undefined;
  private woken = false;

  constructor(
    private readonly owner: ConnectionOwner,
    private known: string[],
  ) {}

  /** Runs until the client is closed. */
  async run(): Promise<void> {
    while (!this.stopped) {
      let settled = true;
      this.woken = false;
      this.tidy();
      if (this.first === undefined) settled = await this.dialAny();
      if (this.first !== undefined && !this.stopped) settled = await this.follow();
      // Open the standby session even if the leader cannot be reached.
      if (this.first !== undefined && this.second === undefined && this.known.length > 1 && !this.stopped) {
        settled = (await this.dialSecond()) && settled;
      }
      this.publish();
      if (settled) this.pauseMs = PAUSE_MIN_MS;
      const pause = settled ? Infinity : jittered(this.pauseMs);
      this.pauseMs = Math.min(this.pauseMs * 2, PAUSE_MAX_MS);
      await this.wait(pause);
    }
    this.first?.close();
    this.second?.close();
  }

  /** A session ended, or the leader moved. */
  changed(): void {
    this.woken = true;
    // Renewals and requests should not choose a session that is over.
    if (this.first?.isOver || this.second?.isOver) this.tidy();
    this.wake?.();
  }

  stop(): void {
    this.stopped = true;
    this.wake?.();
  }

  /** Drops sessions that are over. The standby session then takes the place of the first. */
  private tidy(): void {
    if (this.first?.isOver) this.first = undefined;
    if (this.second?.isOver) this.second = undefined;
    if (this.first === undefined && this.second !== undefined) {
      this.first = this.second;
      this.second = undefined;
    }
    this.publish();
  }

  private publish(): void {
    this.current.set({
      first: this.first,
      second: this.second,
      tried: Array.from(this.tried, ([address, outcome]) => ({ address, outcome })),
      denied: this.denied,
      failedRounds: this.failedRounds,
    });
  }

  private async dialAny(): Promise<boolean> {
    this.denied = undefined;
    let denied: CurrentSessions["denied"];
    for (let each = this.known.length; each > 0 && !this.stopped; each -= 1) {
      this.turn += 1;
      const session = await this.dial(this.known[this.turn % this.known.length]!);
      if (session !== undefined) {
        this.first = session;
        this.publish();
        await this.meet(session);
        return true;
      }
      denied = this.lastDenied ?? denied;
    }
    if (denied !== undefined) this.owner.credentialsRefused();
    this.denied = denied;
    this.failedRounds += 1;
    return false;
  }

  private async dialSecond(): Promise<boolean> {
    const first = this.first;
    if (first === undefined) return false;
    const others = this.known.filter((it) => it !== first.address);
    for (let each = others.length; each > 0 && !this.stopped; each -= 1) {
      this.turn += 1;
      const address = others[this.turn % others.length]!;
      const session = await this.dial(address);
      if (session === undefined) continue;
      if (session.member === first.member) {
        // The same member under another address is no standby.
        this.known = this.known.filter((it) => it !== address);
        session.close();
        continue;
      }
      this.second = session;
      return true;
    }
    return false;
  }

  /** Makes the session with the leader the first one, as far as the leader is known. */
  private async follow(): Promise<boolean> {
    const first = this.first;
    if (first === undefined) return false;
    const leader = first.elsewhere;
    if (leader === undefined) return this.refresh(first);
    let session: Session | undefined;
    if (this.second?.member === leader.member && !this.second.isOver) {
      session = this.second;
      this.second = undefined;
    } else {
      session = await this.dial(leader.address);
    }
    // A follower forwards requests, so nothing has to wait until this succeeds.
    if (session === undefined) return false;
    this.learn(leader.address);
    this.second?.retire();
    this.first = session;
    this.second = first.isOver ? undefined : first;
    this.publish();
    return this.refresh(session);
  }

  /**
   * Replaces a standby session that has become the first: a session gets the notices of those leases only that it named
   * when it was opened or that were asked for on it.
   */
  private async refresh(first: Session): Promise<boolean> {
    if (this.owner.leaseIds().every((lease) => first.attached.has(lease))) return true;
    const session = await this.dial(first.address);
    if (session === undefined) return false;
    this.first = session;
    this.publish();
    first.retire();
    return true;
  }

  private async dial(address: string): Promise<Session | undefined> {
    this.lastDenied = undefined;
    try {
      const session = await Session.open(this.owner.dial(address, DIAL_MS), this.owner.clock, this.owner);
      this.tried.set(address, "connected");
      return session;
    } catch (error) {
      if (error instanceof DialError) this.lastDenied = error.denied;
      this.tried.set(address, error instanceof Error ? error.message : String(error));
      return undefined;
    }
  }

  /** Asks a member for the addresses of the others. */
  private async meet(session: Session): Promise<void> {
    try {
      for (const address of await this.owner.members(session)) this.learn(address);
    } catch {
      // The configured addresses have to do; the leader's is learned from the sessions.
    }
  }

  private learn(address: string): void {
    const nowhere = address === "" || address === "-";
    if (!nowhere && this.known.length < KNOWN_MAX && !this.known.includes(address)) this.known.push(address);
  }

  /** Waits until a session ends, the leader moves, or the pause is over. */
  private async wait(pauseMs: number): Promise<void> {
    const settled = pauseMs === Infinity;
    // After a round that failed there is always a pause, whatever has changed meanwhile.
    if (this.stopped || (this.woken && (settled || this.first === undefined))) return;
    const elsewhere = this.first?.elsewhere !== undefined;
    const pause = !settled && elsewhere ? Math.max(pauseMs, SHUN_MS) : pauseMs;
    await new Promise<void>((resolve) => {
      let alarm: Alarm | undefined;
      this.wake = () => {
        alarm?.cancel();
        this.wake = undefined;
        resolve();
      };
      if (pause !== Infinity) alarm = new Alarm(nowMs() + pause, () => this.wake?.());
    });
  }
}

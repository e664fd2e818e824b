/**
 * Runs one session with one member over a WebSocket: opens it, sends requests, delivers answers and detects a silent peer.
 *
 * The answer to a request and every later notice about it arrive in order at the same {@link Asked}, so a grant that
 * follows directly behind an answer is never missed.
 */
import type { Clock } from "./clock.js";
import { meaningOf } from "./errors.js";
import { platform } from "./platform/platform.js";
import type { Socket, SocketEnd, TlsFiles } from "./platform/platform.js";
import type { Answer, Granted, LeaseEnded, ServerMessage, WaitEnded, Welcome } from "./wire.js";
import type { WireError, WireLost, WireRequest } from "./wire.js";

/** The idle time after which the client sends a ping. */
const QUIET_US = 2_000_000;
/** How long the peer may take to answer the ping before the session is closed. */
const SILENT_US = 2_000_000;
/** How often the session looks for that. */
const LOOK_MS = 1_000;
/** A look that comes so late says that this process did not run, so it proves nothing about the peer. */
const LOOK_LATE_US = 500_000;
/** The most requests in one message, and the size from which nothing more is added to it. */
const TOGETHER_MAX = 64;
const TOGETHER_CHARS = 256 * 1024;
/** A socket that holds so many unsent bytes is full: the other end does not read. */
const UNSENT_BYTES_MAX = 16 * 1024 * 1024;

/** Something that arrives about a request. */
export type Response =
  | { readonly kind: "answer"; readonly answer: Answer; readonly revision: bigint }
  | { readonly kind: "granted"; readonly granted: Granted }
  | { readonly kind: "wait_ended"; readonly ended: WaitEnded }
  /** The session is over. The outcome of the request is not known. */
  | { readonly kind: "gone" };

/** What a session tells the client, beside the responses to requests. */
export interface SessionEvents {
  /** A member introduces itself. Throws if it is none of ours. */
  welcomed(welcome: Welcome): void;
  lockLost(lost: WireLost, ended: readonly LeaseEnded[]): void;
  leaseEnded(ended: LeaseEnded): void;
  /** The session is over, or its member knows another leader. */
  changed(): void;
}

/** Whom to dial, and what to say first. */
export interface Dial {
  readonly address: string;
  readonly tls: TlsFiles | undefined;
  readonly authorization: string | undefined;
  readonly hello: Readonly<Record<string, unknown>>;
  readonly leases: readonly string[];
  readonly withinMs: number;
}

/** Why no session could be opened. */
export class DialError extends Error {
  constructor(
    message: string,
    /** Whether the peer did not answer in time, so that it may still answer the next attempt. */
    readonly silent = false,
    /** If the credentials are the reason: no other attempt will succeed with them. */
    readonly denied?: { readonly reason: string; readonly message: string },
  ) {
    super(message);
  }
}

/** A request that was sent, and what arrives about it, in order. */
export class Asked {
  private readonly queue: Response[] = [];
  private waiter: ((response: Response) => void) | undefined;
  private gone = false;

  constructor(
    private readonly session: Session,
    readonly id: number,
    /** The lease whose notices the member sends here once it has answered. */
    readonly lease: string | undefined,
  ) {}

  /** The next response. Once the session is over and everything before that was taken, always `gone`. */
  next(): Promise<Response> {
    const first = this.queue.shift();
    if (first !== undefined) return Promise.resolve(first);
    if (this.gone) return Promise.resolve({ kind: "gone" });
    return new Promise((resolve) => {
      this.waiter = resolve;
    });
  }

  /** Stops listening. */
  end(): void {
    this.session.forget(this.id);
  }

  put(response: Response): void {
    if (response.kind === "gone") this.gone = true;
    const waiter = this.waiter;
    this.waiter = undefined;
    if (waiter !== undefined) waiter(response);
    else if (response.kind !== "gone") this.queue.push(response);
  }
}

/** One session with one member. */
export class Session {
  readonly address: string;
  /** The leases whose notices come here. */
  readonly attached = new Set<string>();
  /** The id of the member at the other end. Several addresses may lead to one member. */
  member = "0";
  private leaderAt: { member: string; address: string } | undefined;
  private socket: Socket | undefined;
  private begun = false;
  private over = false;
  private retired = false;
  private newest = 0;
  private readonly pending = new Map<number, Asked>();
  private outgoing: WireRequest[] = [];
  private heardUs: number;
  private pingUs: number | undefined;
  private lookedUs: number;
  private looks: ReturnType<typeof setInterval> | undefined;

  private constructor(
    dial: Dial,
    private readonly clock: Clock,
    private readonly events: SessionEvents,
  ) {
    this.address = dial.address;
    this.heardUs = clock.nowUs();
    this.lookedUs = this.heardUs;
    for (const lease of dial.leases) this.attached.add(lease);
  }

  /** Opens a session with the member at an address. */
  static open(dial: Dial, clock: Clock, events: SessionEvents): Promise<Session> {
    return new Promise((resolve, reject) => {
      const session = new Session(dial, clock, events);
      let settled = false;
      const fail = (error: DialError): void => {
        if (settled) return;
        settled = true;
        clearTimeout(timer);
        session.close();
        reject(error);
      };
      const timer = setTimeout(() => fail(new DialError("timed out", true)), dial.withinMs);
      const headers: Record<string, string> = {};
      const hello = { ...dial.hello };
      if (dial.authorization !== undefined) {
        if (platform().canSetHeaders) headers["authorization"] = dial.authorization;
        else hello["authorization"] = dial.authorization;
      }
      const url = `${dial.tls === undefined ? "ws" : "wss"}://${dial.address}/v1/ws`;
      const opened = (): void => {
        const resume = dial.leases.length > 0 ? { resume: { leases: dial.leases } } : {};
        session.socket?.send(JSON.stringify({ hello, ...resume }));
      };
      const received = (text: string): void => {
        if (settled) return session.receive(text);
        let message: ServerMessage;
        try {
          message = JSON.parse(text) as ServerMessage;
        } catch {
          return fail(new DialError("does not speak our language"));
        }
        if (message.closing !== undefined) return fail(refusedBy(message.closing));
        const refusal = message.answers?.find((it) => it.error !== undefined)?.error;
        if (refusal !== undefined) return fail(refusedBy(refusal));
        if (message.welcome === undefined) return fail(new DialError("does not speak our language"));
        try {
          events.welcomed(message.welcome);
        } catch (error) {
          return fail(new DialError(error instanceof Error ? error.message : String(error)));
        }
        settled = true;
        clearTimeout(timer);
        session.begin(message.welcome);
        resolve(session);
      };
      const closed = (why: SocketEnd): void => {
        fail(dialError(why));
        session.close();
      };
      try {
        const ponged = (): void => session.heard();
        session.socket = platform().openSocket(url, headers, dial.tls, { opened, received, ponged, closed });
      } catch (error) {
        fail(new DialError(error instanceof Error ? error.message : String(error)));
      }
    });
  }

  get isOver(): boolean {
    return this.over;
  }

  /** Where the leader is, if it is known and is not the member at the other end. */
  get elsewhere(): { member: string; address: string } | undefined {
    const leader = this.leaderAt;
    const known = leader !== undefined && leader.member !== "0" && leader.address !== "";
    return known && leader.member !== this.member ? leader : undefined;
  }

  /** Queues a request for sending and assigns its id. Returns `undefined` if the session is over or full. */
  ask(request: WireRequest): Asked | undefined {
    if (this.over || this.retired || (this.socket?.bufferedBytes ?? 0) > UNSENT_BYTES_MAX) return undefined;
    this.newest += 1;
    const lease = request.acquire?.lease ?? request.acquire?.new_lease?.lease ?? request.grant_lease?.lease;
    const asked = new Asked(this, this.newest, lease);
    this.pending.set(asked.id, asked);
    // Requests of the same turn of the event loop share a message.
    if (this.outgoing.length === 0) queueMicrotask(() => this.flush());
    this.outgoing.push({ ...request, id: asked.id });
    return asked;
  }

  forget(id: number): void {
    this.pending.delete(id);
    this.closeIfDone();
  }

  /** Takes no more requests, and closes the session once every pending one has ended. */
  retire(): void {
    this.retired = true;
    this.closeIfDone();
  }

  /** Closes the session and tells every pending request that it is over. */
  close(): void {
    if (this.over) return;
    this.over = true;
    clearInterval(this.looks);
    this.socket?.terminate();
    for (const asked of [...this.pending.values()]) asked.put({ kind: "gone" });
    this.pending.clear();
    if (this.begun) this.events.changed();
  }

  private closeIfDone(): void {
    if (this.retired && this.pending.size === 0) this.close();
  }

  private begin(welcome: Welcome): void {
    this.begun = true;
    this.member = welcome.header.member_id;
    if (welcome.leader) this.leaderAt = { member: welcome.leader.member_id, address: welcome.leader.address };
    this.heard();
    this.looks = setInterval(() => this.look(), LOOK_MS);
  }

  private heard(): void {
    this.heardUs = this.clock.nowUs();
    this.pingUs = undefined;
  }

  /** Looks whether the peer is silent: pings it, and closes the session if it does not answer. */
  private look(): void {
    const now = this.clock.nowUs();
    const late = now - this.lookedUs > LOOK_MS * 1_000 + LOOK_LATE_US;
    this.lookedUs = now;
    if (late) {
      // What the peer sent meanwhile is not read yet.
      this.heardUs = now;
      this.pingUs = undefined;
    }
    if (this.pingUs !== undefined && now - this.pingUs >= SILENT_US) return this.close();
    if (this.pingUs === undefined && now - this.heardUs >= QUIET_US) {
      this.pingUs = now;
      this.ping();
    }
  }

  private ping(): void {
    if (this.socket?.ping !== undefined) return this.socket.ping();
    // A browser has no pings: ask for something cheap, whose answer is forgotten.
    this.ask({ get_lock: { name: "tenure", stale: true } })?.end();
  }

  private flush(): void {
    while (this.outgoing.length > 0 && !this.over) {
      const texts: string[] = [];
      let chars = 0;
      while (texts.length < TOGETHER_MAX && chars < TOGETHER_CHARS) {
        const request = this.outgoing.shift();
        if (request === undefined) break;
        const text = JSON.stringify(request);
        chars += text.length;
        texts.push(text);
      }
      this.socket?.send(`{"requests":[${texts.join(",")}]}`);
    }
    this.outgoing = [];
  }

  private receive(text: string): void {
    if (this.over) return;
    this.heard();
    let message: ServerMessage;
    try {
      message = JSON.parse(text) as ServerMessage;
    } catch {
      return this.close();
    }
    if (message.leader) {
      this.leaderAt = { member: message.leader.member_id, address: message.leader.address };
    }
    for (const answer of message.answers ?? []) {
      const asked = this.pending.get(answer.id);
      if (asked === undefined) continue;
      if (asked.lease !== undefined && answer.error === undefined) this.attached.add(asked.lease);
      asked.put({ kind: "answer", answer, revision: BigInt(answer.revision ?? 0) });
    }
    for (const granted of message.grants ?? []) {
      if (granted.id !== undefined) this.pending.get(granted.id)?.put({ kind: "granted", granted });
    }
    for (const ended of message.waits_ended ?? []) {
      if (ended.id !== undefined) this.pending.get(ended.id)?.put({ kind: "wait_ended", ended });
    }
    for (const lost of message.losses ?? []) this.events.lockLost(lost, message.leases_ended ?? []);
    for (const ended of message.leases_ended ?? []) this.events.leaseEnded(ended);
    if (message.closing !== undefined) return this.close();
    if (message.leader) this.events.changed();
  }
}

const DENYING = ["UNAUTHENTICATED", "PERMISSION_DENIED", "FORBIDDEN"];

/** The error of a member that refuses the session. */
function refusedBy(error: WireError): DialError {
  const denied = DENYING.includes(error.reason) ? { reason: error.reason, message: error.message } : undefined;
  return new DialError(error.message, false, denied);
}

/** The error of a socket that did not open. */
function dialError(why: SocketEnd): DialError {
  if (why.body !== undefined) {
    try {
      const error = (JSON.parse(why.body) as { error?: WireError }).error;
      if (error !== undefined && meaningOf(error).is === "no") return refusedBy(error);
      if (error !== undefined) return new DialError(error.message);
    } catch {
      // The body is not of a member: the status says enough.
    }
  }
  return new DialError(why.message, why.message === "timed out");
}

/** Declares what the client needs from the runtime: clocks, sockets, HTTP, randomness. Node and browsers provide it. */
import type { ClockSource } from "../clock.js";

/** What a socket tells its user. Nothing follows `closed`. */
export interface SocketListener {
  opened(): void;
  received(text: string): void;
  /** The peer answered a ping. */
  ponged(): void;
  closed(why: SocketEnd): void;
}

/** Why a socket ended. */
export interface SocketEnd {
  readonly message: string;
  /** The status of the HTTP response that refused the upgrade, and its body. */
  readonly status?: number;
  readonly body?: string;
}

/** One WebSocket. */
export interface Socket {
  send(text: string): void;
  /** Sends a ping; absent where the runtime offers none. */
  ping?(): void;
  /** Ends the socket at once. */
  terminate(): void;
  /** Bytes that were handed over and are not sent yet. */
  readonly bufferedBytes: number;
}

/** The files of TLS, in PEM form. They are read again for every connection. Without `ca`, the runtime's authorities count. */
export interface TlsFiles {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

export interface HttpRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly tls: TlsFiles | undefined;
  readonly signal: AbortSignal;
}

export interface HttpResponse {
  readonly status: number;
  /** The value of `Retry-After`, if there is one. */
  readonly retryAfter: string | undefined;
  readonly body: AsyncIterable<string>;
}

/** A connection failed or broke. What was asked over it may be asked again. */
export class BrokenConnection extends Error {
  constructor(cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
  }
}

/** Passes a body on as it arrives. */
export async function* unbroken(body: AsyncIterable<string>): AsyncGenerator<string> {
  try {
    yield* body;
  } catch (error) {
    throw new BrokenConnection(error);
  }
}

export interface Platform {
  readonly clocks: ClockSource;
  /** Whether the upgrade of a WebSocket can carry headers. Browsers cannot set them. */
  readonly canSetHeaders: boolean;
  openSocket(
    url: string,
    headers: Readonly<Record<string, string>>,
    tls: TlsFiles | undefined,
    listener: SocketListener,
  ): Socket;
  /** Sends a request. It, and reading the body, fail with {@link BrokenConnection} if the connection does. */
  request(request: HttpRequest): Promise<HttpResponse>;
  /** The name of a client that gives none. */
  clientName(): string;
  environment(name: string): string | undefined;
  /** Reads a text file, or throws. */
  readFile(path: string): string;
}

let current: Platform | undefined;

/** Chooses the platform. The entry points of the package do this. */
export function setPlatform(platform: Platform): void {
  current = platform;
}

export function platform(): Platform {
  if (current === undefined) throw new Error("import @tenure/client, not its files");
  return current;
}

/** A random number of 63 bits that is not 0, and that cannot be predicted. */
export function randomId(): bigint {
  const words = crypto().getRandomValues(new BigUint64Array(1));
  return ((words[0] ?? 0n) >> 1n) || 1n;
}

/** 32 random hexadecimal digits. */
export function randomKey(): string {
  const bytes = crypto().getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (it) => it.toString(16).padStart(2, "0")).join("");
}

/** Fills numbers with randomness that cannot be predicted. */
export interface RandomSource {
  getRandomValues<T extends Uint8Array | BigUint64Array>(numbers: T): T;
}

let randomSource: RandomSource | undefined;

/** Sets the source of randomness where there is no global one: Node 18. */
export function setRandomSource(source: RandomSource): void {
  randomSource = source;
}

function crypto(): RandomSource {
  return randomSource ?? (globalThis.crypto as RandomSource);
}

/** A random duration between half of `ms` and all of it, so that many clients do not retry at the same moment. */
export function jittered(ms: number): number {
  return ms / 2 + (Math.random() * ms) / 2;
}

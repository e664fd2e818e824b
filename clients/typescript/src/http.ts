/** Sends the requests that have no form on a session over HTTP: members, tickets, and streams of server-sent events. */
import type { Core } from "./core.js";
import { Closed, meaningOf, type Meaning, Refused, StrangeAnswer, Unavailable, type TenureError } from "./errors.js";
import { BrokenConnection, jittered, platform, type HttpResponse } from "./platform/platform.js";
import { nowMs, sleep } from "./waiting.js";
import type { WireError } from "./wire.js";

/** How long a member may take to list the members. */
const MEMBERS_MS = 2_000;
/** The pause between attempts of a query grows from the first value to the second. */
const PAUSE_MIN_MS = 20;
const PAUSE_MAX_MS = 1_000;
/** The longest body of an answer. */
const BODY_CHARS_MAX = 16 * 1024 * 1024;

/** What proxies and load balancers answer until they reach a member again. */
const PASSING_STATUS = [429, 502, 503, 504];

/** A member does not serve now: it, or another one, may be asked again after this time. */
export class NotNow extends Error {
  constructor(readonly afterMs: number) {
    super("the member does not serve now");
  }
}

/** One server-sent event. */
export interface ServerSentEvent {
  readonly event: string;
  readonly data: string;
}

/** The HTTP API of the members. */
export class HttpApi {
  private readonly stopping = new AbortController();

  constructor(private readonly core: Core) {}

  /** Ends every request. */
  stop(): void {
    this.stopping.abort();
  }

  /** The addresses of all members, according to the one at this address. */
  async members(address: string): Promise<string[]> {
    const answer = await this.json(address, "GET", "/v1/cluster/members", undefined, MEMBERS_MS);
    const { members } = answer as { members?: { client_address: string }[] };
    return (members ?? []).map((it) => it.client_address);
  }

  /** Sends a request and reads its answer as JSON. Refusals are thrown. */
  async json(address: string, method: string, path: string, body: object | undefined, withinMs: number): Promise<unknown> {
    const asking = this.exchange(address, method, path, body, withinMs).catch((error: unknown) => {
      throw error instanceof BrokenConnection ? this.core.noSession(error.cause) : error;
    });
    const { answer, refusal } = await asking;
    if (refusal !== undefined) throw errorOf(refusal);
    return answer;
  }

  /** Sends a request, and returns the answer or what the member refused it with. */
  private async exchange(
    address: string,
    method: string,
    path: string,
    body: object | undefined,
    withinMs: number,
  ): Promise<{ answer?: unknown; refusal?: Refusal }> {
    const ending = new AbortController();
    const stop = this.whenStopping(ending);
    const timer = setTimeout(() => ending.abort(), withinMs);
    try {
      const response = await this.send(address, method, path, body, {}, ending.signal);
      const text = await whole(response);
      const isDone = response.status >= 200 && response.status < 300;
      return isDone ? { answer: parsed(text) } : { refusal: refusalIn(response, text) };
    } finally {
      clearTimeout(timer);
      stop();
    }
  }

  /** Sends a query, which changes nothing, until a member answers it: at most for the client's timeout. */
  async query(path: string): Promise<unknown> {
    const { core } = this;
    const untilMs = nowMs() + core.settings.timeoutMs;
    let newest: TenureError | undefined;
    let cause: unknown;
    for (let pause = PAUSE_MIN_MS; ; pause = Math.min(pause * 2, PAUSE_MAX_MS)) {
      const session = await core.session(untilMs);
      if (session === undefined) throw newest ?? core.noSession(cause);
      let afterMs = 0;
      try {
        const left = Math.max(1, untilMs - nowMs());
        const { answer, refusal } = await this.exchange(session.address, "GET", path, undefined, left);
        if (refusal === undefined) return answer;
        const { error, meaning } = refusal;
        if (meaning.is === "no") throw meaning.error;
        if (meaning.is === "again") {
          afterMs = meaning.afterMs;
          newest = meaning.error ?? newest;
        }
        cause = new Refused(error.reason, error.message, error);
      } catch (error) {
        if (!(error instanceof BrokenConnection)) throw error;
        if (this.stopping.signal.aborted) throw new Closed();
        cause = error.cause;
      }
      const wait = Math.max(jittered(pause), afterMs);
      if (nowMs() + wait >= untilMs) throw newest ?? core.noSession(cause);
      await sleep(wait);
    }
  }

  /** Opens a stream of server-sent events. The caller aborts `ending` to end it. */
  async events(
    address: string,
    path: string,
    headers: Record<string, string>,
    ending: AbortController,
  ): Promise<AsyncGenerator<ServerSentEvent>> {
    const stop = this.whenStopping(ending);
    try {
      const response = await this.send(address, "GET", path, undefined, headers, ending.signal);
      if (response.status !== 200) {
        const refusal = refusalIn(response, await whole(response));
        throw refusal.meaning.is === "again" ? new NotNow(refusal.meaning.afterMs) : errorOf(refusal);
      }
      return eventsOf(response.body, stop);
    } catch (error) {
      stop();
      throw error;
    }
  }

  private send(
    address: string,
    method: string,
    path: string,
    body: object | undefined,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<HttpResponse> {
    const { tls, credentials } = this.core.settings;
    credentials.mayGoTo(address, tls !== undefined);
    const authorization = credentials.authorization();
    return platform().request({
      method,
      url: `${tls === undefined ? "http" : "https"}://${address}${path}`,
      headers: { ...headers, ...(authorization === undefined ? {} : { authorization }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      tls,
      signal,
    });
  }

  private whenStopping(ending: AbortController): () => void {
    const signal = this.stopping.signal;
    const abort = (): void => ending.abort();
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    return () => signal.removeEventListener("abort", abort);
  }
}

/** A name in a path: its slashes stay. */
export function inPath(name: string): string {
  return name.split("/").map(encodeURIComponent).join("/");
}

async function whole(response: HttpResponse): Promise<string> {
  let text = "";
  for await (const part of response.body) {
    text += part;
    if (text.length > BODY_CHARS_MAX) throw new StrangeAnswer();
  }
  return text;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new StrangeAnswer();
  }
}

/** Why a member, or what stands before it, did not answer a request that is harmless to repeat. */
interface Refusal {
  readonly error: WireError;
  readonly meaning: Meaning;
}

/** Reads a refusal. What no member sent goes away soon if proxies send it until they reach a member again. */
function refusalIn(response: HttpResponse, text: string): Refusal {
  const error = errorIn(text);
  // A date, which no member sends, is not read.
  const askedMs = /^\d{1,9}$/.test(response.retryAfter ?? "") ? Number(response.retryAfter) * 1_000 : 0;
  if (error === undefined) {
    if (!PASSING_STATUS.includes(response.status)) throw new StrangeAnswer();
    const strange = { reason: "STRANGE_ANSWER", message: `HTTP ${response.status}`, effect: "none" } as const;
    return { error: strange, meaning: { is: "again", afterMs: askedMs, error: undefined } };
  }
  const meaning = meaningOf(error);
  return { error, meaning: meaning.is === "again" ? { ...meaning, afterMs: meaning.afterMs || askedMs } : meaning };
}

/** The error of a member in a body, if there is one. */
function errorIn(text: string): WireError | undefined {
  try {
    const { error } = (JSON.parse(text) ?? {}) as { error?: WireError };
    return error?.reason ? error : undefined;
  } catch {
    return undefined;
  }
}

/** What a refusal is for the caller. What may be sent again is `Unavailable`: nothing happened. */
function errorOf({ error, meaning }: Refusal): Error {
  return meaning.is === "no" ? meaning.error : new Unavailable([], new Refused(error.reason, error.message, error));
}

async function* eventsOf(body: AsyncIterable<string>, stop: () => void): AsyncGenerator<ServerSentEvent> {
  let rest = "";
  try {
    for await (const part of body) {
      const blocks = (rest + part).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = { event: "message", data: "" };
        for (const line of block.split("\n")) {
          if (line.startsWith("event: ")) event.event = line.slice(7);
          if (line.startsWith("data: ")) event.data += line.slice(6);
        }
        yield event;
      }
    }
  } finally {
    stop();
  }
}

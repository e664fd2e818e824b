/** Provides clocks, sockets and HTTP on Node. */
import { webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import * as os from "node:os";
import { basename } from "node:path";
import type { ClientRequest, IncomingMessage } from "node:http";
import { WebSocket } from "ws";
import { BrokenConnection, setRandomSource, unbroken, type RandomSource } from "./platform.js";
import type { HttpRequest, HttpResponse, Platform, Socket, SocketListener, TlsFiles } from "./platform.js";

/** The longest message that the client accepts. */
const MESSAGE_BYTES_MAX = 16 * 1024 * 1024;
/** As much of a refused upgrade's body as is read. */
const REFUSAL_BYTES_MAX = 64 * 1024;

setRandomSource(webcrypto as RandomSource);

export const nodePlatform: Platform = {
  clocks: {
    awakeUs() {
      const [seconds, nanos] = process.hrtime();
      return seconds * 1_000_000 + Math.floor(nanos / 1_000);
    },
    wallUs: () => Date.now() * 1_000,
    uptimeUs,
  },
  canSetHeaders: true,
  openSocket,
  request,
  clientName() {
    const program = basename(process.argv[1] ?? "node");
    return `${program}@${os.hostname() || "unnamed"}/${process.pid}`;
  },
  environment: (name) => process.env[name],
  readFile: (path) => readFileSync(path, "utf8"),
};

/** On Linux, the time since boot from `/proc/uptime`, which counts suspend. Elsewhere it is derived from other clocks. */
function uptimeUs(): number | undefined {
  if (process.platform !== "linux") return undefined;
  try {
    return Math.round(os.uptime() * 1_000_000);
  } catch {
    return undefined;
  }
}

function tlsOptions(tls: TlsFiles | undefined): object {
  if (tls === undefined) return {};
  return {
    ...(tls.ca === undefined ? {} : { ca: readFileSync(tls.ca) }),
    ...(tls.cert === undefined ? {} : { cert: readFileSync(tls.cert) }),
    ...(tls.key === undefined ? {} : { key: readFileSync(tls.key) }),
    minVersion: "TLSv1.3",
  };
}

function openSocket(
  url: string,
  headers: Readonly<Record<string, string>>,
  tls: TlsFiles | undefined,
  listener: SocketListener,
): Socket {
  const socket = new WebSocket(url, {
    headers,
    perMessageDeflate: false,
    maxPayload: MESSAGE_BYTES_MAX,
    ...tlsOptions(tls),
  });
  let over = false;
  const end = (why: { message: string; status?: number; body?: string }): void => {
    if (over) return;
    over = true;
    listener.closed(why);
  };
  socket.on("open", () => listener.opened());
  socket.on("message", (data: Buffer, isBinary: boolean) => {
    if (!over && !isBinary) listener.received(data.toString("utf8"));
  });
  socket.on("pong", () => listener.ponged());
  socket.on("unexpected-response", (request: ClientRequest, response: IncomingMessage) => {
    let body = "";
    response.setEncoding("utf8");
    response.on("data", (text: string) => {
      if (body.length < REFUSAL_BYTES_MAX) body += text;
    });
    response.on("close", () => {
      end({ message: `answered ${response.statusCode}`, status: response.statusCode ?? 0, body });
      request.destroy();
    });
  });
  socket.on("error", (error: NodeJS.ErrnoException) => end({ message: connectionError(error) }));
  socket.on("close", (code: number, reason: Buffer) => end({ message: reason.toString() || `closed with ${code}` }));
  return {
    send: (text) => socket.send(text),
    ping: () => socket.ping(),
    terminate: () => {
      end({ message: "closed" });
      // A socket that is still connecting reports its end as an error, which has a listener above.
      socket.terminate();
    },
    get bufferedBytes() {
      return socket.bufferedAmount;
    },
  };
}

/** One word for the common system errors. */
function connectionError(error: NodeJS.ErrnoException): string {
  const all = error instanceof AggregateError ? (error.errors as NodeJS.ErrnoException[]) : [error];
  const first = all[0] ?? error;
  if (first.code === "ECONNREFUSED") return "refused";
  if (first.code === "ETIMEDOUT") return "timed out";
  if (first.code === "ECONNRESET") return "reset";
  if (first.code === "ERR_SSL_WRONG_VERSION_NUMBER" || first.code === "EPROTO") return "does not accept TLS";
  return first.message || first.code || "failed";
}

function request(asked: HttpRequest): Promise<HttpResponse> {
  return new Promise((resolve, reject) => {
    const module = asked.url.startsWith("https:") ? https : http;
    const options = {
      method: asked.method,
      headers: { ...asked.headers, ...(asked.body === undefined ? {} : { "content-type": "application/json" }) },
      signal: asked.signal,
      agent: false,
      ...tlsOptions(asked.tls),
    } as https.RequestOptions;
    const sent = module.request(asked.url, options, (response) => {
      response.setEncoding("utf8");
      const retryAfter = response.headers["retry-after"];
      resolve({ status: response.statusCode ?? 0, retryAfter, body: unbroken(response as AsyncIterable<string>) });
    });
    sent.on("error", (error) => reject(new BrokenConnection(error)));
    sent.end(asked.body);
  });
}

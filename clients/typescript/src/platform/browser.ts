/** Provides clocks, sockets and HTTP in browsers. */
import { Invalid } from "../errors.js";
import { BrokenConnection, unbroken } from "./platform.js";
import type { HttpRequest, HttpResponse, Platform, Socket, SocketListener } from "./platform.js";

export const browserPlatform: Platform = {
  clocks: {
    awakeUs: () => Math.floor((performance.timeOrigin + performance.now()) * 1_000),
    wallUs: () => Date.now() * 1_000,
  },
  canSetHeaders: false,
  openSocket,
  request,
  clientName: () => `browser@${globalThis.location?.host || "unnamed"}`,
  environment: () => undefined,
  readFile: (path) => {
    throw new Invalid("INVALID_FIELD", `${path}: a browser reads no files`);
  },
};

function openSocket(url: string, _headers: object, _tls: undefined | object, listener: SocketListener): Socket {
  const socket = new WebSocket(url);
  let over = false;
  const end = (message: string): void => {
    if (over) return;
    over = true;
    listener.closed({ message });
  };
  socket.onopen = () => listener.opened();
  socket.onmessage = (event) => {
    if (!over && typeof event.data === "string") listener.received(event.data);
  };
  socket.onerror = () => end("failed");
  socket.onclose = (event) => end(event.reason || `closed with ${event.code}`);
  return {
    send: (text) => socket.send(text),
    terminate: () => {
      end("closed");
      socket.close();
    },
    get bufferedBytes() {
      return socket.bufferedAmount;
    },
  };
}

async function request(asked: HttpRequest): Promise<HttpResponse> {
  const asking = fetch(asked.url, {
    method: asked.method,
    headers: { ...asked.headers, ...(asked.body === undefined ? {} : { "content-type": "application/json" }) },
    ...(asked.body === undefined ? {} : { body: asked.body }),
    signal: asked.signal,
  });
  const response = await asking.catch((error: unknown) => {
    throw new BrokenConnection(error);
  });
  const retryAfter = response.headers.get("retry-after") ?? undefined;
  return { status: response.status, retryAfter, body: unbroken(text(response.body)) };
}

async function* text(body: ReadableStream<Uint8Array> | null): AsyncGenerator<string> {
  if (body === null) return;
  const reader = body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

#!/usr/bin/env node
// Plays this client for the conformance runner: JSON lines on stdin and stdout, as clients/driver.md has them.
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Worker } from "node:worker_threads";
import {
  Client,
  Closed,
  FenceFailed,
  Invalid,
  Lost,
  Refused,
  Timeout,
  Unavailable,
  Unknown,
} from "./dist/esm/index.js";
import { plant } from "./plants.mjs";

if (process.env.TENURE_PLANT) plant(process.env.TENURE_PLANT);

const { version } = JSON.parse(readFileSync(new URL("./package.json", import.meta.url), "utf8"));

const clients = new Map();
/** The guards by name, and of each the handle that made it. */
const guards = new Map();
const handles = new WeakMap();
const leases = new Map();
const leaders = new Map();
/** What cancels each command that is under way. */
const running = new Map();
/** Who waits for the loss of a guard, and has to be told of its release. */
const awaiting = new Map();

const atUs = () => Number(process.hrtime.bigint() / 1000n);
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const found = (map, name, what) => {
  const it = map.get(name);
  if (it === undefined) throw new Invalid("INVALID_FIELD", `no ${what} ${name}`);
  return it;
};
const client = (line) => found(clients, line.handle, "handle");
const guard = (line) => found(guards, line.guard, "guard");
const defined = (object) => Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));

const commands = {
  hello: () => ({ language: "typescript", version, features: ["plant"] }),

  async open(line) {
    const options = defined({
      addresses: line.addrs,
      name: line.name,
      apiKey: line.api_key,
      ca: line.ca_file,
      timeout: line.timeout_ms,
    });
    clients.set(line.handle, await Client.connect(options));
  },

  // Releases everything of the client, whose work has stopped, and closes it.
  async close(line) {
    for (const [name, held] of guards) {
      if (handles.get(held) !== line.handle) continue;
      guards.delete(name);
      held.release().catch(() => undefined);
    }
    try {
      await client(line).close(defined({ deadline: line.deadline_ms }));
    } finally {
      // The streams of the client tell their end first.
      await new Promise((resolve) => setImmediate(resolve));
    }
  },

  async lock(line, signal) {
    const raised = [];
    const options = { ...lockOptions(line, signal), ...(line.fence === undefined ? {} : { fence: fence(line.fence, raised) }) };
    const lease = line.lease === undefined ? client(line) : found(leases, line.lease, "lease");
    const ask = () => {
      if (line.pool !== undefined) return lease.pool(line.pool, options);
      return line.any ? lease.lockAny(line.locks, options) : lease.lock(line.locks ?? line.lock, options);
    };
    const held = await ask();
    keep(line.guard, held, line.handle);
    return {
      lock: held.name,
      token: String(held.token),
      tokens: Object.fromEntries(held.locks.map((it) => [it.name, String(it.token)])),
      ...defined({ slot: held.slot, raised: raised[0] }),
      ...(held.slot === undefined
        ? {}
        : { taken: Object.fromEntries(held.locks.map((it) => [it.slot, String(it.token)])) }),
      lease: held.lease,
    };
  },

  cancel(line) {
    running.get(line.of)?.abort();
  },

  check(line) {
    const held = guard(line);
    held.check();
    return { state: held.standing };
  },

  async await_lost(line, signal) {
    const held = guard(line);
    const released = new Promise((resolve) => {
      awaiting.set(line.guard, [...(awaiting.get(line.guard) ?? []), () => resolve({ cause: "released" })]);
    });
    const lost = await Promise.race([held.lost(), released, aborted(signal)]);
    return defined({ cause: lost.cause, by: lost.by, reason: lost.reason });
  },

  async work(line, signal) {
    const held = guard(line);
    await held.run(() => body(held.signal, line, signal));
    return { finished: true };
  },

  async run(line, signal) {
    await client(line).run(line.lock, lockOptions(line, signal), (held) => body(held.signal, line, signal));
    return { finished: true };
  },

  reenter(line) {
    const again = guard(line).reenter();
    keep(line.as, again, handles.get(guard(line)));
    return { token: String(again.token) };
  },

  async release(line) {
    await guard(line).release();
    for (const tell of awaiting.get(line.guard) ?? []) tell();
  },

  async upgrade(line, signal) {
    const held = guard(line);
    await held.upgrade(defined({ wait: line.wait_ms, signal }));
    return { token: String(held.token) };
  },

  async downgrade(line) {
    const held = guard(line);
    await held.downgrade();
    return { token: String(held.token) };
  },

  async hand_on(line) {
    return { token: String(await guard(line).handOn(line.to)) };
  },

  async progress(line) {
    return defined({ left_ms: await guard(line).progress(line.number) });
  },

  async lease_grant(line) {
    const lease = await client(line).lease({ ttl: line.ttl_ms });
    leases.set(line.lease, lease);
    return { lease: lease.id };
  },

  async lease_release(line) {
    await found(leases, line.lease, "lease").release();
  },

  async cycles(line) {
    const lease = await client(line).lease({ ttl: "15s" });
    const end = performance.now() + line.ms;
    let count = 0;
    const work = async (name) => {
      for (; performance.now() < end; count += 1) await (await lease.lock(name)).release();
    };
    await Promise.all(Array.from({ length: line.workers }, (_, at) => work(`cycles/${at}`)));
    await lease.release();
    return { cycles: count };
  },

  async collect() {
    setFlagsFromString("--expose-gc");
    runInNewContext("gc")();
  },

  async campaign(line, signal) {
    const options = defined({ wait: line.wait_ms, ttl: line.ttl_ms, signal });
    const lead = await client(line).election(line.election).campaign(line.value, options);
    leaders.set(line.leader, lead);
    keep(line.leader, lead.guard, line.handle);
    return { token: String(lead.token) };
  },

  async proclaim(line) {
    await found(leaders, line.leader, "leader").proclaim(line.value);
  },

  async resign(line) {
    await found(leaders, line.leader, "leader").resign();
  },

  observe(line) {
    const seen = client(line).election(line.election).observe();
    const tell = (leader) => [{ event: "leader", value: leader === null ? null : leader.text }];
    void follow(line.stream, seen, tell);
  },

  async put(line) {
    const key = client(line).key(line.key);
    const options = defined({
      ifAbsent: line.expect_absent,
      guard: line.guard === undefined ? undefined : guard(line),
      lease: line.lease === undefined ? undefined : found(leases, line.lease, "lease"),
    });
    if (line.expect_version !== undefined) {
      const now = await key.get();
      if (now?.version !== line.expect_version) throw new Refused("COMPARE_FAILED", "the key has another version");
      options.ifModified = now.modified;
    }
    return { version: (await key.put(line.value, options)).version };
  },

  async get(line) {
    const it = await client(line).key(line.key).get();
    return it === null ? {} : { version: it.version, value: it.text };
  },

  async delete(line) {
    const options = line.guard === undefined ? {} : { guard: guard(line) };
    return { existed: await client(line).key(line.key).delete(options) };
  },

  async watch(line) {
    const options = defined({
      prefix: line.prefix,
      from: line.from_revision === undefined ? undefined : BigInt(line.from_revision),
    });
    const watch = client(line).watch(line.key ?? line.lock, options);
    const text = (bytes) => (bytes === undefined ? undefined : new TextDecoder().decode(bytes));
    const change = (revision, it) =>
      defined({
        event: "change",
        revision: String(revision),
        cause: it.cause,
        name: it.key ?? it.lock,
        value: text(it.value),
        token: it.token === undefined ? undefined : String(it.token),
      });
    const changes = (batch) => batch.events.map((it) => change(batch.revision, it));
    try {
      await watch.started();
    } catch (error) {
      if (!isCompacted(error)) throw error;
      setImmediate(() => tellEnd(line.stream, error));
      return;
    }
    void follow(line.stream, watch, changes);
  },

  async show(line) {
    return shown(await client(line).show(line.lock));
  },

  async explain(line) {
    const it = await client(line).explain(line.lock);
    const [first] = it.ahead;
    return defined({
      ...shown(it.lock ?? null),
      ahead: it.ahead.length,
      first: first && { client: first.client, lease: first.lease, priority: first.priority ?? 0 },
      drained: it.drained?.reason,
    });
  },

  async locks(line) {
    const names = (await client(line).locks(line.prefix)).map((it) => it.lock);
    return defined({ count: names.length, first: names[0], last: names.at(-1) });
  },

  async history(line) {
    const { batches } = await client(line).history(line.lock, defined({ prefix: line.prefix, lost: line.lost }));
    // Whether a request has to queue depends on when the release before it arrives.
    const events = batches.flatMap((it) => it.events).filter((it) => it.cause !== "queued");
    const last = events.at(-1);
    return defined({
      causes: events.map((it) => it.cause).join(","),
      last: last && defined({ name: last.lock, client: last.client, by: last.by, reason: last.reason, token: last.token?.toString() }),
    });
  },

  async revoke(line) {
    const { reason, by, now } = line;
    await client(line).revoke(line.target, defined({ reason, by, now }));
  },

  async force(line) {
    const { reason, by, now } = line;
    await client(line).force(line.lock, defined({ token: BigInt(line.token), reason, by, now }));
  },

  async resize(line) {
    await client(line).resize(line.lock, line.slots ?? null);
  },

  async drain(line) {
    await client(line).drain(line.prefix, line.reason);
  },

  async undrain(line) {
    return { existed: await client(line).undrain(line.prefix) };
  },

  async drains(line) {
    const it = (await client(line).drains()).find((drain) => drain.prefix === line.prefix);
    return it === undefined ? {} : defined({ reason: it.reason, by: it.by, holders: it.holders });
  },
};

/** A fence that accepts the token, refuses it, or waits until the client no longer does. */
function fence(does, raised) {
  return async (lock, signal) => {
    if (does === "refuses") throw new Error("a larger token was seen");
    if (does === "waits") {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      throw new Error("the connection was closed");
    }
    raised.push(String(lock.token));
  };
}

function keep(name, held, handle) {
  guards.set(name, held);
  handles.set(held, handle);
}

function lockOptions(line, signal) {
  return defined({
    wait: line.wait_ms,
    timeout: line.limit_ms,
    ttl: line.lease === undefined ? line.ttl_ms : undefined,
    shared: line.mode === "shared" ? true : undefined,
    slots: line.slots,
    metadata: line.metadata,
    maxHold: line.max_hold_ms,
    lockDelay: line.lock_delay_ms,
    take: line.take,
    priority: line.priority,
    supersede: line.supersede,
    minHold: line.min_hold_ms,
    progressWithin: line.progress_within_ms,
    signal,
  });
}

function shown(lock) {
  const holder = lock?.holders[0];
  return {
    ...(holder === undefined ? {} : { holder: { client: holder.client, token: holder.token } }),
    waiting: lock?.waiting ?? 0,
  };
}

/** Work that takes a while and stops when it is told to, after lingering: on this thread, or on one of its own. */
async function body(stop, { ms, mode, linger_ms: linger }, cancelled) {
  if (mode === "thread") await threadBody(stop, ms);
  else await asyncBody(stop, ms, cancelled);
  if (stop.aborted && linger > 0) await new Promise((resolve) => setTimeout(resolve, linger));
}

async function asyncBody(stop, ms, cancelled) {
  await new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(end, ms);
    if (stop.aborted) return end();
    stop.addEventListener("abort", end);
    cancelled.addEventListener("abort", end);
  });
  cancelled.throwIfAborted();
}

function threadBody(stop, ms) {
  const flag = new Int32Array(new SharedArrayBuffer(4));
  const code = "const { flag, ms } = require('node:worker_threads').workerData; Atomics.wait(flag, 0, 0, ms);";
  const worker = new Worker(code, { eval: true, workerData: { flag, ms } });
  const tell = () => {
    Atomics.store(flag, 0, 1);
    Atomics.notify(flag, 0);
  };
  if (stop.aborted) tell();
  stop.addEventListener("abort", tell);
  return new Promise((resolve, reject) => {
    worker.on("error", reject);
    worker.on("exit", resolve);
  });
}

/** Tells of everything that a stream brings, until it ends. */
async function follow(stream, iterator, lines) {
  for (;;) {
    try {
      for await (const it of iterator) {
        for (const line of lines(it)) say({ ...line, stream, at_us: atUs() });
      }
    } catch (error) {
      if (error instanceof Unavailable) continue;
      // The names of streams are used again: one that ends because its client was closed says nothing.
      if (error instanceof Closed) return;
      return tellEnd(stream, error);
    }
    return tellEnd(stream);
  }
}

const isCompacted = (error) => error instanceof Refused && error.reason === "COMPACTED";

function tellEnd(stream, error) {
  if (isCompacted(error)) say({ event: "compacted", stream, oldest: String(error.revision), at_us: atUs() });
  say({ event: "ended", stream, at_us: atUs() });
}

function aborted(signal) {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

function errorLine(error) {
  const base = { effect: error.effect, message: error.message };
  if (error instanceof Lost) {
    return defined({ kind: "lost", ...base, cause: error.cause, by: error.by, reason: error.reason });
  }
  if (error instanceof Invalid || error instanceof RangeError) {
    return defined({ kind: "invalid", effect: "none", message: error.message, reason: error.reason });
  }
  const kinds = [
    [Refused, "refused"],
    [Unavailable, "unavailable"],
    [Unknown, "unknown"],
    [Timeout, "timeout"],
    [FenceFailed, "fence"],
    [Closed, "closed"],
  ];
  const kind = kinds.find(([type]) => error instanceof type)?.[1];
  if (kind !== undefined) return defined({ kind, ...base, reason: error.reason });
  if (error?.name === "AbortError") return { kind: "cancelled", message: error.message };
  throw error;
}

async function play(line) {
  const ending = new AbortController();
  running.set(line.id, ending);
  try {
    const command = commands[line.do];
    if (command === undefined) {
      return say({ id: line.id, error: { kind: "unsupported", message: `no command ${line.do}` }, at_us: atUs() });
    }
    const ok = await command(line, ending.signal);
    say({ id: line.id, ok: ok ?? {}, at_us: atUs() });
  } catch (error) {
    const at = atUs();
    say({ id: line.id, error: errorLine(error), at_us: at });
  } finally {
    running.delete(line.id);
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (text) => {
  if (text.trim() === "") return;
  const line = JSON.parse(text);
  if (line.do === "exit") {
    process.stdout.write(`${JSON.stringify({ id: line.id, ok: {}, at_us: atUs() })}\n`, () => process.exit(0));
    return;
  }
  void play(line);
});
lines.on("close", () => process.exit(0));

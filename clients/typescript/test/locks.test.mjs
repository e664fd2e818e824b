// Tests locks against a real server: grants, queues, limits, losses and what the caller is told.
import test, { after, before } from "node:test";
import assert from "node:assert/strict";
import { Client, Closed, Guard, Invalid, Lost, Refused, StillHeld, Timeout, Unavailable } from "../dist/esm/index.js";
import { block, sleep, startProxy, startServer } from "./server.mjs";

let server;
let client;
before(async () => {
  server = await startServer();
  client = await Client.connect({ addresses: server.address, name: "tests" });
});
after(async () => {
  try {
    await client.close();
  } finally {
    await server.stop();
  }
});

const refusedWith = (reason) => (error) => error instanceof Refused && error.reason === reason && error.effect === "none";
const lostBy = (cause) => (error) => error instanceof Lost && error.cause === cause;

test("a lock is held by one client, and tokens grow", async () => {
  const first = await client.lock("one");
  assert.equal(typeof first.token, "bigint");
  assert.equal(first.standing, "valid");
  assert.equal(await client.tryLock("one"), null);
  await first.release();
  const second = await client.lock("one");
  assert.ok(second.token > first.token);
  await second.release();
  await second.release();
  assert.throws(() => second.check(), lostBy("released"));
});

test("run returns the result of the work, lets its error through, and releases both times", async () => {
  assert.equal(await client.run("run", async (guard) => (guard.check(), 7)), 7);
  const failed = client.run("run", { wait: "1s" }, () => {
    throw new RangeError("mine");
  });
  await assert.rejects(failed, (error) => error instanceof RangeError && error.message === "mine");
  const free = await client.tryLock("run");
  assert.ok(free instanceof Guard);
  await free.release();
});

test("a wait ends with WAIT_TIMEOUT, a try with HELD, the caller's timeout with Timeout", async () => {
  const guard = await client.lock("limits");
  await assert.rejects(client.lock("limits", { wait: 100 }), refusedWith("WAIT_TIMEOUT"));
  const held = await client.lock("limits", { wait: 0 }).catch((error) => error);
  assert.ok(refusedWith("HELD")(held) && held.retryable && held.holder.client === "tests");
  const timeout = await client.lock("limits", { timeout: 100 }).catch((error) => error);
  assert.ok(timeout instanceof Timeout && timeout.effect === "none", String(timeout));
  await guard.release();
});

test("an aborted signal leaves the queue and rejects with its reason", async () => {
  const guard = await client.lock("abort");
  const stop = new AbortController();
  const waiting = client.lock("abort", { signal: stop.signal, onQueued: () => stop.abort(new Error("no longer")) });
  await assert.rejects(waiting, /no longer/);
  for (let tries = 0; (await client.show("abort")).waiting > 0; tries += 1) {
    assert.ok(tries < 100, "the place in the queue is given up");
    await sleep(20);
  }
  await assert.rejects(client.lock("abort", { signal: AbortSignal.abort(new Error("before")) }), /before/);
  await guard.release();
});

test("a waiter is granted the lock when its holder releases it, in order", async () => {
  const guard = await client.lock("queue");
  const order = [];
  const wait = async (name) => {
    const next = await client.lock("queue");
    order.push(name);
    await next.release();
  };
  const first = wait("first");
  while ((await client.show("queue")).waiting < 1) await sleep(10);
  const second = wait("second");
  while ((await client.show("queue")).waiting < 2) await sleep(10);
  await guard.release();
  await Promise.all([first, second]);
  assert.deepEqual(order, ["first", "second"]);
});

test("a forced lock is lost with who and why, and goes on once the work has stopped", async () => {
  let ended = false;
  let told;
  const work = client.run("forced", { ttl: "30s" }, async (guard) => {
    await client.force("forced", { token: guard.token, reason: "stuck", by: "ops" });
    await guard.lost();
    told = guard.signal.reason;
    await sleep(200);
    ended = true;
    return "too late";
  });
  const next = (async () => {
    while ((await client.show("forced"))?.holders[0]?.state !== "cooling") await sleep(10);
    const guard = await client.lock("forced", { wait: "20s" });
    assert.ok(ended, "the next holder waits until the work has stopped");
    await guard.release();
  })();
  const error = await work.catch((it) => it);
  assert.ok(lostBy("forced")(error) && error.by === "ops" && error.reason === "stuck", String(error));
  assert.deepEqual(error.work, { output: "too late" });
  assert.ok(lostBy("forced")(told));
  await next;
});

test("several locks are all or none, slots are counted, shared holders share", async () => {
  const both = await client.lock(["b", "a"]);
  assert.deepEqual(both.locks.map((it) => it.name), ["a", "b"]);
  assert.equal(await client.tryLock(["a", "c"]), null);
  assert.equal(await client.show("c"), null);
  await both.release();
  const slots = await Promise.all([0, 1].map(() => client.lock("pool", { slots: 2 })));
  assert.deepEqual(slots.map((it) => it.slot).sort(), [0, 1]);
  assert.equal(await client.tryLock("pool", { slots: 2 }), null);
  const readers = await Promise.all([0, 1].map(() => client.lock("cache", { shared: true })));
  assert.equal(await client.tryLock("cache"), null);
  for (const guard of [...slots, ...readers]) await guard.release();
});

test("a guard can be re-entered, updated and downgraded", async () => {
  const guard = await client.lock("again", { metadata: "one" });
  const inner = guard.reenter();
  await guard.release();
  inner.check();
  assert.equal(await client.tryLock("again"), null);
  await inner.update("two");
  assert.equal((await client.show("again")).holders[0].metadata, "two");
  const before = inner.token;
  await inner.downgrade();
  assert.ok(inner.token > before);
  await (await client.lock("again", { shared: true, wait: "1s" })).release();
  await inner.release();
});

test("locks of a lease are lost together, and a second request for one waits in the process", async () => {
  const lease = await client.lease({ ttl: "30s" });
  const [a, b] = [await lease.lock("la"), await lease.lock("lb")];
  assert.equal(a.lease, b.lease);
  assert.equal(await lease.tryLock("la"), null);
  const again = lease.lock("la");
  await assert.rejects(lease.release(), (error) => error instanceof Invalid && error.reason === "LEASE_IN_USE");
  await a.release();
  await (await again).release();
  await b.release();
  await lease.release();
  assert.throws(() => lease.check(), lostBy("released"));
});

test("bad input is refused before anything is sent", async () => {
  const invalid = (reason) => (error) => error instanceof Invalid && error.reason === reason && error.effect === "none";
  await assert.rejects(client.lock(""), invalid("INVALID_NAME"));
  await assert.rejects(client.lock("x".repeat(513)), invalid("INVALID_NAME"));
  await assert.rejects(client.lock("a\nb"), invalid("INVALID_NAME"));
  await assert.rejects(client.lock("a", { ttl: "10ms" }), invalid("INVALID_TTL"));
  await assert.rejects(client.lock("a", { ttl: "15s", grace: "9s" }), invalid("INVALID_GRACE"));
  await assert.rejects(client.lock("a", { ttl: "soon" }), invalid("INVALID_FIELD"));
  await assert.rejects(client.lock(["a", "a"]), invalid("DUPLICATE_LOCK"));
  await assert.rejects(Client.connect({ addresses: "10.0.0.1" }), invalid("INVALID_FIELD"));
  const key = `tenure_${"0".repeat(16)}_${"a".repeat(64)}`;
  await assert.rejects(Client.connect({ addresses: "10.0.0.1:7450", apiKey: key }), /in plain text/);
  await assert.rejects(Client.connect({ apiKey: "secret" }), (error) => !error.message.includes("secret"));
});

test("a blocked event loop loses the lock, check() says so before any timer runs, and the result is no success", async () => {
  const started = client.run("blocked", { ttl: "4s" }, (guard) => {
    const { signal } = guard;
    block(2_200);
    assert.equal(signal.aborted, true, "the signal compares the clock, too");
    assert.throws(() => guard.check(), lostBy("local_stall"));
    return "computed late";
  });
  const error = await started.catch((it) => it);
  assert.ok(lostBy("local_stall")(error), String(error));
  assert.deepEqual(error.work, { output: "computed late" });
});

test("a guard is renewed beyond its ttl, and lost at half of it when the cluster is cut off", async () => {
  const proxy = await startProxy(server.address);
  const other = await Client.connect({ addresses: proxy.address, timeout: "1s" });
  const guard = await other.lock("cut", { ttl: "3s" });
  await sleep(4_000);
  guard.check();
  proxy.set("swallow");
  const began = performance.now();
  const lost = await guard.lost();
  assert.equal(lost.cause, "cluster_unreachable");
  assert.ok(performance.now() - began < 3_000, "at T/2 after the last acknowledged renewal, and surely before T");
  assert.ok(guard.signal.aborted);
  proxy.set("pass");
  await sleep(300);
  assert.throws(() => guard.check(), lostBy("cluster_unreachable"), "a loss is final");
  await assert.rejects(guard.release(), lostBy("cluster_unreachable"));
  await other.close();
  proxy.stop();
});

test("a write whose answer is lost is repeated under its id and takes effect once", async () => {
  const proxy = await startProxy(server.address);
  const other = await Client.connect({ addresses: proxy.address });
  proxy.set("lose_answer");
  const put = other.key("once").put("v");
  await sleep(100);
  proxy.set("pass");
  assert.equal((await put).version, 1);
  assert.equal((await client.key("once").get()).version, 1);
  await other.close();
  proxy.stop();
});

test("without a member, connect and try end with Unavailable and the addresses that were tried", async () => {
  const proxy = await startProxy(server.address);
  const other = await Client.connect({ addresses: proxy.address, timeout: "500ms" });
  proxy.set("cut");
  await sleep(50);
  await assert.rejects(other.tryLock("x"), (error) => error instanceof Unavailable && error.retryable);
  await assert.rejects(other.key("x").get(), (error) => error instanceof Unavailable);
  await other.close();
  const alone = Client.connect({ addresses: proxy.address, timeout: "300ms" });
  await assert.rejects(alone, (error) => error instanceof Unavailable && error.tried[0].address === proxy.address);
  proxy.stop();
});

test("closing ends waits, waits for guards, and refuses new requests", async () => {
  const other = await Client.connect({ addresses: server.address });
  const guard = await other.lock("closing");
  const waiting = other.lock("closing");
  waiting.catch(() => undefined);
  await sleep(50);
  await assert.rejects(other.close({ deadline: 100 }), (error) => error instanceof StillHeld && error.locks[0] === "closing");
  await assert.rejects(waiting, (error) => error instanceof Closed);
  await assert.rejects(other.lock("more"), (error) => error instanceof Closed);
  await guard.release();
  await other.close();
  assert.equal(await client.show("closing"), null);
});

test("many requests wait at once without a warning of the runtime", async () => {
  const warnings = [];
  const hear = (warning) => warnings.push(warning.message);
  process.on("warning", hear);
  const guard = await client.lock("many");
  const waiting = Array.from({ length: 30 }, async () => (await client.lock("many")).release());
  while ((await client.show("many")).waiting < 30) await sleep(10);
  await guard.release();
  await Promise.all(waiting);
  process.off("warning", hear);
  assert.deepEqual(warnings, []);
});

test("leaving a block releases the lock, and throws a loss that the block has not seen", async () => {
  const guard = await client.lock("using");
  await guard[Symbol.asyncDispose]();
  assert.equal(await client.show("using"), null);
  const lost = await client.lock("using", { ttl: "30s" });
  await client.force("using", { token: lost.token, reason: "test" });
  await lost.lost();
  await assert.rejects(lost[Symbol.asyncDispose](), lostBy("forced"));
  const seen = await client.lock("using", { ttl: "30s", wait: "5s" });
  await client.force("using", { token: seen.token, reason: "test" });
  await seen.lost();
  assert.throws(() => seen.check(), lostBy("forced"));
  await seen[Symbol.asyncDispose]();
});

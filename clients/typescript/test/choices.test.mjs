// Tests requests for any one of several locks and for any slot of a pool, against a real server.
import test, { after, before } from "node:test";
import assert from "node:assert/strict";
import { Client, Invalid, Refused } from "../dist/esm/index.js";
import { sleep, startServer } from "./server.mjs";

let server;
let client;
let other;
before(async () => {
  server = await startServer();
  client = await Client.connect({ addresses: server.address, name: "tests" });
  other = await Client.connect({ addresses: server.address, name: "other" });
});
after(async () => {
  try {
    await Promise.all([client.close(), other.close()]);
  } finally {
    await server.stop();
  }
});

const refusedWith = (reason) => (error) => error instanceof Refused && error.reason === reason && error.effect === "none";
const invalidBy = (reason) => (error) => error instanceof Invalid && error.reason === reason;
const count = async (lock) => (await client.show(lock))?.waiting ?? 0;
const waiting = async (lock, wanted) => {
  while ((await count(lock)) !== wanted) await sleep(10);
};

test("any of several locks is granted, and the queues of the others are left", async () => {
  const first = await client.lockAny(["any/1", "any/0"]);
  const second = await client.lockAny(["any/1", "any/0"]);
  assert.deepEqual([first.name, second.name, first.locks.length], ["any/0", "any/1", 1]);
  await assert.rejects(other.lockAny(["any/0", "any/1"], { wait: 0 }), refusedWith("HELD"));
  const asking = other.lockAny(["any/0", "any/1"]);
  await waiting("any/0", 1);
  await waiting("any/1", 1);
  const [shown] = (await client.explain("any/0")).ahead;
  assert.deepEqual([shown.any, shown.locks], [true, ["any/0", "any/1"]]);
  const old = second.token;
  await second.release();
  const third = await asking;
  assert.equal(third.name, "any/1");
  assert.ok(third.token > old);
  assert.equal(await count("any/0"), 0);
  third.check();
  await Promise.all([third.release(), first.release()]);
});

test("under one lease, a second request waits for the first; a cancelled one leaves all queues", async () => {
  const lease = await client.lease();
  const first = await lease.lockAny(["x", "y"]);
  const plain = await lease.lock("y", { wait: 0 });
  await assert.rejects(lease.lockAny(["x", "y"], { wait: 0 }), refusedWith("HELD"));
  const asking = lease.lockAny(["x", "y"]);
  const old = first.token;
  await Promise.all([first.release(), plain.release()]);
  const second = await asking;
  assert.equal(second.name, "x");
  assert.ok(second.token > old);
  await second.release();

  const held = await other.lock(["x", "y"]);
  for (const source of [client, lease]) {
    const stop = new AbortController();
    const cancelled = source.lockAny(["x", "y"], { signal: stop.signal });
    await waiting("y", 1);
    stop.abort();
    await assert.rejects(cancelled, (error) => error === stop.signal.reason);
    await Promise.all([waiting("x", 0), waiting("y", 0)]);
  }
  await held.release();
  const later = await lease.lockAny(["x", "y"], { wait: "5s" });
  assert.equal(later.name, "x");
  await later.release();
  await lease.release();
});

test("any slot of a pool is granted, also one that is added", async () => {
  await assert.rejects(client.pool("gpu/"), refusedWith("POOL_EMPTY"));
  await client.resize("gpu/0", 1);
  const first = await client.pool("gpu/");
  assert.deepEqual([first.name, first.slot], ["gpu/0", 0]);
  await assert.rejects(other.pool("gpu/", { wait: 0 }), refusedWith("HELD"));
  await assert.rejects(
    other.pool("gpu/", { wait: 50 }),
    (error) => refusedWith("WAIT_TIMEOUT")(error) && error.message.includes("pool `gpu/`"),
  );
  const asking = other.pool("gpu/");
  await waiting("gpu/0", 1);
  assert.equal((await client.explain("gpu/0")).ahead[0].pool, "gpu/");
  await client.resize("gpu/1", 2);
  const second = await asking;
  assert.equal(second.name, "gpu/1");
  await second.release();
  const both = await other.pool("gpu/", { take: 2 });
  assert.deepEqual(both.locks.map((it) => it.name), ["gpu/1", "gpu/1"]);
  const last = assert.rejects(other.pool("gpu/"), refusedWith("POOL_EMPTY"));
  await waiting("gpu/0", 1);
  await client.resize("gpu/0", null);
  await client.resize("gpu/1", null);
  await last;
  await Promise.all([first.release(), both.release()]);
});

test("bad requests for a pool or for any lock are refused before anything is sent", async () => {
  await assert.rejects(client.pool("gpu/", { shared: true }), invalidBy("INVALID_FIELD"));
  await assert.rejects(client.pool("gpu/", { slots: 2 }), invalidBy("INVALID_FIELD"));
  await assert.rejects(client.pool("gpu/", { take: 0 }), invalidBy("INVALID_FIELD"));
  await assert.rejects(client.pool(""), invalidBy("INVALID_NAME"));
  await assert.rejects(client.lockAny([]), invalidBy("INVALID_FIELD"));
  await assert.rejects(client.lockAny(["x", "x"]), invalidBy("DUPLICATE_LOCK"));
});

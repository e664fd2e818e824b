// Tests the options of a lock request and what can become of a hold, against a real server.
import test, { after, before } from "node:test";
import assert from "node:assert/strict";
import { Client, Invalid, Lost, Refused } from "../dist/esm/index.js";
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
const lostBy = (cause) => (error) => error instanceof Lost && error.cause === cause;
const waiting = async (lock, count) => {
  while (((await client.show(lock))?.waiting ?? 0) !== count) await sleep(10);
};

test("several slots have a token each, also under a lease", async () => {
  const three = await client.lock("gpus", { slots: 4, take: 3 });
  assert.deepEqual(three.locks.map((it) => it.slot), [0, 1, 2]);
  assert.equal(new Set(three.locks.map((it) => it.token)).size, 3);
  assert.equal(await other.tryLock("gpus", { slots: 4, take: 2 }), null);
  await three.release();
  const lease = await other.lease();
  for (let round = 0; round < 2; round += 1) {
    const all = await lease.lock("gpus", { slots: 4, take: 4 });
    assert.equal(all.locks.length, 4);
    await all.release();
  }
  await lease.release();
});

test("a more urgent request passes, and a newer one of a group replaces the older", async () => {
  const held = await client.lock("urgent");
  const order = [];
  const take = async (who, options) => {
    const guard = await other.lock("urgent", options);
    order.push(who);
    await guard.release();
  };
  const plain = take("plain", {});
  await waiting("urgent", 1);
  const old = take("old", { priority: 5, supersede: "main" });
  old.catch(() => undefined);
  await waiting("urgent", 2);
  const newer = take("newer", { priority: 5, supersede: "main" });
  const superseded = await old.catch((error) => error);
  assert.ok(refusedWith("SUPERSEDED")(superseded) && superseded.message.includes("of other"), String(superseded));
  await held.release();
  await Promise.all([plain, newer]);
  assert.deepEqual(order, ["newer", "plain"]);
});

test("a lock is withheld for its least time", async () => {
  const began = performance.now();
  await (await client.lock("period", { minHold: 500 })).release();
  assert.equal(await client.tryLock("period"), null);
  await (await client.lock("period")).release();
  assert.ok(performance.now() - began > 400);
});

test("bad options are refused before anything is sent", async () => {
  const cases = [
    ["INVALID_FIELD", { take: 2 }],
    ["INVALID_FIELD", { slots: 4, take: 0 }],
    ["INVALID_FIELD", { priority: 10 }],
    ["INVALID_NAME", { supersede: "" }],
    ["INVALID_FIELD", { minHold: -1 }],
    ["INVALID_FIELD", { progressWithin: "soon" }],
  ];
  for (const [reason, options] of cases) await assert.rejects(client.lock("bad", options), invalidBy(reason));
});

test("a reader becomes the writer and a reader again", async () => {
  const guard = await client.lock("index", { shared: true });
  const reader = await other.lock("index", { shared: true });
  const { token } = guard;
  await assert.rejects(guard.upgrade({ wait: 0 }), refusedWith("HELD"));
  await assert.rejects(guard.upgrade({ wait: 100 }), refusedWith("WAIT_TIMEOUT"));
  // An aborted upgrade leaves the queue, and the hold stays as it was.
  const stop = new AbortController();
  const aborted = guard.upgrade({ signal: stop.signal });
  aborted.catch(() => undefined);
  await waiting("index", 1);
  stop.abort();
  await assert.rejects(aborted, (error) => error.name === "AbortError");
  assert.equal((await client.show("index")).waiting, 0);
  guard.check();
  assert.equal(guard.token, token);
  const upgrading = guard.upgrade();
  await waiting("index", 1);
  await assert.rejects(reader.upgrade(), refusedWith("DEADLOCK"));
  await reader.release();
  await upgrading;
  assert.ok(guard.token > token);
  guard.check();
  assert.equal(await other.tryLock("index", { shared: true }), null);
  await guard.downgrade();
  await (await other.lock("index", { shared: true })).release();
  await guard.release();
});

test("a hold is given to a lease that waits", async () => {
  const lease = await other.lease();
  const guard = await client.lock("deploy");
  await assert.rejects(guard.handOn(lease), refusedWith("NOT_WAITING"));
  guard.check();
  const receiving = lease.lock("deploy");
  await waiting("deploy", 1);
  const token = await guard.handOn(lease.id);
  const received = await receiving;
  assert.equal(received.token, token);
  assert.throws(() => guard.check(), lostBy("released"));
  await guard.release();
  await received.release();
  await lease.release();
  const both = await client.lock(["a", "b"], { shared: true });
  await assert.rejects(both.upgrade(), invalidBy("SEVERAL_LOCKS"));
  await assert.rejects(both.handOn("1"), invalidBy("SEVERAL_LOCKS"));
  await both.release();
  const again = await client.lock("a", { shared: true });
  const reentered = again.reenter();
  await assert.rejects(again.upgrade(), invalidBy("GUARD_SHARED"));
  await reentered.release();
  await assert.rejects(again.handOn("nobody"), invalidBy("INVALID_FIELD"));
  await again.release();
});

test("a holder without progress loses the lock", async () => {
  const guard = await client.lock("copy", { ttl: "2s", progressWithin: "3s" });
  assert.ok((await guard.progress(1)) > 0);
  assert.equal((await guard.lost()).cause, "no_progress");
  await assert.rejects(guard.release(), lostBy("no_progress"));
  const plain = await client.lock("no promise");
  assert.equal(await plain.progress(1n), undefined);
  await assert.rejects(plain.progress(-1), invalidBy("INVALID_FIELD"));
  await plain.release();
});

test("a semaphore is resized while it is used", async () => {
  const one = await client.lock("runners", { slots: 1 });
  await client.resize("runners", 2);
  const two = await other.lock("runners", { slots: 1 });
  const both = other.lock("runners", { slots: 1, take: 2 });
  both.catch(() => undefined);
  await waiting("runners", 1);
  await client.resize("runners", 1);
  await assert.rejects(both, refusedWith("INVALID_SLOTS"));
  await Promise.all([one.release(), two.release()]);
  await client.resize("runners", null);
  await assert.rejects(client.resize("runners", 0), invalidBy("INVALID_SLOTS"));
});

test("nothing is granted below a drained prefix", async () => {
  const guard = await client.lock("db/one");
  await other.drain("db/", "new disks", { by: "ana" });
  const [drain] = await other.drains();
  assert.deepEqual([drain.prefix, drain.by, drain.reason, drain.holders], ["db/", "ana", "new disks", 1]);
  await assert.rejects(client.lock("db/two", { wait: 0 }), refusedWith("DRAINING"));
  await guard.release();
  assert.equal(await other.undrain("db/"), true);
  assert.equal(await other.undrain("db/"), false);
});

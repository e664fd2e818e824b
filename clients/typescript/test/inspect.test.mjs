// Tests what operators and cautious programs read and end, against a real server.
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
const waiting = async (lock, count) => {
  while (((await client.show(lock))?.waiting ?? 0) !== count) await sleep(10);
};

test("an explanation names the waiters and their places, and the progress of the holder", async () => {
  assert.deepEqual((await client.explain("gpus")).ahead, []);
  const held = await client.lock("gpus", { slots: 4, take: 4, minHold: 1, maxHold: "1m", lockDelay: "1s", progressWithin: "1m" });
  const plain = other.lock("gpus", { slots: 4, take: 3, supersede: "main", wait: "1m" });
  await waiting("gpus", 1);
  const lease = await other.lease();
  const urgent = lease.lock("gpus", { slots: 4, priority: 3 });
  await waiting("gpus", 2);

  const explained = await client.explain("gpus");
  const [holder] = explained.lock.holders;
  assert.equal(explained.lock.slots, 4);
  assert.deepEqual([holder.max_hold_ms, holder.min_hold_ms, holder.lock_delay_ms], [60_000, 1, 1_000]);
  assert.deepEqual([holder.progress.number, holder.progress.within_ms], ["0", 60_000]);
  assert.ok(holder.progress.left_ms > 0 && holder.progress.still_ms >= 0 && holder.renewed_ms >= 0);
  const [first, second] = explained.ahead;
  assert.deepEqual([first.lease, first.priority, first.take, first.ahead], [lease.id, 3, undefined, 0]);
  assert.deepEqual([second.take, second.slots, second.supersede, second.ahead], [3, 4, "main", 1]);
  assert.deepEqual([second.client, second.behind, second.locks], ["other", first.place, ["gpus"]]);
  assert.ok(second.passable_ms > 0 && second.left_ms <= 60_000);
  assert.ok(explained.free_at_latest_ms > 0 && explained.own === undefined);
  assert.deepEqual(explained.chain, [{ lock: "gpus", client: "tests", lease: held.lease }]);
  const own = await client.explain("gpus", { lease: second.lease });
  assert.deepEqual([own.own.lease, own.ahead.map((it) => it.lease)], [second.lease, [first.lease]]);
  await assert.rejects(client.explain("gpus", { lease: "none" }), invalidBy("INVALID_FIELD"));
  await held.release();
  await (await urgent).release();
  await (await plain).release();
  await lease.release();
});

test("a hold goes to the waiter that an explanation names", async () => {
  const held = await client.lock("hand over");
  const next = other.lock("hand over");
  await waiting("hand over", 1);
  const token = await held.handOn((await client.explain("hand over")).ahead[0].lease);
  const guard = await next;
  assert.equal(guard.token, token);
  await guard.release();
});

test("an explanation shows the closed prefix, and for what the holder waits", async () => {
  const lease = await client.lease();
  const x = await lease.lock("db/x");
  const y = await other.lock("db/y");
  const waits = lease.lock("db/y");
  await waiting("db/y", 1);
  const { chain, free_if_silent_ms } = await other.explain("db/x");
  assert.deepEqual(chain.map((it) => [it.lock, it.client]), [["db/x", "tests"], ["db/y", "other"]]);
  assert.ok(free_if_silent_ms <= 15_000);
  await y.release();
  await (await waits).release();
  await client.drain("db/", "new disks");
  const { drained } = await other.explain("db/x");
  assert.deepEqual([drained.prefix, drained.by, drained.reason], ["db/", "tests", "new disks"]);
  await client.undrain("db/");
  await x.release();
  await lease.release();
});

test("the lease of another client is revoked, with and without letting it stop first", async () => {
  const held = await client.lock("revoked");
  await other.revoke(held.lease, { reason: "not needed" });
  const lost = await held.lost();
  assert.deepEqual([lost.cause, lost.by, lost.reason], ["revoked", "other", "not needed"]);
  // The holder has not said yet that its work has stopped.
  assert.equal(await other.tryLock("revoked"), null);
  await assert.rejects(held.release(), Lost);
  await (await other.lock("revoked", { wait: "10s" })).release();

  const again = await client.lock("revoked at once");
  await other.revoke(again.lease, { reason: "the machine is gone", by: "ana", now: true });
  const next = await other.tryLock("revoked at once");
  assert.ok(next !== null && next.token > again.token);
  assert.equal((await again.lost()).by, "ana");
  await assert.rejects(other.revoke(again.lease, { reason: "again" }), refusedWith("LEASE_NOT_FOUND"));
  await assert.rejects(other.revoke("x", { reason: "no lease" }), invalidBy("INVALID_FIELD"));
  await assert.rejects(again.release(), Lost);
  await next.release();
});

test("the history is searched by time, client and loss", async () => {
  const began = Date.now();
  await (await client.lock("past/x")).release();
  const held = await client.lock("past/x");
  await other.force("past/x", { token: held.token, reason: "stuck" });
  await held.lost();
  await assert.rejects(held.release(), Lost);
  await (await other.lock("past/x")).release();

  const history = async (options) => {
    const { batches } = await other.history("past/x", options);
    assert.ok(batches.every((it, at) => at === 0 || it.revision > batches[at - 1].revision));
    // Whether the last request has to queue depends on when the release before it arrives.
    return batches.flatMap((it) => it.events).filter((it) => it.cause !== "queued");
  };
  const causes = async (options) => (await history(options)).map((it) => it.cause);
  const whole = await causes();
  assert.equal(whole[0], "granted");
  const [forced, ...more] = await history({ lost: true });
  assert.deepEqual([forced.cause, forced.by, forced.reason, forced.token, more], ["forced", "other", "stuck", held.token, []]);
  assert.ok(Math.abs(forced.at - began) < 60_000);
  assert.deepEqual(await causes({ client: "oth" }), ["granted", "released"]);
  assert.deepEqual(await causes({ limit: 1 }), whole.slice(-1));
  assert.deepEqual(await causes({ since: new Date(began - 60_000), until: Date.now() + 60_000 }), whole);
  assert.deepEqual(await causes({ until: began - 60_000 }), []);
  const past = await other.history("past/", { prefix: true, lost: true });
  assert.equal(past.batches.length, 1);
  assert.deepEqual(past.missing, []);
  assert.ok(past.archiveBegins > 0n && past.archiveBeginsAt instanceof Date);
  await assert.rejects(other.history("past/x", { limit: 0 }), invalidBy("INVALID_FIELD"));
  await assert.rejects(other.history("past/x", { since: new Date("never") }), invalidBy("INVALID_FIELD"));
  await assert.rejects(other.history(""), invalidBy("INVALID_NAME"));
});

test("a watch tells the previous value where it is asked to", async () => {
  const text = (bytes) => new TextDecoder().decode(bytes);
  const key = client.key("watched");
  const watch = client.watch("watched", { previous: true });
  const plain = client.watch("watched");
  await Promise.all([watch.started(), plain.started()]);
  await key.put("v1");
  const { modified } = await key.get();
  await key.put(new Uint8Array([0xff, 0xfe]));
  await key.delete();
  const next = async (from) => (await from.next()).value.events[0];
  assert.equal((await next(watch)).previous, undefined);
  const second = (await next(watch)).previous;
  assert.deepEqual([text(second.value), second.modified], ["v1", modified]);
  assert.deepEqual([...(await next(watch)).previous.value], [0xff, 0xfe]);
  for (let at = 0; at < 3; at += 1) assert.equal((await next(plain)).previous, undefined);
  await Promise.all([watch.return(), plain.return()]);
});

test("the locks below a prefix are listed in the order of their names, page by page", async () => {
  const names = Array.from({ length: 1_200 }, (_, at) => `list/${String(at).padStart(4, "0")}`);
  // A lease holds at most 1,000 locks, and a page has at most as many.
  const leases = [await client.lease(), await client.lease()];
  const guards = await Promise.all(names.map((name, at) => leases[at % 2].lock(name)));
  const listed = await other.locks("list/");
  assert.deepEqual(listed.map((it) => it.lock), names);
  assert.equal(listed[0].holders[0].client, "tests");
  assert.deepEqual(await other.locks("list of nothing/"), []);
  assert.ok((await other.locks()).length >= names.length);
  const { revision } = await other.explain(names[0]);
  assert.ok(revision >= BigInt(listed.at(-1).created));
  await Promise.all(guards.map((guard) => guard.release()));
  await Promise.all(leases.map((lease) => lease.release()));
});

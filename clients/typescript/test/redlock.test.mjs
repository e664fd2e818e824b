// Tests the drop-in for `redlock`: programs written for its API run unchanged.
import test, { after, before } from "node:test";
import assert from "node:assert/strict";
import { Client, Lost, Refused } from "../dist/esm/index.js";
import Redlock, { ExecutionError, ResourceLockedError } from "../dist/esm/redlock.js";
import { sleep, startServer } from "./server.mjs";

let server;
let client;
let redlock;
before(async () => {
  server = await startServer();
  client = await Client.connect({ addresses: server.address });
  redlock = new Redlock([client], { retryCount: 2, retryDelay: 1_000, retryJitter: 0 });
});
after(async () => {
  await redlock.quit();
  await server.stop();
});

test("acquire, extend and release as in its README", async () => {
  let lock = await redlock.acquire(["a", "b"], 5_000);
  assert.deepEqual(lock.resources, ["a", "b"]);
  const until = lock.expiration;
  await sleep(5);
  lock = await lock.extend(10_000);
  assert.ok(lock.expiration > until);
  await lock.release();
  assert.equal(await client.show("a"), null);
  await assert.rejects(lock.extend(1_000), (error) => error instanceof ExecutionError);
});

test("a lock that is held is an ExecutionError after the retries, and an error event", async () => {
  const heard = [];
  redlock.on("error", (error) => heard.push(error));
  const lock = await redlock.acquire(["held"], 5_000);
  const error = await redlock.acquire(["held"], 5_000).catch((it) => it);
  assert.ok(error instanceof ExecutionError && error.cause instanceof Refused);
  assert.ok(heard[0] instanceof ResourceLockedError);
  const [attempt] = await Promise.all(error.attempts);
  assert.equal(attempt.votesAgainst.size, 1);
  await lock.release();
  redlock.removeAllListeners("error");
});

test("using runs longer than its duration, and ends in an error when the lock is lost", async () => {
  const done = await redlock.using(["using"], 1_000, async (signal) => {
    await sleep(1_500);
    if (signal.aborted) throw signal.error;
    return "done";
  });
  assert.equal(done, "done");
  const lost = redlock.using(["using"], 30_000, async (signal, { lock }) => {
    await client.force("using", { token: lock.guard.token, reason: "test" });
    await lock.guard.lost();
    assert.ok(signal.aborted && signal.error instanceof Lost);
    return "late";
  });
  await assert.rejects(lost, (error) => error instanceof ExecutionError && error.cause instanceof Lost);
  await (await redlock.acquire(["using"], 1_000)).release();
});

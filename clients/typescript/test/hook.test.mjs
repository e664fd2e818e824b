// Tests the fence that is raised before a guard is handed out, against a real server.
import test, { after, before } from "node:test";
import assert from "node:assert/strict";
import { Client, FenceFailed, Lost, Timeout } from "../dist/esm/index.js";
import { sleep, startServer } from "./server.mjs";

let server;
let client;
before(async () => {
  server = await startServer();
  client = await Client.connect({ addresses: server.address, name: "tests", timeout: "1s" });
});
after(async () => {
  try {
    await client.close();
  } finally {
    await server.stop();
  }
});

const isFree = async (name) => (await client.lock(name, { wait: "5s" })).release();

test("the fence is raised for each lock before the guard is handed out", async () => {
  const raised = [];
  const fence = async (lock) => {
    await sleep(10);
    raised.push([lock.name, lock.token]);
  };
  const guard = await client.lock(["x", "y"], { fence });
  assert.deepEqual(raised, guard.locks.map((it) => [it.name, it.token]));
  await guard.release();
  const lease = await client.lease();
  for (const acquire of [() => lease.lock("x", { fence }), () => client.lockAny(["x"], { fence, wait: 0 })]) {
    const held = await acquire();
    assert.deepEqual(raised.at(-1), ["x", held.token]);
    await held.release();
  }
  const lead = await client.election("x").campaign("v", { fence });
  assert.deepEqual(raised.at(-1), ["x", lead.token]);
  await lead.resign();
  await lease.release();
});

test("a fence that refuses gives the lock back", async () => {
  const why = new Error("a newer token was seen");
  for (const fence of [() => Promise.reject(why), () => { throw why; }]) {
    const failed = await client.lock("refused", { fence }).catch((error) => error);
    assert.ok(failed instanceof FenceFailed && failed.cause === why && failed.lock === "refused" && failed.effect === "none");
    await isFree("refused");
  }
});

test("a fence has the time of a request, and ends with the caller's signal, time and lock", async () => {
  const forever = (_, signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  await assert.rejects(client.lock("slow", { fence: forever }), (error) => error instanceof FenceFailed && /within 1.0s/.test(error.message));
  await isFree("slow");
  await assert.rejects(client.lock("slow", { fence: forever, timeout: 100 }), Timeout);
  const ending = new AbortController();
  const why = new Error("not needed");
  setTimeout(() => ending.abort(why), 50);
  await assert.rejects(client.lock("slow", { fence: forever, signal: ending.signal }), (error) => error === why);
  await isFree("slow");
  const fence = async (lock, signal) => {
    await client.force(lock.name, { token: lock.token, reason: "stuck" });
    await forever(lock, signal);
  };
  await assert.rejects(client.lock("slow", { fence }), (error) => error instanceof Lost && error.cause === "forced");
  await isFree("slow");
});

test("a fence that fails because the lock is lost, or after the time, is a loss and a timeout", async () => {
  const closed = new Error("the connection is closed");
  const ended = (signal) => new Promise((resolve) => signal.addEventListener("abort", resolve));
  const lose = async (lock, signal) => {
    await client.force(lock.name, { token: lock.token, reason: "stuck" });
    await ended(signal);
    throw closed;
  };
  await assert.rejects(client.lock("closed", { fence: lose }), (error) => error instanceof Lost && error.cause === "forced");
  await isFree("closed");
  const late = async (_, signal) => {
    await ended(signal);
    throw closed;
  };
  const timedOut = (error) => error instanceof Timeout && error.effect === "none";
  await assert.rejects(client.lock("closed", { fence: late, timeout: 100 }), timedOut);
  const deaf = () => new Promise(() => undefined);
  await assert.rejects(client.lock("closed", { fence: deaf, timeout: 100 }), timedOut);
  await isFree("closed");
});

// Tests searches of the past page by page, and queries that fail, against a server that answers what the test says.
import test, { after, before } from "node:test";
import assert from "node:assert/strict";
import { Client, Closed, Refused, StrangeAnswer, Unavailable } from "../dist/esm/index.js";
import { startFront } from "./front.mjs";
import { sleep, startServer } from "./server.mjs";

let server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

const answering = async (answers, work) => {
  const front = await startFront(server.address, "history", answers);
  const client = await Client.connect({ addresses: front.address, name: "tests", timeout: "1s" });
  try {
    await work(client, front);
  } finally {
    await client.close();
    front.stop();
  }
};

const page = (revisions, before, holes) => {
  const changes = revisions.map((revision) => ({ revision, events: [] }));
  const archive = holes && { begins: "3", begins_at: "2026-01-02T03:04:05Z", holes };
  return [200, JSON.stringify({ changes, before, archive })];
};
const last = page(["3"]);
const empty = page([]);
const fails = (answers, as) =>
  answering(answers, async (client, { asked }) => {
    const began = performance.now();
    await assert.rejects(client.history("past/x"), (error) => as(error, asked.length, performance.now() - began) ?? true);
  });

test("a history is read page by page", async () => {
  const [early, late] = [{ from: "4", next: "6" }, { from: "6", next: "7" }];
  const pages = [page(["9", "8"], "8", [early]), page(["7", "6"], "6", [early, late]), last];
  await answering(pages, async (client, { asked }) => {
    const past = await client.history("past/x", { limit: 6 });
    assert.deepEqual(past.batches.map((it) => it.revision), [3n, 6n, 7n, 8n, 9n]);
    assert.deepEqual(past.missing, [{ from: 4n, next: 6n }, { from: 6n, next: 7n }]);
    assert.deepEqual([past.archiveBegins, past.archiveBeginsAt.getUTCFullYear()], [3n, 2026]);
    const of = (name) => asked.map((it) => it.searchParams.get(name));
    assert.deepEqual([of("before"), of("limit")], [[null, "8", "6"], ["6", "4", "2"]]);
  });
});

test("a history that does not advance is refused", async () => {
  for (const next of ["8", "9", "10"]) {
    await fails([page(["8"], "8"), page(["8"], next), empty], (error) => assert.ok(error instanceof StrangeAnswer));
  }
});

test("an answer that is not understood is not asked for again", async () => {
  await fails([[200, "{"]], (error, asked) => assert.deepEqual([error.name, asked], ["StrangeAnswer", 1]));
  for (const answer of [[404, "<html>"], [500, '{"error":{}}']]) {
    await fails([answer], (error, asked) => assert.deepEqual([error.name, asked], ["StrangeAnswer", 1]));
  }
});

test("a query is asked again after the time that the answer names", async () => {
  const overloaded = JSON.stringify({ error: { reason: "OVERLOADED", message: "not now", effect: "none", retry_after_ms: 300 } });
  const front = await startFront(server.address, "history", [[503, overloaded], [502, "<html>", "retry-after: 1\r\n"], empty]);
  const client = await Client.connect({ addresses: front.address, name: "tests", timeout: "4s" });
  assert.deepEqual((await client.history("past/x")).batches, []);
  const [first, second, third] = front.askedAt;
  assert.ok(second - first >= 300 && third - second >= 1_000, String(front.askedAt));
  await client.close();
  front.stop();
});

test("a query that members refuse for now fails with their newest refusal", async () => {
  const refusal = (reason) => [503, JSON.stringify({ error: { reason, message: "not now", effect: "none" } })];
  await fails([refusal("NO_LEADER"), refusal("OVERLOADED"), refusal("NO_LEADER")], (error, asked, ms) => {
    assert.ok(error instanceof Refused && error.reason === "OVERLOADED" && asked > 2 && ms < 2_000, String(error));
  });
  await fails([refusal("NO_LEADER")], (error) => {
    assert.ok(error instanceof Unavailable && error.cause.reason === "NO_LEADER", String(error));
  });
});

test("a query whose connection breaks is asked again, and its error has the cause", async () => {
  await answering([undefined, empty], async (client, { asked }) => {
    assert.deepEqual((await client.history("past/x")).batches, []);
    assert.equal(asked.length, 2);
  });
  await fails([undefined], (error, asked) => {
    assert.ok(error instanceof Unavailable && error.cause.code === "ECONNRESET" && asked > 2, String(error));
  });
});

test("a query ends with the client", async () => {
  const front = await startFront(server.address, "history", ["silence"]);
  const client = await Client.connect({ addresses: front.address, name: "tests", timeout: "30s" });
  const ended = assert.rejects(client.history("past/x"), Closed);
  while (front.asked.length === 0) await sleep(10);
  const began = performance.now();
  await client.close();
  await ended;
  assert.ok(performance.now() - began < 10_000);
  front.stop();
});

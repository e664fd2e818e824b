// Tests that the span of the caller goes with its requests, and with no others.
import test, { after, before } from "node:test";
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { Client } from "../dist/esm/index.js";
import { startFront } from "./front.mjs";
import { sleep, startServer } from "./server.mjs";

const SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

let server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

const connected = async (traceparent, work) => {
  const front = await startFront(server.address, "no such path", []);
  const client = await Client.connect({ addresses: front.address, name: "tests", ttl: "2s", traceparent });
  try {
    await work(client, (command) => front.sent(command).map((it) => it.traceparent), front);
  } finally {
    await client.close();
    front.stop();
  }
};

test("requests carry the span of their caller, and renewals none", async () => {
  const spans = new AsyncLocalStorage();
  await connected(() => spans.getStore(), async (client, sent) => {
    await client.key("plain").put("v");
    await spans.run(SPAN, async () => {
      await client.key("traced").put("v");
      const guard = await client.lock("own");
      await guard.update("v2");
      const lease = await client.lease();
      const under = await lease.lock("under");
      // The timer of the renewals was armed here, too.
      while (sent("renew").length === 0) await sleep(10);
      await under.release();
      await guard.release();
      await lease.release();
    });
    assert.deepEqual(sent("put"), [undefined, SPAN]);
    assert.deepEqual(sent("acquire"), [SPAN, SPAN]);
    for (const command of ["update", "grant_lease", "release"]) assert.deepEqual(sent(command), [SPAN], command);
    assert.deepEqual(new Set(sent("renew")), new Set([undefined]));
  });
});

test("a span that cannot be read stops no request and no renewal", async () => {
  const broken = () => {
    throw new Error("no context");
  };
  await connected(broken, async (client, sent) => {
    const guard = await client.lock("untraced");
    while (sent("renew").length === 0) await sleep(10);
    guard.check();
    await guard.release();
    assert.deepEqual(sent("acquire"), [undefined]);
  });
});

// usage: node planted.mjs BUG vectors|lost_answer|blocked_loop. Plants a bug and plays; says what caught it, and ends with 1.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Client, Lost } from "../dist/esm/index.js";
import { plant } from "../plants.mjs";
import { vectorsDirectory } from "./places.mjs";
import { block, sleep, startProxy, startServer } from "./server.mjs";
import { replay } from "./vectors.mjs";

const [bug, by] = process.argv.slice(2);
if (bug !== "none") plant(bug);

function vectors() {
  for (const name of readdirSync(vectorsDirectory).filter((it) => it.endsWith(".jsonl"))) {
    for (const line of readFileSync(join(vectorsDirectory, name), "utf8").trim().split("\n")) {
      const trace = JSON.parse(line);
      try {
        replay(trace);
      } catch (error) {
        return `the trace "${trace.name}" of ${name}: ${error.message.split("\n")[0].slice(0, 120)}`;
      }
    }
  }
  return undefined;
}

/** A write whose answer is lost must take effect once. */
async function lost_answer() {
  const server = await startServer();
  const proxy = await startProxy(server.address);
  try {
    const client = await Client.connect({ addresses: proxy.address });
    proxy.set("lose_answer");
    const put = client.key("once").put("v");
    await sleep(500);
    proxy.set("pass");
    const { version } = await put;
    await client.close();
    return version === 1 ? undefined : `the key was written ${version} times`;
  } finally {
    proxy.stop();
    await server.stop();
  }
}

/** After a blocked event loop, the check must not wait for a timer. */
async function blocked_loop() {
  const server = await startServer();
  try {
    const client = await Client.connect({ addresses: server.address });
    const guard = await client.lock("blocked", { ttl: "4s" });
    block(2_500);
    try {
      guard.check();
      return "check() says that a lock is held 2.5 s after its last renewal, with a window of 2 s";
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
      return undefined;
    }
  } finally {
    await server.stop();
  }
}

const caught = await { vectors, lost_answer, blocked_loop }[by]();
if (caught !== undefined) console.log(`caught: ${caught}`);
process.exit(caught === undefined ? 0 : 1);

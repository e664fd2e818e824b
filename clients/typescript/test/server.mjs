// Starts members for the tests, and a proxy before them that can be cut, frozen, and made to lose answers.
import { spawn } from "node:child_process";
import { connect, createServer } from "node:net";
import { once } from "node:events";
import { tenure } from "./places.mjs";

export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** Starts `tenure dev --fresh`, and waits until it listens. */
export async function startServer(...args) {
  const port = await freePort();
  const address = `127.0.0.1:${port}`;
  const child = spawn(tenure, ["dev", "--fresh", "--clients", address, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`the server does not start:\n${output}`)), 60_000);
    const read = (data) => {
      output += data;
      if (!output.includes("ready in")) return;
      clearTimeout(timer);
      resolve();
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`the server ended with ${code}:\n${output}`)));
  });
  const addresses = [...new Set([...output.matchAll(/127\.0\.0\.1:\d+/g)].map(([it]) => it))];
  return {
    address,
    addresses,
    child,
    pause: () => child.kill("SIGSTOP"),
    resume: () => child.kill("SIGCONT"),
    async stop() {
      child.kill("SIGCONT");
      child.kill("SIGKILL");
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    },
  };
}

/** Starts a proxy before an address. */
export async function startProxy(target) {
  const pairs = new Set();
  let mode = "pass";
  const server = createServer((from) => {
    if (mode === "cut") return from.destroy();
    const to = connect({ host: target.split(":")[0], port: Number(target.split(":")[1]) });
    const pair = { from, to };
    pairs.add(pair);
    const end = () => {
      pairs.delete(pair);
      from.destroy();
      to.destroy();
    };
    from.on("data", (data) => mode !== "swallow" && to.write(data));
    to.on("data", (data) => {
      if (mode === "swallow") return;
      // The answer is lost together with its connection.
      if (mode === "lose_answer" && data.length > 0) return end();
      from.write(data);
    });
    for (const socket of [from, to]) socket.on("error", end).on("close", end);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    address: `127.0.0.1:${server.address().port}`,
    /** `pass`, `cut`: refuses and ends connections, `swallow`: passes nothing on, `lose_answer`: ends at the next answer. */
    set(next) {
      mode = next;
      if (next === "cut") for (const { from, to } of [...pairs]) from.destroy(), to.destroy();
    },
    stop() {
      this.set("cut");
      server.close();
    },
  };
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Blocks the event loop: no timer fires, nothing is read. */
export function block(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

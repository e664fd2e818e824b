// Plays the client in a headless Chromium: npm run test:browser. Needs `apt-get install chromium`.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, request } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import { packageDirectory } from "./places.mjs";
import { startServer } from "./server.mjs";

const LIMIT_MS = 90_000;
const PAGE = `<!doctype html><script type="module">
import { Client, Lost } from "/dist/esm/browser.js";
const said = [];
try {
  const client = await Client.connect({ addresses: location.host, timeout: "30s" });
  said.push("token " + (await client.run("browser", (guard) => typeof guard.token)));
  const guard = await client.lock("browser", { ttl: "30s", metadata: new Uint8Array([255, 0]) });
  said.push("try " + (await client.tryLock("browser")));
  await client.force("browser", { token: guard.token, reason: "test", by: "page" });
  said.push("lost " + (await guard.lost()).cause + " aborted " + guard.signal.aborted);
  await guard.release().catch((error) => said.push("release " + (error instanceof Lost)));
  const observer = client.election("page").observe();
  said.push("leader " + (await observer.next()).value);
  const lead = await client.election("page").campaign("me");
  said.push("leader " + (await observer.next()).value.text);
  await observer.return();
  await lead.resign();
  await client.key("k").put("v");
  said.push("key " + (await client.key("k").get()).text);
  await client.close();
  said.push("closed");
} catch (error) {
  said.push("FAILED " + (error?.stack ?? error));
}
await fetch("/said", { method: "POST", body: JSON.stringify(said) });
</script>`;

const member = await startServer();
const [host, port] = member.address.split(":");
let said;
const heard = new Promise((resolve) => {
  said = resolve;
});

// Serves the page and the built files, and passes everything else on to the member: pages of its own origin may connect.
const server = createServer((from, to) => {
  if (from.url === "/") return to.setHeader("content-type", "text/html").end(PAGE);
  if (from.url === "/said") {
    let text = "";
    from.on("data", (part) => (text += part)).on("end", () => (to.end(), said(JSON.parse(text))));
    return;
  }
  if (from.url.startsWith("/dist/")) {
    const file = join(packageDirectory, normalize(from.url));
    return to.setHeader("content-type", "text/javascript").end(readFileSync(file));
  }
  const passed = request({ host, port, path: from.url, method: from.method, headers: from.headers }, (answer) => {
    to.writeHead(answer.statusCode, answer.headers);
    answer.pipe(to);
  });
  passed.on("error", () => to.destroy());
  to.on("close", () => passed.destroy());
  from.pipe(passed);
});
server.on("upgrade", (from, socket, head) => {
  const to = connect({ host, port }, () => {
    const headers = from.rawHeaders.map((it, at) => (at % 2 === 0 ? `${it}: ` : `${it}\r\n`)).join("");
    to.write(`${from.method} ${from.url} HTTP/1.1\r\n${headers}\r\n`);
    to.write(head);
    to.pipe(socket).pipe(to);
  });
  for (const it of [socket, to]) it.on("error", () => (socket.destroy(), to.destroy()));
});
server.listen(0, "127.0.0.1");
await once(server, "listening");

const profile = mkdtempSync(join(tmpdir(), "tenure-chromium-"));
const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", `--user-data-dir=${profile}`];
const browser = spawn("chromium", [...flags, `http://127.0.0.1:${server.address().port}/`], { stdio: "ignore" });
const timer = setTimeout(() => said(["FAILED: nothing within 90 s"]), LIMIT_MS);
try {
  assert.deepEqual(await heard, [
    "token bigint",
    "try null",
    "lost forced aborted true",
    "release true",
    "leader null",
    "leader me",
    "key v",
    "closed",
  ]);
  console.log("browser chromium failed=0");
} finally {
  clearTimeout(timer);
  browser.kill("SIGKILL");
  await once(browser, "exit");
  server.closeAllConnections?.();
  server.close();
  await member.stop();
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}

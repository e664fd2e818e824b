// Measures idle leases and cycles: node bench.mjs [leases] [seconds], against TENURE_ADDR or a server that it starts.
import { Client } from "./dist/esm/index.js";
import { startServer } from "./test/server.mjs";

const leases = Number(process.argv[2] ?? 1_000);
const seconds = Number(process.argv[3] ?? 10);
const server = process.env.TENURE_ADDR ? undefined : await startServer();
const addresses = process.env.TENURE_ADDR ?? server.address;
const rss = () => {
  globalThis.gc?.();
  return process.memoryUsage().rss / 1e6;
};
const client = await Client.connect({ addresses, timeout: "60s" });

const before = rss();
const held = [];
for (let at = 0; at < leases; at += 50) {
  const some = Array.from({ length: Math.min(50, leases - at) }, () => client.lease({ ttl: "15s" }));
  held.push(...(await Promise.all(some)));
}
const cpu = process.cpuUsage();
await new Promise((resolve) => setTimeout(resolve, 15_000));
const used = process.cpuUsage(cpu);
held.forEach((lease) => lease.check());
const kb = ((rss() - before) * 1_000) / leases;
const percent = ((used.user + used.system) / 15_000_000) * 100;
console.log(`idle leases=${leases} rss_mb=${rss().toFixed(1)} before_mb=${before.toFixed(1)} kb_per_lease=${kb.toFixed(1)} cpu_percent=${percent.toFixed(2)}`);
for (let at = 0; at < leases; at += 50) await Promise.all(held.slice(at, at + 50).map((lease) => lease.release()));

for (const workers of [1, 32]) {
  const lease = await client.lease({ ttl: "60s" });
  let cycles = 0;
  const until = performance.now() + seconds * 1_000;
  const work = async (name) => {
    for (; performance.now() < until; cycles += 1) await (await lease.lock(name)).release();
  };
  await Promise.all(Array.from({ length: workers }, (_, at) => work(`bench/${at}`)));
  console.log(`cycles workers=${workers} per_second=${(cycles / seconds).toFixed(0)}`);
  await lease.release();
}
await client.close();
await server?.stop();

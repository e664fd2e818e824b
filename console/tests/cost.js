// Measures what open pages cost the members of a busy cluster: node cost.js PATH-TO-tenure [PAIRS] [SECONDS] [HASH...]
//
// Two equal clusters have the same load all the time. Ten pages are open at a member of one of them, then of the other,
// in turn: what the browser and everything else takes from the processors slows both down alike. The cost is the
// processor time of all members of a cluster with the pages less that without, in percent of one core.

import { readFileSync } from 'node:fs';
import { launch, Page, Tabs } from './browser.js';
import { Client, Cluster, sleep } from './cluster.js';

const [binary, pairs = '5', seconds = '10', ...chosen] = process.argv.slice(2);
const PAGES = 10;
const LOCKS = 2_000;
const WORKERS = 16;
/** How often each worker begins a hold. Two of them share a lock, so that some hand it over. */
const EVERY_MS = 200;
/** What a page takes while it loads does not count. */
const SETTLE_MS = 5_000;
const HASHES = chosen.length ? chosen : ['#/', '#/lock/busy%2F0', '#/stuck', '#/members', '#/client/worker-1'];

for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));

/** Processor time of a process so far, in milliseconds. */
function busy(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

let working = true;

/** A cluster with locks that are held all the time, and locks that workers hand to each other. */
async function start() {
  const cluster = await Cluster.start(binary, 3);
  const client = new Client(cluster.url(await cluster.leader()));
  await client.ask('PATCH', '/v1/limits', { limits: [{ limit: 'locks_per_lease', value: LOCKS + 1 }] });
  const idle = await client.lease('idle');
  for (let at = 0; at < LOCKS; at += 50) {
    await client.ask('POST', '/v1/locks', { lease: idle, locks: Array.from({ length: 50 }, (_, more) => `held/${at + more}`) });
  }
  const it = { cluster, grants: 0 };
  it.work = Array.from({ length: WORKERS }, async (_, at) => {
    const lease = await client.lease(`worker-${at}`);
    const lock = `busy%2F${at % (WORKERS / 2)}`;
    for (let next = Date.now() + (EVERY_MS / WORKERS) * at; working; next += EVERY_MS) {
      await sleep(Math.max(0, next - Date.now()));
      // Without a key: what is measured is not the record of requests. A failure costs one hold.
      const held = await client.once('POST', `/v1/locks/${lock}?wait=10s`, { lease }, {}).catch(() => undefined);
      if (!held || !held.token) continue;
      await client.once('DELETE', `/v1/locks/${lock}?lease=${lease}&token=${held.token}`, undefined, {}).catch(() => undefined);
      it.grants += 1;
    }
  });
  it.busy = () => cluster.members.reduce((sum, member) => sum + busy(member.process.pid), 0);
  return it;
}

const both = [await start(), await start()];
const browser = await launch();
const tabs = new Tabs(browser);

/** The percent of a core that each cluster takes while the pages are open at one of them. */
async function measure(at) {
  // All at one member, which is the worst for it.
  for (let page = 0; page < PAGES; page += 1) await (await Page.open(tabs, both[at].cluster.url())).go(HASHES[page % HASHES.length]);
  await sleep(SETTLE_MS);
  const [began, before, granted] = [Date.now(), both.map((it) => it.busy()), both.map((it) => it.grants)];
  await sleep(Number(seconds) * 1000);
  const took = Date.now() - began;
  const taken = both.map((it, index) => ((it.busy() - before[index]) * 100) / took);
  const rates = both.map((it, index) => ((it.grants - granted[index]) * 1000) / took);
  await tabs.closeAll();
  return { taken, rates };
}

const costs = [];
for (let pair = 0; pair < Number(pairs); pair += 1) {
  const first = pair % 2;
  const one = await measure(first);
  const other = await measure(1 - first);
  const cost = (one.taken[first] - one.taken[1 - first] + other.taken[1 - first] - other.taken[first]) / 2;
  costs.push(cost);
  const told = ({ taken, rates }, at) => `with ${taken[at].toFixed(1)} % at ${rates[at].toFixed(0)} grants/s, without ${taken[1 - at].toFixed(1)} % at ${rates[1 - at].toFixed(0)}`;
  console.log(`pair ${pair + 1}: ${told(one, first)}; ${told(other, 1 - first)}; cost ${cost.toFixed(2)} %`);
}
working = false;
for (const it of both) await Promise.all(it.work);
await browser.close();
for (const it of both) await it.cluster.stop();
costs.sort((one, other) => one - other);
const median = costs.length % 2 ? costs[(costs.length - 1) / 2] : (costs[costs.length / 2 - 1] + costs[costs.length / 2]) / 2;
console.log(`${PAGES} open pages take ${median.toFixed(2)} % of a core, of all members together: the median of ${costs.length} pairs, from ${costs[0].toFixed(2)} to ${costs[costs.length - 1].toFixed(2)}`);
process.exit(0);

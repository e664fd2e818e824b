// Measures what open pages cost the members of a busy cluster: node cost.js PATH-TO-tenure [PAIRS] [SECONDS] [HASH...]
//
// A load of the same grants per second runs all the time, as far as the machine has room for it and the browser. Intervals without and with ten open pages alternate, so that
// what else the machine does falls on both. The cost is the difference in processor time of all members, in percent of
// one core.

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
const SETTLE_MS = 4_000;
const HASHES = chosen.length ? chosen : ['#/', '#/lock/busy%2F0', '#/stuck', '#/members', '#/client/worker-1'];

for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));

/** Processor time of a process so far, in milliseconds. */
function busy(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

const cluster = await Cluster.start(binary, 3);
const browser = await launch();
const tabs = new Tabs(browser);
const client = new Client(cluster.url(await cluster.leader()));

// Locks that are held all the time, and locks that workers hand to each other.
const idle = await client.lease('idle');
await client.ask('PATCH', '/v1/limits', { limits: [{ limit: 'locks_per_lease', value: LOCKS + 1 }] });
for (let at = 0; at < LOCKS; at += 50) {
  await client.ask('POST', '/v1/locks', { lease: idle, locks: Array.from({ length: 50 }, (_, more) => `held/${at + more}`) });
}
let working = true;
let grants = 0;
const work = Array.from({ length: WORKERS }, async (_, at) => {
  const lease = await client.lease(`worker-${at}`);
  const lock = `busy%2F${at % (WORKERS / 2)}`;
  for (let next = Date.now() + (EVERY_MS / WORKERS) * at; working; next += EVERY_MS) {
    await sleep(Math.max(0, next - Date.now()));
    // Without keys: what is measured is not the record of requests.
    const held = await client.once('POST', `/v1/locks/${lock}?wait=10s`, { lease }, {}).catch(() => undefined);
    if (held && held.token) {
      await client.once('DELETE', `/v1/locks/${lock}?lease=${lease}&token=${held.token}`, undefined, {}).catch(() => undefined);
      grants += 1;
    }
  }
});

const all = () => cluster.members.map((member) => busy(member.process.pid));
async function measure() {
  await sleep(SETTLE_MS);
  const [before, began, granted] = [all(), Date.now(), grants];
  await sleep(Number(seconds) * 1000);
  const took = Date.now() - began;
  const each = all().map((now, at) => ((now - before[at]) * 100) / took);
  return { each, sum: each.reduce((one, other) => one + other, 0), grants: ((grants - granted) * 1000) / took };
}

const told = (it) => `${it.sum.toFixed(1)} % (${it.each.map((part) => part.toFixed(1)).join(', ')}), ${it.grants.toFixed(0)} grants/s`;
const costs = [];
for (let pair = 0; pair < Number(pairs); pair += 1) {
  const open = async () => {
    // All at one member, which is the worst for it.
    for (let at = 0; at < PAGES; at += 1) await (await Page.open(tabs, cluster.url())).go(HASHES[at % HASHES.length]);
    const measured = await measure();
    await tabs.closeAll();
    return measured;
  };
  // Either may come first, so that a load that grows or shrinks favours none.
  let without;
  let opened;
  if (pair % 2) {
    opened = await open();
    without = await measure();
  } else {
    without = await measure();
    opened = await open();
  }
  costs.push(opened.sum - without.sum);
  console.log(`pair ${pair + 1}: without pages ${told(without)}; with ${PAGES} pages ${told(opened)}; difference ${(opened.sum - without.sum).toFixed(2)} %`);
}
working = false;
await Promise.all(work);
await browser.close();
await cluster.stop();
costs.sort((one, other) => one - other);
const median = costs.length % 2 ? costs[(costs.length - 1) / 2] : (costs[costs.length / 2 - 1] + costs[costs.length / 2]) / 2;
console.log(`${PAGES} open pages take ${median.toFixed(2)} % of a core of all members together: the median of ${costs.length} pairs, from ${costs[0].toFixed(2)} to ${costs[costs.length - 1].toFixed(2)}`);
process.exit(0);

// Measures what open pages cost the members of a busy cluster, and fails if that is more than a bound:
// node cost.js PATH-TO-tenure [--pairs N] [--seconds N] [--locks N,N] [--control] [HASH...]
//
// Two equal clusters of three members have the same load all the time, for each number of locks in turn. Ten pages are
// open at a member of one of them, then of the other, in turn: what the browser and everything else takes from the
// processors slows both down alike. The cost is the processor time of all members of a cluster with the pages less that
// without, in percent of one core. The median of the pairs must not exceed `most`, which hardly grows with the number of
// locks: the summary of all locks is made once for all pages, and the more seldom the longer it takes.
//
// With `--control` each page searches all locks besides, three times at once and without a pause. Then the bound must be
// exceeded, or it bounds nothing.

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { launch, Page, Tabs } from './browser.js';
import { Client, Cluster, sleep } from './cluster.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { pairs: { type: 'string', default: '5' }, seconds: { type: 'string', default: '10' }, locks: { type: 'string', default: '2000,100000' }, control: { type: 'boolean', default: false } },
});
const [binary, ...chosen] = positionals;
const [pairs, seconds] = [Number(values.pairs), Number(values.seconds)];
/** The most that the pages may cost with so many locks, in percent of one core of all members together. */
const most = (locks) => 8 + locks / 10_000;
const PAGES = 10;
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

/** A cluster with so many locks that are held all the time, and locks that workers hand to each other. */
async function start(locks) {
  const cluster = await Cluster.start(binary, 3);
  const client = new Client(cluster.url(await cluster.leader()));
  await client.ask('PATCH', '/v1/limits', { limits: [{ limit: 'locks_per_lease', value: locks + 1 }] });
  const idle = await client.lease('idle');
  for (let at = 0; at < locks; at += 50) {
    await client.ask('POST', '/v1/locks', { lease: idle, locks: Array.from({ length: 50 }, (_, more) => `held/${at + more}`) });
  }
  const it = { cluster, grants: 0, working: true };
  const work = Array.from({ length: WORKERS }, async (_, at) => {
    const lease = await client.lease(`worker-${at}`);
    const lock = `busy%2F${at % (WORKERS / 2)}`;
    for (let next = Date.now() + (EVERY_MS / WORKERS) * at; it.working; next += EVERY_MS) {
      await sleep(Math.max(0, next - Date.now()));
      // Without a key: what is measured is not the record of requests. A failure costs one hold.
      const held = await client.once('POST', `/v1/locks/${lock}?wait=10s`, { lease }, {}).catch(() => undefined);
      if (!held || !held.token) continue;
      await client.once('DELETE', `/v1/locks/${lock}?lease=${lease}&token=${held.token}`, undefined, {}).catch(() => undefined);
      it.grants += 1;
    }
  });
  it.busy = () => cluster.members.reduce((sum, member) => sum + busy(member.process.pid), 0);
  it.stop = async () => {
    it.working = false;
    await Promise.all(work);
    await cluster.stop();
  };
  return it;
}

// Searches without a pause, in a page.
const hurry = () => {
  const ask = () => fetch('/v1/locks?contains=none&stale=true', { headers: { 'Tenure-Console': '1' } }).then((answer) => answer.text()).finally(() => setTimeout(ask, 0));
  for (let at = 0; at < 3; at += 1) ask();
};

/** The percent of a core that each cluster takes while the pages are open at one of them. */
async function measure(tabs, both, at) {
  // All at one member, which is the worst for it.
  for (let page = 0; page < PAGES; page += 1) {
    const opened = await Page.open(tabs, both[at].cluster.url());
    await opened.go(HASHES[page % HASHES.length]);
    if (values.control) await opened.page.evaluate(hurry);
  }
  await sleep(SETTLE_MS);
  const [began, before, granted] = [Date.now(), both.map((it) => it.busy()), both.map((it) => it.grants)];
  await sleep(seconds * 1000);
  const took = Date.now() - began;
  const taken = both.map((it, index) => ((it.busy() - before[index]) * 100) / took);
  const rates = both.map((it, index) => ((it.grants - granted[index]) * 1000) / took);
  await tabs.closeAll();
  return { taken, rates };
}

/** What the pages cost with so many locks: the median of the pairs. */
async function cost(tabs, locks) {
  const both = [await start(locks), await start(locks)];
  const costs = [];
  for (let pair = 0; pair < pairs; pair += 1) {
    const first = pair % 2;
    const one = await measure(tabs, both, first);
    const other = await measure(tabs, both, 1 - first);
    costs.push((one.taken[first] - one.taken[1 - first] + other.taken[1 - first] - other.taken[first]) / 2);
    const told = ({ taken, rates }, at) => `with ${taken[at].toFixed(1)} % at ${rates[at].toFixed(0)} grants/s, without ${taken[1 - at].toFixed(1)} % at ${rates[1 - at].toFixed(0)}`;
    console.log(`  ${locks} locks, pair ${pair + 1}: ${told(one, first)}; ${told(other, 1 - first)}; cost ${costs.at(-1).toFixed(2)} %`);
  }
  for (const it of both) await it.stop();
  costs.sort((one, other) => one - other);
  const middle = Math.floor(costs.length / 2);
  const median = costs.length % 2 ? costs[middle] : (costs[middle - 1] + costs[middle]) / 2;
  console.log(`${locks} locks: ${PAGES} open pages take ${median.toFixed(2)} % of a core, of all members together: the median of ${costs.length} pairs, from ${costs[0].toFixed(2)} to ${costs.at(-1).toFixed(2)}`);
  return median;
}

const browser = await launch();
const tabs = new Tabs(browser);
let failed = false;
for (const locks of values.locks.split(',').map(Number)) {
  const taken = await cost(tabs, locks);
  const bound = most(locks).toFixed(1);
  const exceeds = taken > most(locks);
  if (exceeds === values.control) {
    console.log(`  ok: ${values.control ? `the control exceeds ${bound} %` : `at most ${bound} %`}`);
  } else {
    failed = true;
    console.log(`  FAILED: ${values.control ? `the control stays below ${bound} %, so this bound would not show a page that asks too much` : `more than ${bound} %`}`);
  }
}
await browser.close();
process.exit(failed ? 1 : 0);

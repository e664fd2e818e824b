// Many locks and a long queue: the lists stay smooth.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Client, Cluster, sleep, until } from './cluster.js';
import { Page, launch } from './browser.js';

const LOCKS = Number(process.env.LOCKS || 100_000);
const WAITERS = Number(process.env.WAITERS || 10_000);
const AT_ONCE = 32;
/** What a page may work for each frame: a thirtieth of a second. Without other load it is a fraction of that. */
const FRAME_MS = 33;

async function each(count, work) {
  let at = 0;
  const worker = async () => {
    while (at < count) {
      const mine = at;
      at += 1;
      await work(mine);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

export async function stage(binary) {
  const cluster = await Cluster.start(binary, 1);
  const client = new Client(cluster.url());
  const began = Date.now();
  await client.ask('PATCH', '/v1/limits', { limits: [{ limit: 'locks_per_lease', value: 1_000_000 }] });
  const lease = await client.lease('many', 3_600_000);
  const name = (at) => `load/${String(at % 97).padStart(2, '0')}/${String(at).padStart(6, '0')}`;
  await each(Math.ceil(LOCKS / 64), async (batch) => {
    const locks = [];
    for (let at = batch * 64; at < Math.min(LOCKS, (batch + 1) * 64); at += 1) locks.push(name(at));
    await client.ask('POST', '/v1/locks', { lease, locks });
  });
  await client.acquire('queue', await client.lease('holder', 3_600_000));
  const waiters = (at) => client.ask('POST', '/v1/locks/queue?keep=true', { new_lease: { ttl_ms: 3_600_000, client: `waiter-${String(at).padStart(5, '0')}` } });
  await each(WAITERS, waiters);
  console.log(`  ${LOCKS} locks and a queue of ${WAITERS} made in ${Date.now() - began} ms`);
  // A browser of its own: what it takes is measured.
  const browser = await launch();
  const stop = async () => {
    await browser.close();
    await cluster.stop();
  };
  return { cluster, client, browser, stop };
}

// Scrolls a list for a while. Returns the times between frames, which depend on what else the machine does, and the
// time of a processor that the process of the page took for each frame, which does not.
async function scroll(page, label, frames) {
  const tools = await page.context.browser().newBrowserCDPSession();
  const busy = async () => {
    const { processInfo } = await tools.send('SystemInfo.getProcessInfo');
    return processInfo.filter((it) => it.type === 'renderer').reduce((sum, it) => sum + it.cpuTime * 1000, 0);
  };
  const before = await busy();
  const scrolled = await page.page.evaluate(
    async ([wanted, count]) => {
      const window_ = document.querySelector(`[aria-label="${wanted}"] .window`);
      const times = [];
      let last = await new Promise(requestAnimationFrame);
      for (let at = 0; at < count; at += 1) {
        window_.scrollTop += 400;
        const now = await new Promise(requestAnimationFrame);
        times.push(now - last);
        last = now;
      }
      return { times, top: window_.scrollTop, rows: window_.querySelectorAll('.row').length, height: window_.scrollHeight };
    },
    [label, frames],
  );
  return { ...scrolled, work: ((await busy()) - before) / frames };
}

function figures(times) {
  const sorted = [...times].sort((one, other) => one - other);
  const at = (part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
  return { p50: at(0.5), p95: at(0.95), most: sorted[sorted.length - 1] };
}

function ticks(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

export const tests = [
  async function a_list_of_all_locks_scrolls_smoothly({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    await page.go('#/');
    await page.sees(`${(LOCKS + 1).toLocaleString('en-US')} locks`, 60_000);
    await page.page.waitForFunction(() => document.querySelectorAll('[aria-label="Locks"] .all .row').length > 10);
    const { times, top, rows, height, work } = await scroll(page, 'Locks', 300);
    const { p50, p95, most } = figures(times);
    console.log(`  frames while scrolling ${LOCKS} locks: p50 ${p50.toFixed(1)} ms, p95 ${p95.toFixed(1)} ms, longest ${most.toFixed(1)} ms, ${work.toFixed(1)} ms of work in each; ${rows} rows of ${Math.round(height / 32)} loaded`);
    assert.ok(rows < 80, `${rows} rows exist at once`);
    assert.ok(top > 20_000, `it scrolled ${top} px`);
    assert.ok(work < FRAME_MS, `the page works ${work} ms for each frame`);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function the_server_searches_all_locks({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    await page.go(`#/?contains=${String(LOCKS - 1).padStart(6, '0')}`);
    await page.sees(`load/${String((LOCKS - 1) % 97).padStart(2, '0')}/${String(LOCKS - 1).padStart(6, '0')}`, 30_000);
    await page.sees('1 match');
    await page.close();
  },

  async function a_long_queue_scrolls_smoothly({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/queue');
    await page.sees(`${WAITERS.toLocaleString('en-US')} clients wait`, 30_000);
    await page.page.waitForFunction(() => document.querySelectorAll('[aria-label="Queue"] .all .row').length > 5, undefined, { timeout: 30_000 });
    const { times, rows, top, work } = await scroll(page, 'Queue', 200);
    const { p50, p95, most } = figures(times);
    console.log(`  frames while scrolling a queue of ${WAITERS}: p50 ${p50.toFixed(1)} ms, p95 ${p95.toFixed(1)} ms, longest ${most.toFixed(1)} ms, ${work.toFixed(1)} ms of work in each`);
    assert.ok(rows < 80 && top > 10_000 && work < FRAME_MS, JSON.stringify({ rows, top, work }));
    await page.close();
  },

  async function ten_open_pages_cost_the_member_little({ browser, cluster, client }) {
    const { pid } = cluster.members[0].process;
    const measure = async (ms) => {
      const before = ticks(pid);
      await sleep(ms);
      // A tick is a hundredth of a second.
      return ((ticks(pid) - before) * 1000) / ms;
    };
    const idle = await measure(3_000);
    const pages = [];
    for (let at = 0; at < 10; at += 1) {
      const page = await Page.open(browser, cluster.url());
      await page.go(at % 2 ? '#/lock/queue' : '#/');
      pages.push(page);
    }
    await until('the pages to be there', async () => (await pages[9].text()).includes('clients wait'), 60_000);
    const open = await measure(10_000);
    console.log(`  the member uses ${idle.toFixed(1)} % of a core alone, ${open.toFixed(1)} % with ten open pages and ${LOCKS} locks (unoptimised build)`);
    assert.ok(open - idle < 10, 'even an unoptimised member');
    for (const page of pages) await page.close();
    await client.ask('GET', '/v1/locks/queue');
  },
];

// Many locks and a long queue: the lists stay smooth.

import assert from 'node:assert/strict';
import { Client, Cluster, sleep } from './cluster.js';
import { launch, Page, Tabs } from './browser.js';

const LOCKS = Number(process.env.LOCKS || 100_000);
const WAITERS = Number(process.env.WAITERS || 10_000);
const AT_ONCE = 32;
/** The height of a row, and how far one step scrolls. */
const ROW = 32;
const STEP = 400;

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

export async function stage(binary, opens) {
  const cluster = opens(await Cluster.start(binary, 1));
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
  const own = await launch();
  opens({ stop: () => own.close() });
  return { cluster, client, browser: new Tabs(own) };
}

// Scrolls a list step by step. Returns the times between frames and what the page took for each, which depend on the
// machine and on what else it does; and how many rows there were and were made, which do not.
async function scroll(page, label, steps) {
  const tools = await page.context.browser().newBrowserCDPSession();
  const busy = async () => {
    const { processInfo } = await tools.send('SystemInfo.getProcessInfo');
    return processInfo.filter((it) => it.type === 'renderer').reduce((sum, it) => sum + it.cpuTime * 1000, 0);
  };
  const before = await busy();
  const scrolled = await page.page.evaluate(
    async ([wanted, count, step]) => {
      const window_ = document.querySelector(`[aria-label="${wanted}"] .window`);
      const times = [];
      let made = 0;
      let most = 0;
      const observer = new MutationObserver((changes) => {
        for (const change of changes) for (const node of change.addedNodes) if (node.classList && node.classList.contains('row')) made += 1;
      });
      observer.observe(window_, { childList: true, subtree: true });
      let last = await new Promise(requestAnimationFrame);
      for (let at = 0; at < count; at += 1) {
        window_.scrollTop += step;
        const now = await new Promise(requestAnimationFrame);
        times.push(now - last);
        last = now;
        most = Math.max(most, window_.querySelectorAll('.row').length);
      }
      observer.disconnect();
      return { times, top: window_.scrollTop, most, made, height: window_.scrollHeight };
    },
    [label, steps, STEP],
  );
  return { ...scrolled, work: ((await busy()) - before) / steps };
}

/** Checks that a list makes the rows that come into sight, and no others. */
function checkRows({ most, made, top }) {
  assert.ok(top > 10_000, `it scrolled ${top} px`);
  assert.ok(most < 80, `${most} rows exist at once`);
  assert.ok(made < top / ROW + 2 * most, `${made} rows were made for ${top} px`);
}

function told({ times, work, most, made }) {
  const sorted = [...times].sort((one, other) => one - other);
  const at = (part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))].toFixed(1);
  return `frames p50 ${at(0.5)} ms, p95 ${at(0.95)} ms, longest ${at(1)} ms, ${work.toFixed(1)} ms of work in each; at most ${most} rows, ${made} made`;
}

export const tests = [
  async function a_list_of_all_locks_scrolls_smoothly({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    await page.go('#/');
    await page.sees(`${(LOCKS + 1).toLocaleString('en-US')} locks`);
    await page.page.waitForFunction(() => document.querySelectorAll('[aria-label="Locks"] .all .row').length > 10);
    const asked = [];
    page.page.on('request', (request) => request.url().includes('/v1/locks?') && asked.push(request.url()));
    const scrolled = await scroll(page, 'Locks', 300);
    console.log(`  scrolling ${LOCKS} locks: ${told(scrolled)}, ${Math.round(scrolled.height / ROW)} loaded`);
    checkRows(scrolled);
    const pages = asked.filter((url) => url.includes('after=')).length;
    assert.ok(pages <= 1 + scrolled.height / ROW / 500, `${pages} pages were asked for ${scrolled.height} px`);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function the_server_searches_all_locks({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    await page.go(`#/?contains=${String(LOCKS - 1).padStart(6, '0')}`);
    await page.sees(`load/${String((LOCKS - 1) % 97).padStart(2, '0')}/${String(LOCKS - 1).padStart(6, '0')}`);
    await page.sees('1 match');
    await page.close();
  },

  async function a_long_queue_scrolls_smoothly({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/queue');
    await page.sees(`${WAITERS.toLocaleString('en-US')} clients wait`);
    await page.page.waitForFunction(() => document.querySelectorAll('[aria-label="Queue"] .all .row').length > 5);
    const scrolled = await scroll(page, 'Queue', 200);
    console.log(`  scrolling a queue of ${WAITERS}: ${told(scrolled)}`);
    checkRows(scrolled);
    await page.close();
  },

  async function a_client_is_found_behind_many_whose_names_begin_like_its_own({ browser, cluster, client }) {
    const lease = await client.lease('waiter');
    const names = Array.from({ length: 150 }, (_, at) => `found/${String(at).padStart(3, '0')}`);
    for (let at = 0; at < names.length; at += 50) await client.ask('POST', '/v1/locks', { lease, locks: names.slice(at, at + 50) });
    // The leases before and behind it in the order of their ids: some of them are on earlier pages whatever its id is.
    const others = await Promise.all(Array.from({ length: 20 }, () => client.lease('waiter')));
    const page = await Page.open(browser, cluster.url());
    await page.go('#/client/waiter');
    await page.sees(`It has ${others.length + 1} leases, holds 150 locks and waits for none.`);
    await page.sees('100 of 150 are shown.');
    await page.page.getByRole('button', { name: 'Show 50 more' }).click();
    await page.seesNot('are shown.');
    assert.equal(await page.page.locator('dd a.name[href^="#/lock/found"]').count(), 150);
    // The search goes to the very client too, not to the first whose name begins so.
    await page.page.fill('form.search input', 'waiter');
    await page.page.keyboard.press('Enter');
    await page.page.waitForFunction(() => location.hash === '#/client/waiter');
    assert.deepEqual(await page.violations(), []);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function an_open_page_asks_for_little({ browser, cluster }) {
    for (const [hash, text] of [['#/', 'Longest waits'], ['#/lock/queue', 'clients wait']]) {
      const page = await Page.open(browser, cluster.url());
      await page.go(hash);
      await page.sees(text);
      const asked = [];
      page.page.on('request', (request) => asked.push(request.url()));
      await sleep(6_000);
      // Slower machines ask less often, never more. Some of these may still belong to the beginning.
      assert.ok(asked.length <= 14, `${hash} asked ${asked.length} times in 6 s: ${asked.join(' ')}`);
      await page.close();
    }
  },
];

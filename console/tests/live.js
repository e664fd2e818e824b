// What changes is shown without a reload.

import assert from 'node:assert/strict';
import { Client, Cluster } from './cluster.js';
import { Page } from './browser.js';

export async function stage(binary) {
  const cluster = await Cluster.start(binary, 1);
  return { cluster, client: new Client(cluster.url()), stop: () => cluster.stop() };
}

export const tests = [
  async function a_lock_is_taken_and_lost_while_looking({ browser, cluster, client }) {
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/live%2Fone');
    await page.sees('Nobody holds it');
    const lease = await client.lease('worker-1', 60_000);
    const began = Date.now();
    await client.acquire('live/one', lease, { metadata: 'first' });
    await page.sees('Held by worker-1');
    const seen = Date.now() - began;
    console.log(`  a grant was seen after ${seen} ms`);
    assert.ok(seen < 5_000, `${seen} ms`);
    const other = await client.lease('worker-2', 60_000);
    await client.queue('live/one', other);
    await page.sees('1 client waits; the first, worker-2');
    await client.ask('DELETE', `/v1/leases/${lease}`);
    await page.sees('Held by worker-2');
    await page.sees('2 holds');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function the_summary_and_the_list_follow_and_rows_keep_their_elements({ browser, cluster, client }) {
    const lease = await client.lease('holder', 600_000);
    await client.acquire('rows/b', lease);
    const page = await Page.open(browser, cluster.url());
    await page.go('#/?prefix=rows%2F');
    await page.sees('1 match');
    await page.page.evaluate(() => {
      window.rowB = [...document.querySelectorAll('.all .row')].find((row) => row.innerText.includes('rows/b'));
    });
    await client.acquire('rows/a', lease);
    await page.sees('rows/a');
    const kept = await page.page.evaluate(() => window.rowB.isConnected && window.rowB.innerText.includes('rows/b'));
    assert.ok(kept, 'the row of a lock that stays is the same element');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function renewals_move_the_bar_of_the_lease({ browser, cluster, client }) {
    const lease = await client.lease('renewer', 20_000);
    await client.acquire('live/renewed', lease);
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/live%2Frenewed');
    const left = async () => Number(await page.page.locator('.ttl').getAttribute('aria-valuenow'));
    await page.page.waitForSelector('.ttl');
    await page.page.waitForFunction(() => Number(document.querySelector('.ttl').getAttribute('aria-valuenow')) < 16_000);
    await client.ask('POST', `/v1/leases/${lease}/renew`);
    await page.page.waitForFunction(() => Number(document.querySelector('.ttl').getAttribute('aria-valuenow')) > 17_000);
    assert.ok((await left()) <= 20_000);
    await page.close();
  },
];

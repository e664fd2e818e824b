// What changes is shown without a reload.

import assert from 'node:assert/strict';
import { Client, Cluster, until } from './cluster.js';
import { Page } from './browser.js';

export async function stage(binary, opens) {
  const cluster = opens(await Cluster.start(binary, 1));
  return { cluster, client: new Client(cluster.url()) };
}

export const tests = [
  async function a_new_cluster_says_how_to_take_the_first_lock({ browser, cluster, client }) {
    const page = await Page.open(browser, cluster.url());
    await page.go('#/');
    const address = new URL(cluster.url()).host;
    await page.sees('No lock is held or awaited. This takes one');
    // The commands of the page ask the member that served it.
    const command = `tenure run deploy --addr ${address} -- sleep 30`;
    await page.page.getByRole('button', { name: `Copy: ${command}` }).waitFor();
    assert.equal(await page.page.getByRole('button', { name: `Copy: tenure locks --addr ${address}` }).count(), 1);
    const [, ...words] = command.split(' ');
    cluster.command(...words);
    await page.sees('1 lock');
    await page.seesNot('This takes one');
    await page.go('#/stuck');
    assert.equal(await page.page.getByRole('button', { name: 'Copy: tenure help DEADLOCK', exact: true }).count(), 1);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_lock_is_taken_and_lost_while_looking({ browser, cluster, client }) {
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/live%2Fone');
    await page.sees('No such lock is held or recorded');
    const lease = await client.lease('worker-1');
    const began = Date.now();
    await client.acquire('live/one', lease, { metadata: 'first' });
    await page.sees('Held by worker-1');
    console.log(`  a grant was seen after ${Date.now() - began} ms`);
    const other = await client.lease('worker-2');
    await client.queue('live/one', other);
    await page.sees('1 client waits; the first, worker-2');
    await client.ask('DELETE', `/v1/leases/${lease}`);
    await page.sees('Held by worker-2');
    await page.sees('2 holds');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_drained_lock_says_by_whom_and_why({ browser, cluster, client }) {
    await client.ask('POST', '/v1/drains', { prefix: 'closed/', reason: 'disk swap', by: 'ops' });
    await client.queue('closed/one', await client.lease('patient-2'));
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/closed%2Fone');
    await page.sees('Locks below closed/ are closed to new holders');
    await page.sees('by ops: “disk swap”');
    await client.ask('DELETE', '/v1/drains?prefix=closed%2F');
    await page.sees('Held by patient-2');
    await page.seesNot('closed to new holders');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function the_summary_and_the_list_follow_and_rows_keep_their_elements({ browser, cluster, client }) {
    const lease = await client.lease('holder');
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
    const ttl = 3_600_000;
    const lease = await client.lease('renewer', ttl);
    await client.acquire('live/renewed', lease);
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/live%2Frenewed');
    const left = async () => Number(await page.page.locator('.ttl').getAttribute('aria-valuenow'));
    await until('the bar runs down', async () => (await left()) < ttl - 4_000);
    // Each read of the page now finds a lease that was renewed since the one before.
    let before = ttl;
    await until('the bar rises', async () => {
      const now = await left();
      const rises = now > before;
      before = now;
      await client.ask('POST', `/v1/leases/${lease}/renew`);
      return rises;
    });
    assert.ok((await left()) <= ttl);
    await page.close();
  },

  async function a_holder_that_does_not_renew_is_late_and_not_lost({ browser, cluster, client }) {
    await client.acquire('live/late', await client.lease('late'));
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/live%2Flate');
    await page.sees('Held by late');
    assert.ok(!(await page.text()).includes('renewal overdue'));
    // As if more than half of the ttl had passed.
    await page.page.route(/view=explain/, async (route) => {
      const response = await route.fetch();
      const explained = await response.json();
      explained.lock.holders[0].renewed_ms = explained.free_if_silent_ms + 1;
      await route.fulfill({ response, json: explained });
    });
    await page.sees('renewal overdue');
    await page.page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.close();
  },

  async function what_a_member_could_not_answer_is_asked_again({ browser, cluster, client }) {
    const lease = await client.lease('patient');
    const { token } = await client.acquire('again/lock', lease, { metadata: 'kept' });
    await client.release('again/lock', lease, token);
    await client.acquire('again/lock', lease);
    await client.ask('PUT', '/v1/keys/again/key', 'again');
    await client.ask('POST', '/v1/elections/again%2Felection', { lease, value: 'again' });
    const error = { reason: 'NO_LEADER', message: 'no leader at the moment', effect: 'none', next: 'send it again' };
    const look = async (pages) => {
      const page = await Page.open(browser, cluster.url());
      const refused = new Set();
      // Every request of every page fails the first time.
      await page.page.route(/\/v1\//, (route) => {
        const asked = `${page.page.url()} ${route.request().url().replace(/(since|until)=[^&]*/g, '')}`;
        if (refused.has(asked)) return route.continue();
        refused.add(asked);
        return route.fulfill({ status: 503, contentType: 'application/json', body: JSON.stringify({ error }) });
      });
      for (const [hash, texts] of pages) {
        await page.go(hash);
        for (const text of texts) await page.sees(text);
        await page.seesNot('no leader at the moment');
      }
      assert.deepEqual(page.problems(), []);
      await page.close();
    };
    // They mostly wait before they ask again.
    await Promise.all([
      look([
        ['#/?prefix=again', ['2 matches', 'again/lock', 'one member alone']],
        ['#/lock/again%2Flock', ['Held by patient', '2 holds']],
        ['#/client/patient', ['It has 1 lease, holds 2 locks', 'It lost nothing']],
      ]),
      look([
        ['#/timeline?lock=again%2Flock', ['2 holds', 'released']],
        ['#/stuck', ['None is recorded', 'No client waits longer']],
        ['#/search/gain%2Fl', ['1 match', 'not held now']],
      ]),
      look([
        ['#/members', ['This member', 'one member alone']],
        ['#/elections', ['again/election']],
        ['#/keys', ['again/key']],
        ['#/access', ['not enabled', 'No role']],
        ['#/audit', ['What was done', 'newest records of this member']],
      ]),
    ]);
  },
];

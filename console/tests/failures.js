// Members that die while a page is open: the page says so, and continues by itself.

import assert from 'node:assert/strict';
import { Client, Cluster, until } from './cluster.js';
import { Page } from './browser.js';

export async function stage(binary, opens) {
  return { cluster: opens(await Cluster.start(binary, 3)) };
}

/** What a page does when the browser shows it again, for instance because the computer slept: it reads everything. */
const shownAgain = (page) => page.page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));

/** A search of the past that looks for the ring of a deadlock. */
const RING = /view=history&archive=true/;

/**
 * A page that looks for the ring of a deadlock, and gets no answer. The other searches of the past wait for that one. Its
 * timers may be run faster than time passes.
 */
async function searchesForRing(browser, cluster, client, named) {
  const [one, other] = [await client.lease(`${named}-1`), await client.lease(`${named}-2`)];
  await client.acquire(`${named}/a`, one);
  await client.acquire(`${named}/b`, other);
  await client.queue(`${named}/b`, one);
  await assert.rejects(client.queue(`${named}/a`, other), /close a ring/);
  const page = await Page.open(browser, cluster.url());
  await page.page.clock.install();
  page.expected.push(/ERR_ABORTED/);
  const held = [];
  await page.page.route(RING, (route) => held.push(route));
  await page.go('#/stuck');
  await until('the page looks for the ring', async () => held.length > 0);
  return { page, held };
}

export const tests = [
  async function the_leader_is_killed_while_looking_and_the_page_goes_on({ browser, cluster }) {
    const leader = await cluster.leader();
    const other = cluster.members.find((member) => member !== leader);
    const client = new Client(cluster.url(other));
    const page = await Page.open(browser, cluster.url(other));
    page.expected.push(/503|504|Failed to load resource/);
    await page.go('#/lock/failover');
    await page.sees('No such lock is held or recorded');
    const members = await Page.open(browser, cluster.url(other));
    members.expected.push(/503|504|Failed to load resource/);
    await members.go('#/');
    await members.sees('3 of 3 members up');
    await cluster.kill(leader);
    await members.sees(`${leader.name} ✕`);
    await client.acquire('failover', await client.lease('survivor'));
    await page.sees('Held by survivor');
    await page.seesNot('may have changed');
    await members.sees('one more failure stops everything');
    cluster.run(leader);
    await members.sees('3 of 3 members up');
    assert.deepEqual(page.problems(), []);
    await page.close();
    await members.close();
  },

  async function the_member_that_serves_the_page_is_killed_and_comes_back({ browser, cluster, shots }) {
    const member = cluster.members[0];
    const elsewhere = new Client(cluster.url(cluster.members[1]));
    const page = await Page.open(browser, cluster.url(member));
    page.expected.push(/Failed to load resource|ERR_/);
    const lease = await elsewhere.lease('before');
    const { token } = await elsewhere.acquire('broken', lease);
    await page.go('#/lock/broken');
    await page.sees('Held by before');
    await cluster.kill(member);
    await page.sees('Stale: last news');
    await page.sees('this member does not answer');
    await page.sees('The same page at another member');
    // Nothing is known of the time since the last news, so no age goes on, while that time does. It is said once.
    const shown = () => page.page.locator('.answer, .holder, section:has(#past)').allInnerTexts();
    const before = await shown();
    const silence = async () => Number(/(\d+)s ago/.exec(await page.page.locator('.mark').innerText())[1]);
    const first = await silence();
    await until('more time passes', async () => (await silence()) >= first + 2);
    assert.deepEqual(await shown(), before);
    assert.equal((await page.text()).match(/does not answer/gi).length, 1);
    const links = await page.page.locator('.banner a').evaluateAll((found) => found.map((it) => it.href).sort());
    assert.deepEqual(links, cluster.members.slice(1).map((other) => `${cluster.url(other)}/#/lock/broken`).sort());
    await page.sees('Held by before');
    if (shots) await page.page.screenshot({ path: `${shots}/stale-light.png` });
    assert.deepEqual(await page.violations(), []);
    await elsewhere.release('broken', lease, token);
    await elsewhere.acquire('broken', await elsewhere.lease('after'));
    cluster.run(member);
    await page.sees('Held by after');
    await page.seesNot('Stale');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_member_that_stands_still_is_said_to_be_silent_before_its_streams_break({ browser, cluster }) {
    const member = cluster.members[0];
    const page = await Page.open(browser, cluster.url(member));
    page.expected.push(/Failed to load resource|ERR_/);
    await page.go('#/lock/still');
    await page.sees('No such lock is held or recorded');
    member.process.kill('SIGSTOP');
    const began = Date.now();
    try {
      await page.sees('Stale: last news');
      // A stream counts as broken after 25 s without a byte. Reads are late much earlier.
      assert.ok(Date.now() - began < 20_000, 'only the stream showed it');
    } finally {
      member.process.kill('SIGCONT');
    }
    await page.seesNot('Stale');
    await page.close();
  },

  async function a_search_that_is_not_answered_stops_no_other_for_ever({ browser, cluster }) {
    const client = new Client(cluster.url());
    const { page, held } = await searchesForRing(browser, cluster, client, 'slow');
    // Other searches wait for that one until it is given up: longer than any read has.
    let givenUp = false;
    page.page.on('requestfailed', (request) => (givenUp ||= RING.test(request.url())));
    await shownAgain(page);
    await until('the search is given up', async () => givenUp);
    for (const route of held.splice(0)) await route.continue().catch(() => undefined);
    await page.page.unrouteAll({ behavior: 'ignoreErrors' });
    const { token } = await client.acquire('slow/lost', await client.lease('slow'));
    await client.ask('POST', '/v1/force', { lock: 'slow/lost', token, reason: 'after the silence', now: true });
    await page.sees('after the silence');
    await page.seesNot('Stale');
    await page.close();
  },

  async function a_page_that_was_left_marks_nothing({ browser, cluster }) {
    const client = new Client(cluster.url());
    const { page } = await searchesForRing(browser, cluster, client, 'left');
    await shownAgain(page);
    await page.go('#/keys');
    await page.sees('Written at revision');
    // Longer than after which a read counts as late, and a mark is shown.
    await page.page.clock.runFor(6_000);
    assert.ok(!(await page.text()).includes('Stale'), 'a read of the page before is late');
    await page.page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.close();
  },

  async function a_page_that_is_not_shown_keeps_no_stream_open({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url(cluster.members[1]));
    await page.go('#/lock/hidden');
    await page.sees('No such lock is held or recorded');
    const open = new Set();
    const streams = (request) => (request.headers().accept || '').includes('text/event-stream');
    page.page.on('request', (request) => streams(request) && open.add(request));
    for (const event of ['requestfinished', 'requestfailed']) page.page.on(event, (request) => open.delete(request));
    const show = (hidden) =>
      page.page.evaluate((value) => {
        Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
        document.dispatchEvent(new Event('visibilitychange'));
      }, hidden);
    page.expected.push(/ERR_ABORTED/);
    await show(true);
    await show(false);
    await until('it follows again', async () => open.size > 0);
    await show(true);
    await until('its streams end', async () => open.size === 0);
    await page.close();
  },
];

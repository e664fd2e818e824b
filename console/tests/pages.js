// Every page: it loads, shows what it promises, has no error, sends no request elsewhere, and axe finds nothing.

import assert from 'node:assert/strict';
import { Client, Cluster, until } from './cluster.js';
import { Page } from './browser.js';

export async function stage(binary, opens) {
  const cluster = opens(await Cluster.start(binary, 3));
  const client = new Client(cluster.url());
  const ci = await client.lease('ci-7/4121', 3_600_000, 'runner 7, pipeline 5512');
  await client.acquire('deploy', ci, { metadata: 'release 5.2: ./migrate.sh' });
  const next = await client.lease('ci-9/877');
  await client.queue('deploy', next);
  const ana = await client.lease('ana-mbp/3310');
  await client.queue('deploy', ana);
  const etl = await client.lease('etl-3/88');
  await client.acquire('db/schema', etl, { metadata: 'nightly load' });
  await client.queue('db/schema', ci);
  for (let at = 0; at < 3; at += 1) await client.acquire('workers', await client.lease(`w-${at}/7`), { mode: 'slot', slots: 8 });
  for (let at = 0; at < 12; at += 1) await client.acquire(`jobs/import/${at}`, await client.lease(`w-${at}/19`));
  for (let at = 0; at < 6; at += 1) await client.queue('jobs/import/1', await client.lease(`late-${at}/3`));
  // What was taken away, and what expired.
  const old = await client.lease('ci-5/2200');
  const lost = await client.acquire('reports/daily', old);
  await client.ask('POST', '/v1/force', { lock: 'reports/daily', token: lost.token, reason: 'runner 5 was deleted', by: 'ops', now: true });
  await client.acquire('reports/daily', etl, { metadata: 'daily report' });
  await client.acquireFor('backup', 'cron-2/91', 1_000);
  await until('the expiry', async () => !(await client.ask('GET', '/v1/locks/backup')).lock);
  await client.ask('POST', '/v1/elections/billing', { lease: etl, value: '10.0.0.5:9000' });
  await client.ask('PUT', '/v1/keys/config/flags', 'beta=on');
  // Two clients that would wait for each other for ever.
  await client.acquire('accounts/7', ana);
  await client.acquire('accounts/9', next);
  await client.queue('accounts/9', ana);
  const refused = await client.queue('accounts/7', next).catch((error) => error);
  assert.equal(refused.answer.error.reason, 'DEADLOCK');
  // One client waits for any of two locks, and one for any slot of a pool.
  const busy = await client.lease('busy-1/5');
  for (const lock of ['either/a', 'either/b']) await client.acquire(lock, busy);
  await client.ask('PUT', '/v1/semaphores/gpu%2Fa', { slots: 1 });
  await client.acquire('gpu/a', busy, { mode: 'slot', slots: 1 });
  const keep = (body) => client.ask('POST', '/v1/locks?keep=true', body);
  await keep({ lease: await client.lease('any-1/5'), locks: ['either/a', 'either/b'], any: true });
  await keep({ lease: await client.lease('any-2/5'), pool: 'gpu/' });
  return { cluster, client };
}

const PAGES = [
  ['now', '#/', ['3 of 3 members up, survives 1 failure', 'Longest waits', 'by whom, why', 'in the end etl-3/88, which holds db/schema', 'wait in the end for etl-3/88, which holds db/schema for', 'jobs/', 'deploy', 'ci-7/4121']],
  ['lock', '#/lock/deploy', ['Held by', 'ci-7/4121', 'release 5.2', 'ci-9/877', '2 clients wait', 'in the end everything waits for etl-3/88', 'tenure explain deploy', 'Who held it, and how that ended', 'Takes the lock away from ci-7/4121', 'Take away once stopped', 'Timeline: who held it, and when', 'db/schema', 'Lock granted', 'Lease last renewed', 'lease ends in']],
  ['any', '#/lock/either%2Fa', ['1 client waits', 'any-1/5', 'for any of 2 locks']],
  ['pool', '#/lock/gpu%2Fa', ['1 client waits', 'any-2/5', 'for any slot of the pool gpu/']],
  ['waits for any', '#/client/any-1%2F5', ['waits for 2 locks: either/a for', 'held by busy-1/5', 'it is next', 'any of 2 locks:']],
  ['client', '#/client/ci-7%2F4121', ['holds 1 lock', 'waits for db/schema for', '(held by etl-3/88)', 'runner 7', 'held by etl-3/88', 'it is next']],
  ['client that lost', '#/client/ci-5%2F2200', ['holds no lock and waits for none', 'What it lost', 'ops: “runner 5 was deleted”']],
  ['lock that was lost', '#/lock/reports%2Fdaily', ['Held by etl-3/88', '2 holds, 1 lost', 'Safety margin', 'ops: “runner 5 was deleted”', 'daily report']],
  ['timeline', '#/timeline?prefix=reports', ['reports/daily', 'ci-5/2200', 'runner 5 was deleted', 'The archive of this member begins at']],
  ['search', '#/search/deploy', ['deploy: held ci-7/4121', '1 match']],
  ['stuck', '#/stuck', ['Refused deadlocks', 'ci-9/877 asked for accounts/7, held by ana-mbp/3310', 'ana-mbp/3310 waited for accounts/9, held by ci-9/877', 'and so on, for ever', 'cron-2/91', 'expired: not renewed in time', 'ops: “runner 5 was deleted”']],
  ['members', '#/members', ['3 of 3 members up', 'up to date', 'This member', 'fsync', 'follower']],
  ['elections', '#/elections', ['billing', 'etl-3/88', '10.0.0.5:9000']],
  ['keys', '#/keys', ['config/flags', 'beta=on']],
  ['access', '#/access', ['Identity is', 'not enabled']],
  ['audit', '#/audit', ['lock taken away', 'reports/daily', 'runner 5 was deleted']],
];

/** A summary with so many locks held for long, of which a member lists ten. */
function summaryOf(held) {
  const holds = Array.from({ length: 10 }, (_, at) => ({ lock: `long/${at}`, holders: 1, waiting: 0, holder: { client: 'c', token: `${at}`, mode: 'exclusive', held_ms: 9e6, state: 'held', lease: '1234567890' } }));
  const totals = { granted: 0, handed_over: 0, lost: 0, counted_ms: 1000 };
  return { locks: held, held, awaited: 0, waiters: 0, revoking: 0, elections: 0, leases: 1, complete: true, totals, longest_waits: [], longest_holds: holds, prefixes: [], header: { revision: '1' } };
}

export const tests = [
  async function every_page_shows_what_it_promises_without_errors({ browser, cluster, shots }) {
    for (const colorScheme of ['light', 'dark']) {
      const page = await Page.open(browser, cluster.url(), { colorScheme });
      for (const [name, hash, texts] of PAGES) {
        await page.go(hash);
        for (const text of texts) await page.sees(text);
        if (name === 'lock') await page.page.waitForSelector('.ttl');
        if (shots && (colorScheme === 'light' || ['now', 'lock'].includes(name))) {
          await page.page.screenshot({ path: `${shots}/${name}-${colorScheme}.png` });
        }
        assert.deepEqual(await page.violations(), [], `${name}, ${colorScheme}`);
      }
      assert.deepEqual(page.problems(), []);
      assert.deepEqual(page.outside, []);
      await page.close();
    }
  },

  async function a_narrow_screen_shows_every_page_without_scrolling_sideways({ browser, cluster, shots }) {
    const page = await Page.open(browser, cluster.url(), { viewport: { width: 390, height: 800 } });
    for (const [name, hash, texts] of PAGES) {
      await page.go(hash);
      await page.sees(texts[0]);
      const wide = await page.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      const widest = await page.page.evaluate(() => [...document.querySelectorAll('main *, header *')].filter((it) => it.getBoundingClientRect().right > innerWidth + 1).slice(0, 3).map((it) => it.outerHTML.slice(0, 80)));
      assert.ok(wide <= 1, `${name} is ${wide} px too wide: ${widest}`);
      assert.deepEqual(await page.violations(), [], `${name}, narrow`);
      if (shots && name === 'lock') await page.page.screenshot({ path: `${shots}/lock-narrow.png` });
    }
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function long_holds_have_a_plus_only_if_there_are_more_than_are_listed({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    // As if the member's summary were of ten locks, all of which are held, or of one more.
    for (const [held, label] of [[10, 'Held for long (10)'], [11, 'Held for long (10+)']]) {
      await page.page.route(/v1\/overview/, (route) => route.fulfill({ contentType: 'text/event-stream', body: `id: 1\nevent: overview\ndata: ${JSON.stringify(summaryOf(held))}\n\n` }));
      await page.go('#/stuck?holds=10000');
      await page.sees(label);
      await page.page.unrouteAll({ behavior: 'ignoreErrors' });
      await page.go('#/');
    }
    await page.close();
  },

  async function an_address_brings_a_colleague_to_the_same_place({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url(cluster.members[1]));
    await page.go('#/?prefix=jobs%2F&state=awaited');
    await page.sees('1 match');
    assert.equal(await page.page.inputValue('input[name=prefix]'), 'jobs/');
    await page.page.locator('[aria-label="Locks"] .all a.name').first().waitFor();
    const names = await page.page.locator('[aria-label="Locks"] .all a.name').allInnerTexts();
    assert.deepEqual(names.filter((name) => name.startsWith('jobs/')), ['jobs/import/1']);
    await page.page.fill('input[name=contains]', 'import/1');
    await page.page.selectOption('select[name=state]', '');
    await page.sees('3 matches');
    assert.match(page.page.url(), /contains=import%2F1/);
    // The other filters: by the client that holds or waits, and by how long the first in the queue waits.
    await page.go('#/?client=w-0');
    await page.sees('jobs/import/0');
    const rows = page.page.locator('[aria-label="Locks"] .all .row');
    await until('only the locks of that client are shown', async () => {
      const shown = await rows.allInnerTexts();
      return shown.length > 0 && shown.every((row) => row.includes('w-0/'));
    });
    await page.go('#/');
    await page.sees('Longest waits');
    await page.page.selectOption('select[name=waiting_ms]', '1000');
    await page.page.waitForFunction(() => location.hash.includes('waiting_ms=1000'));
    await until('only awaited locks are shown', async () => {
      const waiting = await page.page.locator('[aria-label="Locks"] .all .row .cell:last-child').allInnerTexts();
      return waiting.length > 0 && waiting.every((count) => count !== '0');
    });
    // What is being typed stays, however often the page is drawn meanwhile.
    await page.go('#/timeline');
    await page.page.locator('input[name=lock]').pressSequentially('depl');
    await page.page.evaluate(async () => {
      dispatchEvent(new HashChangeEvent('hashchange'));
      for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
    });
    await page.page.locator('input[name=lock]').pressSequentially('oy');
    await page.page.keyboard.press('Enter');
    await page.page.waitForFunction(() => location.hash.includes('lock=deploy'));
    await page.close();
  },

  async function who_held_it_at_a_time_is_answered_from_the_archive({ browser, cluster, client }) {
    const history = await client.ask('GET', '/v1/locks/reports%2Fdaily?view=history&archive=true&limit=100');
    const events = history.changes.flatMap((change) => change.events);
    const granted = events.filter((event) => event.cause === 'granted' && event.client === 'ci-5/2200')[0];
    const at = new Date(Date.parse(granted.at) + 1).toISOString();
    const page = await Page.open(browser, cluster.url());
    await page.go(`#/timeline?lock=reports%2Fdaily&at=${encodeURIComponent(at)}`);
    await page.sees('Held at');
    const text = await page.page.locator('section:has(#then)').innerText();
    assert.match(text, /ci-5\/2200/);
    assert.doesNotMatch(text, /etl-3/);
    await page.close();
  },

  async function a_search_finds_locks_that_nobody_holds_and_clients_by_a_part_of_their_names({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    const search = async (text) => {
      await page.page.fill('form.search input', text);
      await page.page.keyboard.press('Enter');
      await page.page.waitForFunction((wanted) => document.querySelector('main h1').innerText.includes(wanted), text);
    };
    await page.go('#/');
    await search('backup');
    await page.sees('backup: not held now. It was last held by cron-2/91');
    await page.sees('expired: not renewed in time');
    await page.page.locator('section:has(#found-past)').getByRole('link', { name: 'backup', exact: true }).waitFor();
    assert.deepEqual(await page.violations(), []);
    await page.page.getByRole('link', { name: 'Its page' }).click();
    await page.sees('No holder and no waiter. It was last held by cron-2/91');
    await search('ackup');
    await page.sees('No lock is named ackup: none is held, awaited or recorded.');
    await page.page.locator('section:has(#found-past)').getByRole('link', { name: 'backup', exact: true }).waitFor();
    // A client that has no lease any more and lost a lock leads, before the lock of that name that there is not.
    await search('cron-2/91');
    await page.sees('cron-2/91: a client without a lease now. It last held backup until');
    await page.sees('No lock is named cron-2/91');
    const answers = await page.page.locator('main .answer').allInnerTexts();
    assert.match(answers[0], /^cron-2\/91: a client.*expired: not renewed in time\.$/);
    assert.match(await page.page.locator('section:has(#found-clients) header').innerText(), /1 match/);
    await page.go('#/lock/ackup');
    await page.sees('No such lock is held or recorded; check the name.');
    assert.equal(await page.page.locator('main h1 .badge').count(), 0);
    await page.go('#/lock/backup');
    await page.sees('No holder and no waiter. It was last held by cron-2/91');
    await search('9/87');
    await page.page.locator('section:has(#found-clients)').getByRole('link', { name: 'ci-9/877' }).click();
    await page.sees('It has 1 lease, holds 1 lock and waits for deploy for');
    await page.sees('(in the end for etl-3/88, which holds db/schema).');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_follower_says_what_it_does_not_know_of_the_others_and_where_it_is_known({ browser, cluster }) {
    // On a busy machine another member may come to lead meanwhile: then its page is looked at again.
    const leader = await until('a follower names the leader', async () => {
      const leader = await cluster.leader();
      const follower = cluster.members.find((member) => member !== leader);
      const page = await Page.open(browser, cluster.url(follower));
      await page.go('#/members');
      const link = page.page.getByRole('link', { name: `the console of ${leader.name}` });
      const href = await link.getAttribute('href', { timeout: 10_000 }).catch(() => undefined);
      if (href) await page.sees('This member is a follower');
      await page.close();
      if (href) assert.equal(href, `${cluster.url(leader)}/#/members`);
      return href && leader;
    });
    const other = await Page.open(browser, cluster.url(leader));
    await other.go('#/members');
    await other.sees('Each member alone knows its own fsync');
    assert.ok(!(await other.text()).includes('This member is a follower'));
    const behind = await other.page.locator('section:has(#members) tbody tr td:nth-child(5)').allInnerTexts();
    assert.deepEqual(behind.filter((text) => !/^([0-9,]+|–)$/.test(text)), []);
    await other.close();
  },

  async function a_timeline_of_many_locks_shows_the_busiest_first_in_letters_that_can_be_read({ browser, cluster, client }) {
    // More locks than it draws at first; one of them was held twice.
    const lease = await client.lease('many/1');
    const { token } = await client.acquire('lanes/44', lease);
    await client.release('lanes/44', lease, token);
    await client.ask('POST', '/v1/locks', { lease, locks: Array.from({ length: 45 }, (_, at) => `lanes/${at}`) });
    for (const width of [1280, 400]) {
      const page = await Page.open(browser, cluster.url(), { viewport: { width, height: 800 } });
      await page.go('#/timeline?prefix=lanes%2F');
      await page.sees('The 40 locks with the most holds, of 45.');
      const names = () => page.page.locator('.lanes text.lane').evaluateAll((found) => found.map((it) => it.firstChild.data.trim()));
      assert.deepEqual((await names()).slice(0, 3), ['lanes/44', 'lanes/0', 'lanes/1']);
      const size = await page.page.locator('.lanes text.lane').first().evaluate((text) => {
        const svg = text.ownerSVGElement;
        return parseFloat(getComputedStyle(text).fontSize) * (svg.getBoundingClientRect().width / svg.viewBox.baseVal.width);
      });
      assert.ok(size >= 10, `letters of ${size} px at ${width} px`);
      await page.page.getByRole('button', { name: 'Show 5 more' }).click();
      await page.seesNot('with the most holds');
      assert.equal((await names()).length, 45);
      assert.deepEqual(page.problems(), []);
      await page.close();
    }
  },

  async function a_timeline_is_zoomed_and_moved_with_the_pointer_and_asked_who_held_it({ browser, cluster, client }) {
    const { changes } = await client.ask('GET', '/v1/locks/reports%2Fdaily?view=history&archive=true&limit=100');
    const lost = Date.parse(changes.flatMap((change) => change.events).find((event) => event.cause === 'forced').at);
    const page = await Page.open(browser, cluster.url(), { timezoneId: 'UTC' });
    // Before anything was recorded: the chart says so, and is moved all the same.
    const [from, to] = [lost - 86_400_000, lost - 86_280_000];
    await page.go(`#/timeline?lock=reports%2Fdaily&from=${from}&to=${to}`);
    const svg = page.page.locator('.lanes svg');
    await svg.waitFor();
    // The window, when it is another one than before.
    const moved = async (before) => {
      await page.page.waitForFunction((hash) => location.hash !== hash, before);
      const filters = new URLSearchParams((await page.page.evaluate(() => location.hash)).split('?')[1]);
      return { from: Number(filters.get('from')), to: Number(filters.get('to')) };
    };
    const hash = () => page.page.evaluate(() => location.hash);
    const span = (window) => window.to - window.from;
    let before = await hash();
    await page.page.getByRole('button', { name: 'Zoom in' }).click();
    let now = await moved(before);
    assert.equal(span(now), 60_000);
    before = await hash();
    await page.page.getByRole('button', { name: 'Earlier' }).click();
    const earlier = await moved(before);
    assert.deepEqual([earlier.from, span(earlier)], [now.from - 30_000, 60_000]);
    // Shift and the wheel zoom around the pointer; a drag moves the window.
    before = await hash();
    const box = await svg.boundingBox();
    await page.page.mouse.move(box.x + box.width / 2, box.y + 10);
    await page.page.keyboard.down('Shift');
    await page.page.mouse.wheel(0, 120);
    await page.page.keyboard.up('Shift');
    now = await moved(before);
    assert.ok(span(now) > 70_000, `the wheel made it ${span(now)} ms`);
    before = await hash();
    await page.page.mouse.move(box.x + box.width - 40, box.y + box.height - 6);
    await page.page.mouse.down();
    await page.page.mouse.move(box.x + box.width - 240, box.y + box.height - 6, { steps: 4 });
    await page.page.mouse.up();
    const dragged = await moved(before);
    assert.ok(dragged.from > now.from && Math.abs(span(dragged) - span(now)) < 1000, JSON.stringify([now, dragged]));
    // A time outside of the window brings the window with it. Before the records nothing is known, which is not "no client".
    const ask = async (text) => {
      const was = await hash();
      await page.page.fill('input[name=at]', text);
      await page.page.locator('input[name=at]').blur();
      return moved(was);
    };
    const at = new Date(lost - 2 * 86_400_000).toISOString().slice(0, 19).replace('T', ' ');
    await ask(at);
    await page.sees(`Held at ${at} UTC`);
    await page.sees('Unknown: records begin at');
    assert.doesNotMatch(await page.text(), /No client held it/);
    await page.page.locator('.lanes .unrecorded rect').waitFor();
    // The future is asked for as the present, and the window ends there.
    now = await ask(new Date(Date.now() + 5 * 86_400_000).toISOString().slice(0, 19));
    assert.ok(now.to <= Date.now() && now.to > lost, JSON.stringify(now));
    before = await hash();
    await page.page.getByRole('button', { name: 'Zoom out' }).click();
    assert.ok((await moved(before)).to <= Date.now());
    before = await hash();
    await page.page.getByRole('button', { name: '1 day ago' }).click();
    await moved(before);
    await page.sees('Unknown: records begin at');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function who_may_still_work_with_a_lock_that_was_taken_from_it_is_said_beside_the_headline({ browser, cluster, client }) {
    // On one page the former holder may still work; on the other its lease would have ended meanwhile.
    for (const [width, ttl, sentence] of [[390, 600_000, 'ci-1/taken may still be working until'], [1280, 2_000, 'ci-1/taken may have worked until']]) {
      const lock = `taken/${width}`;
      const { token } = await client.acquire(lock, await client.lease('ci-1/taken', ttl));
      await client.ask('POST', '/v1/force', { lock, token, reason: 'gone', by: 'maria', now: true });
      await client.acquire(lock, await client.lease('ci-2/next', 600_000));
      const page = await Page.open(browser, cluster.url(), { viewport: { width, height: 800 } });
      await page.go(`#/lock/${encodeURIComponent(lock)}`);
      await page.sees(sentence);
      await page.sees(`it was not given time to stop; only a fence ${width === 390 ? 'protects' : 'protected'} the resource`);
      const past = page.page.locator('section:has(#past)');
      await past.locator('.loss', { hasText: 'none' }).waitFor();
      if (width === 390) await page.sees('only a fence protected the resource');
      assert.match(await past.getByRole('link', { name: 'maria' }).getAttribute('href'), /audit\?text=maria/);
      // The acts are below what is in the way and the queue.
      const order = await page.page.locator('main h2').evaluateAll((found) => found.map((it) => it.id));
      assert.ok(order.indexOf('queue') < order.indexOf('acts') && order.indexOf('acts') < order.indexOf('past'), order.join());
      assert.deepEqual(await page.violations(), []);
      assert.deepEqual(page.problems(), []);
      await page.close();
    }
  },

  async function a_semaphore_with_free_slots_has_nothing_in_the_way({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/workers');
    await page.sees('5 of 8 slots are free.');
    const text = await page.text();
    assert.doesNotMatch(text, /What is in the way/);
    assert.doesNotMatch(text, /free when released|it renewed/);
    await page.close();
  },

  async function a_client_that_others_wait_for_says_what_it_does_and_how_many_wait({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    await page.go('#/client/etl-3%2F88');
    await page.sees('db/schema: held since');
    await page.sees('“nightly load”');
    // One waits for its lock; two wait for what that one holds, and so on.
    const waiters = page.page.locator('main .answer', { hasText: 'because of it in the end' });
    await waiters.waitFor();
    assert.match(await waiters.innerText(), /^[3-9] clients wait because of it in the end: .*ci-7\/4121/);
    await page.close();
  },

  async function what_moves_keeps_still_for_those_who_want_that({ browser, cluster }) {
    for (const [reducedMotion, moves] of [['reduce', false], ['no-preference', true]]) {
      const page = await Page.open(browser, cluster.url(), { reducedMotion });
      await page.go('#/lock/deploy');
      await page.page.waitForSelector('.ttl .fill');
      const lasts = await page.page.locator('.ttl .fill').first().evaluate((bar) => getComputedStyle(bar).transitionDuration);
      assert.equal(lasts !== '0s', moves, `${reducedMotion}: ${lasts}`);
      await page.close();
    }
  },

  async function what_is_not_shown_is_said_and_where_it_is({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    // As if the lock had a longer past, and there were so many locks that a search for long waits reached none of these.
    await page.page.route(/waiting_ms=2/, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), locks: [], next: 'a' } });
    });
    await page.page.route(/view=history/, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), before: '1' } });
    });
    const waits = page.page.locator('section:has(#waits) tbody tr td:first-child');
    for (const bound of [1, 2]) {
      await page.go(`#/stuck?waits=${bound}`);
      await page.sees('the longest wait first');
      await until('the waits are in order', async () => (await waits.allInnerTexts()).join(' ') === 'deploy db/schema jobs/import/1 accounts/9 either/a either/b gpu/a');
    }
    await page.go('#/lock/deploy');
    await page.sees('only the newest 200 revisions of this lock were read');
    const past = page.page.locator('section:has(#past)');
    assert.match(await past.innerText(), /release 5\.2/, 'what the holder said is in the past too');
    assert.match(await past.getByRole('link', { name: 'Older holds' }).getAttribute('href'), /timeline\?lock=deploy&from=\d+&to=\d+/);
    await page.page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.close();
  },

  async function who_took_it_away_on_a_day_is_found_by_the_day({ browser, cluster, client }) {
    const history = await client.ask('GET', '/v1/history?cause=forced&limit=10');
    const at = Date.parse(history.changes[0].events[0].at);
    const page = await Page.open(browser, cluster.url(), { timezoneId: 'UTC' });
    await page.go(`#/stuck?day=${new Date(at - 2 * 86_400_000).toISOString().slice(0, 10)}`);
    await page.sees('None is recorded on that day.');
    await page.page.fill('input[name=day]', new Date(at).toISOString().slice(0, 10));
    await page.sees('ops: “runner 5 was deleted”');
    await page.page.getByRole('button', { name: 'Lost or taken away: by whom and why' }).click();
    assert.equal(await page.page.evaluate(() => document.activeElement.id), 'losses');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function every_time_has_its_day_and_its_zone({ browser, cluster, client }) {
    const { changes } = await client.ask('GET', '/v1/history?cause=forced&limit=10');
    const at = Date.parse(changes[0].events[0].at);
    const page = await Page.open(browser, cluster.url(), { timezoneId: 'Asia/Kolkata' });
    const time = page.page.locator('section:has(#losses) tr:has-text("runner 5 was deleted") time');
    const days = [[0, /^today [0-9:]{8}$/], [1, /^yesterday [0-9:]{8}$/], [3, /^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}$/]];
    for (const [later, form] of days) {
      await page.page.clock.setFixedTime(new Date(at + later * 86_400_000));
      await page.go('#/keys');
      await page.go('#/stuck');
      await time.filter({ hasText: form }).waitFor();
      assert.match(await time.getAttribute('title'), /^[0-9-]{10} [0-9:.]{12} UTC$/);
    }
    assert.match(await page.page.locator('section:has(#losses) thead').innerText(), /^When UTC\+5:30/);
    // In a sentence each time has its zone.
    await page.go('#/lock/backup');
    await page.sees('It was last held by cron-2/91 until');
    assert.match(await page.page.locator('main .answer').innerText(), /until [0-9-]{10} [0-9:]{8} UTC\+5:30: expired/);
    assert.deepEqual(await page.violations(), []);
    await page.close();
  },

  async function a_hold_at_the_end_of_a_window_of_the_past_is_not_said_to_be_held_now({ browser, cluster, client }) {
    const { changes } = await client.ask('GET', '/v1/locks/deploy?view=history&archive=true&limit=100');
    const granted = Date.parse(changes.flatMap((change) => change.events).find((event) => event.cause === 'granted').at);
    const page = await Page.open(browser, cluster.url());
    const row = () => page.page.locator('section:has(#table) tbody tr').innerText();
    await page.go(`#/timeline?lock=deploy&from=${granted - 1000}&to=${Date.now() + 60_000}`);
    await page.sees('holds it now');
    // So long ago that it may have ended since.
    await until('the window is in the past', async () => {
      await page.go('#/keys');
      await page.go(`#/timeline?lock=deploy&from=${granted - 1000}&to=${granted + 1000}`);
      await page.page.locator('section:has(#table) tbody tr').waitFor();
      return (await row()).includes('held it at the end of this window');
    });
    assert.match(await row(), /> 1s/);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function everything_can_be_done_with_the_keyboard_alone({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    const keys = page.page.keyboard;
    await page.go('#/');
    await page.sees('3 of 3 members up');
    const focused = () => page.page.evaluate(() => (document.activeElement.innerText || document.activeElement.getAttribute('aria-label') || '').trim());
    await keys.press('Tab');
    assert.equal(await focused(), 'Skip to the page');
    await keys.press('/');
    await keys.type('deploy');
    await keys.press('Enter');
    await page.page.waitForFunction(() => document.activeElement.tagName === 'H1' && document.activeElement.innerText.includes('deploy'));
    await page.sees('release 5.2');
    assert.match(await focused(), /^Lock\s+deploy/, 'the heading has the focus after a change of page');
    for (let presses = 0; (await focused()) !== 'Take away once stopped…'; presses += 1) {
      assert.ok(presses < 60, `no way to the act, last at ${await focused()}`);
      await keys.press('Tab');
    }
    await keys.press('Enter');
    await page.sees('is told to stop and loses');
    assert.equal(await page.page.locator('dialog[open] button.danger').isDisabled(), true);
    await keys.press('Escape');
    await page.seesNot('is told to stop and loses');
    assert.equal(await focused(), 'Take away once stopped…', 'the focus is back where it was');
    await page.go('#/timeline?prefix=reports');
    await page.sees('ci-5/2200');
    await page.page.locator('.lanes').focus();
    await keys.press('-');
    await keys.press('ArrowLeft');
    await page.page.waitForFunction(() => location.hash.includes('from='));
    // One of the holds is reached with Tab, the others from there.
    assert.equal(await page.page.locator('.lanes .hold[tabindex="0"]').count(), 1);
    await page.page.locator('.lanes .hold[tabindex="0"]').focus();
    const hold = await focused();
    await keys.press('ArrowRight');
    await page.page.waitForFunction((before) => document.activeElement.getAttribute('aria-label') !== before, hold);
    await keys.press('Enter');
    await page.page.waitForSelector('.lanes .hold.chosen');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function locks_of_nested_runs_are_neither_counted_nor_listed({ browser, cluster, client }) {
    // As `tenure run` in a `tenure run` has it: an inner lease holds a lock of its own, for which the outer one waits.
    const [outer, inner] = [await client.lease('bob/outer'), await client.lease('bob/inner')];
    await client.acquire('nest/real', await client.lease('alice/nest'));
    const own = `nest/real/.nested/${inner}`;
    await client.acquire(own, inner);
    await client.queue(own, outer);
    await client.queue('nest/real', inner);
    const page = await Page.open(browser, cluster.url());
    await page.go('#/?prefix=nest%2F');
    await page.sees('1 match');
    await page.page.locator('[aria-label="Locks"] .row', { hasText: '+ nested run' }).waitFor();
    await page.go('#/');
    const summary = async () => {
      const tiles = await page.page.locator('.tile').allInnerTexts();
      return [tiles, await page.page.locator('section:has(#locks) header').innerText()];
    };
    await until('tiles and list agree', async () => {
      const { locks } = await client.ask('GET', '/v1/locks?limit=1000');
      const real = locks.filter((it) => !it.lock.includes('/.nested/'));
      const [tiles, header] = await summary();
      return tiles[0].includes(`of ${real.length} locks`) && tiles[1].includes(`\n${real.filter((it) => it.waiting).length}\n`) && header.includes(`${real.length} locks`);
    });
    await page.close();
    // On a narrow screen long names wrap, and the state stays.
    const slim = await Page.open(browser, cluster.url(), { viewport: { width: 390, height: 800 } });
    await client.acquire('nest/a-rather-long-name-of-a-lock/eu-west-1', await client.lease('c/1'));
    await slim.go('#/?prefix=nest%2Fa-rather');
    const row = slim.page.locator('[aria-label="Locks"] .all .row').first();
    await row.waitFor();
    assert.match(await row.innerText(), /held/);
    assert.ok(await row.locator('.cell').first().evaluate((cell) => cell.scrollHeight <= cell.clientHeight && cell.scrollWidth <= cell.clientWidth), 'all of the name is shown');
    await slim.close();
  },
];

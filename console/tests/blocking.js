// Why a request waits: every branch is shown, and what bounds cut is said.

import assert from 'node:assert/strict';
import { treeOf } from '../blocking.js';
import { Client, Cluster } from './cluster.js';
import { Page } from './browser.js';

export async function stage(binary, opens) {
  const cluster = opens(await Cluster.start(binary, 1));
  const client = new Client(cluster.url());
  const lease = (name) => client.lease(name, 3_600_000);
  const keep = (body) => client.ask('POST', '/v1/locks?keep=true', body);
  // A nested run: its own lease waits for what another client has, and the lease around it for the lock of the nested run.
  // First, because only the longest waits are listed with who waits.
  const [alice, around, inner] = [await lease('alice'), await lease('bob'), await lease('bob')];
  const marker = `db/migrate/.nested/${inner}`;
  await client.acquire('db/migrate', alice);
  await client.acquire('reports/nightly', around);
  await client.acquire(marker, inner);
  await client.queue(marker, around);
  await client.queue('db/migrate', inner);
  await client.queue('reports/nightly', await lease('carol'));
  // Two readers, of which the second waits for what a third client has. A writer waits for both.
  const [r1, r2, w1] = [await lease('reader-1'), await lease('reader-2'), await lease('indexer')];
  await client.acquire('data', r1, { mode: 'shared' });
  await client.acquire('data', r2, { mode: 'shared' });
  await client.acquire('index', w1);
  await client.queue('index', r2);
  await client.queue('data', await lease('writer'));
  await client.queue('data', await lease('later'), { mode: 'shared' });
  // All of three locks: one is free, one is held, and the holder of the last one waits itself.
  const [x, y, z] = [await lease('holder-x'), await lease('holder-y'), await lease('holder-z')];
  await client.acquire('group/b', x);
  await client.acquire('group/c', y);
  await client.acquire('group/deep', z);
  await client.queue('group/deep', y);
  await keep({ lease: await lease('all-of'), locks: ['group/a', 'group/b', 'group/c'] });
  await client.queue('group/a', await lease('behind-the-group'));
  // Any of two locks, and any slot of a pool with two.
  const [one, two] = [await lease('any-1'), await lease('any-2')];
  for (const [lock, of] of [['any/a', one], ['any/b', two]]) await client.acquire(lock, of);
  for (const [lock, of] of [['pool/a', one], ['pool/b', two]]) {
    await client.ask('PUT', `/v1/semaphores/${encodeURIComponent(lock)}`, { slots: 1 });
    await client.acquire(lock, of, { mode: 'slot', slots: 1 });
  }
  await keep({ lease: await lease('chooser'), locks: ['any/a', 'any/b'], any: true });
  await keep({ lease: await lease('pooler'), pool: 'pool/' });
  // More holders than branches, and locks that wait for each other more deeply than the tree goes.
  for (let at = 0; at < 12; at += 1) await client.acquire('wide', await lease(`wide-${at}`), { mode: 'shared' });
  await client.queue('wide', await lease('wide-waiter'));
  let next = await lease('deep-0');
  await client.acquire('deep/00', next);
  for (let at = 1; at < 12; at += 1) {
    const name = (number) => `deep/${String(number).padStart(2, '0')}`;
    const holder = await lease(`deep-${at}`);
    await client.acquire(name(at), holder);
    await client.queue(name(at), next);
    next = holder;
  }
  return { cluster, client, marker };
}

/** The lines of the tree on a page, without what changes. */
async function lines(page, hash, last) {
  await page.go(hash);
  await page.page.waitForFunction((text) => [...document.querySelectorAll('.tree')].some((tree) => tree.innerText.includes(text)), last);
  const text = await page.page.locator('.tree').first().innerText();
  return text.replace(/ for \d[\dmhs.]*/g, '').split('\n').map((line) => line.trim()).filter(Boolean);
}

export const tests = [
  async function waits_of_one_chain_say_who_is_at_its_end_and_a_nested_run_is_called_so({ browser, cluster, marker }) {
    const page = await Page.open(browser, cluster.url());
    const ends = 'in the end alice, which holds db/migrate';
    // The row of the lock that has this address, as it is read; what changes is left out.
    const row = (lock) => page.page.locator('section:has(#waits) tr', { has: page.page.locator(`td:first-child a[title="${lock}"]`) });
    await page.go('#/stuck?waits=1');
    await page.sees('reports/nightly');
    await row('reports/nightly').filter({ hasText: ends }).waitFor();
    assert.ok(!(await row('db/migrate').innerText()).includes('in the end'), 'who holds it is the end');
    // Its own lock has no row: the client that waits for it is the one that waits for the real lock.
    assert.equal(await row(marker).count(), 0);
    await page.go('#/?contains=.nested');
    await page.sees('nested run of bob: db/migrate');
    await page.go('#/client/carol');
    await page.sees('waits for reports/nightly for');
    await page.sees('(in the end for alice, which holds db/migrate).');
    await page.go('#/client/bob');
    await page.sees('It has 2 leases, holds 1 lock and waits for db/migrate for');
    await page.sees('(held by alice), in a nested run.');
    const tree = await lines(page, '#/lock/reports%2Fnightly', 'alice');
    assert.deepEqual(tree, ['reports/nightly', 'held by bob', 'which waits, in a nested run, for db/migrate; it is next', 'held by alice']);
    assert.deepEqual(await page.violations(), []);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function every_shared_holder_is_a_branch({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    const holders = ['held by reader-1, shared', 'held by reader-2, shared', 'which waits for index; it is next', 'held by indexer'];
    assert.deepEqual(await lines(page, '#/lock/data', 'indexer'), ['data', ...holders]);
    assert.deepEqual(await lines(page, '#/client/writer', 'indexer'), ['data; it is next', ...holders]);
    // Who came later waits for the writer too, which is not a holder.
    assert.deepEqual(await lines(page, '#/client/later', 'indexer'), ['data', ...holders, 'behind writer, the first in the queue']);
    assert.deepEqual(await page.violations(), []);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_request_for_all_of_several_locks_shows_each_of_them({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    const held = ['group/b; it is next', 'held by holder-x', 'group/c; it is next', 'held by holder-y', 'which waits for group/deep; it is next', 'held by holder-z'];
    assert.deepEqual(await lines(page, '#/client/all-of', 'holder-z'), ['all of 3 locks at once:', 'group/a no holder; it is next', ...held]);
    // No client holds the lock. The first in its queue waits for the others.
    const group = ['behind all-of, the first in the queue', 'which also waits for all of 2 locks at once:', ...held];
    assert.deepEqual(await lines(page, '#/client/behind-the-group', 'holder-z'), ['group/a no holder', ...group]);
    assert.deepEqual(await lines(page, '#/lock/group%2Fa', 'holder-z'), ['group/a no holder', ...group]);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_request_for_any_of_several_locks_shows_each_of_them({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    assert.deepEqual(await lines(page, '#/client/chooser', 'any-2'), ['any of 2 locks:', 'any/a; it is next', 'held by any-1', 'any/b; it is next', 'held by any-2']);
    assert.deepEqual(await lines(page, '#/client/pooler', 'any-2'), ['any slot of the pool pool/:', 'pool/a; it is next', 'held by any-1, slot 0', 'pool/b; it is next', 'held by any-2, slot 0']);
    await page.close();
  },

  async function what_a_bound_cuts_is_said({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    const wide = await lines(page, '#/client/wide-waiter', 'wide-7');
    assert.deepEqual([wide.length, wide.at(-1)], [10, 'and by 4 more holders']);
    const deep = await lines(page, '#/client/deep-0', 'the tree ends here');
    assert.deepEqual(deep.slice(0, 3), ['deep/01; it is next', 'held by deep-1', 'which waits for deep/02; it is next']);
    assert.deepEqual(deep.at(-1), 'which waits for deep/09 and further: the tree ends here, because it became too large');
    await page.close();
  },

  async function a_large_tree_takes_a_bounded_number_of_reads_and_shows_what_is_near({}) {
    let reads = 0;
    const held = (lock) => Array.from({ length: 20 }, (_, at) => ({ client: `${lock}.${at}`, lease: `${lock}.${at}`, token: `${at}`, state: 'held', held_ms: 1 }));
    const read = async (path) => {
      reads += 1;
      const [, , kind, name] = path.split('/');
      if (kind === 'leases') return { lease: name, waits: [{ lock: `${name}-lock`, place: name }] };
      return { lock: { holders: held(name), waiting: 1 }, ahead: [], chain: [] };
    };
    const tree = await treeOf({ lock: 'root' }, undefined, undefined, read);
    assert.ok(reads <= 64, `${reads} reads`);
    assert.deepEqual([tree.holders.length, tree.more], [8, 12]);
    assert.ok(tree.holders.every((holder) => holder.requests[0].locks[0].holders.length === 8), 'the nearest locks are all read');
    const ends = JSON.stringify(tree).match(/"cut":true/g);
    assert.ok(ends && ends.length > 0, 'what was not read is marked');
  },

  async function a_ring_ends_and_what_may_not_be_seen_is_marked({}) {
    const holder = (client) => [{ client, lease: client, token: '1', state: 'held', held_ms: 1 }];
    const answers = {
      '/v1/locks/a': { lock: { holders: holder('one') }, ahead: [], chain: [{ lock: 'a', lease: 'one' }, { lock: 'b', lease: 'two' }] },
      '/v1/locks/b': { lock: { holders: holder('two') }, ahead: [], chain: [] },
      '/v1/leases/two': { lease: 'two', waits: [{ lock: 'a', place: '1' }, { lock: 'secret', place: '2' }] },
    };
    const read = async (path) => {
      if (!answers[path]) throw Object.assign(new Error('refused'), { status: 403 });
      return answers[path];
    };
    const tree = await treeOf({ lock: 'a' }, undefined, undefined, read);
    // The lease of the first holder is refused: the chain of the member says what it waits for.
    const [two] = tree.holders[0].requests[0].locks[0].holders;
    const [[again], [secret]] = two.requests.map((request) => request.locks);
    assert.equal(again.again, true);
    assert.equal(secret.refused.status, 403);
    await assert.rejects(treeOf({ lock: 'a' }, undefined, undefined, async () => Promise.reject(new Error('no answer'))), /no answer/);
  },
];

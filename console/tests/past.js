// Tests how the events of the past become holds, without a browser.

import assert from 'node:assert/strict';
import { waitersOf } from '../blocking.js';
import { heldAt, holds, unsafe } from '../holds.js';

export async function stage() {
  return {};
}

const change = (revision, ...events) => ({
  revision: String(revision),
  events: events.map((event) => ({ lock: 'a', at: new Date(revision * 1000).toISOString(), clock_ms: revision * 1000, ...event })),
});
const holders = (changes, at) => heldAt(holds(changes), at * 1000).map((hold) => [hold.client, hold.token]);

async function a_hold_that_was_handed_on_ends_then() {
  const changes = [
    change(1, { cause: 'granted', client: 'old', lease: '1', token: '1', mode: 'exclusive' }),
    change(5, { cause: 'handed_on', client: 'old', lease: '1', token: '1' }, { cause: 'granted', client: 'new', lease: '2', token: '2', mode: 'exclusive' }),
  ];
  assert.deepEqual(holders(changes, 4), [['old', '1']]);
  assert.deepEqual(holders(changes, 6), [['new', '2']]);
  assert.deepEqual(holds(changes).map((hold) => hold.end), ['handed_on', undefined]);
}

async function an_upgraded_hold_goes_on_under_its_new_token() {
  const changes = [
    change(1, { cause: 'granted', client: 'ana', lease: '1', token: '1', mode: 'shared' }),
    change(2, { cause: 'granted', client: 'ben', lease: '2', token: '2', mode: 'shared' }),
    change(3, { cause: 'released', client: 'ben', lease: '2', token: '2' }, { cause: 'upgraded', client: 'ana', lease: '1', token: '3', mode: 'exclusive' }),
    change(5, { cause: 'downgraded', client: 'ana', lease: '1', token: '4', mode: 'shared' }),
    change(7, { cause: 'released', client: 'ana', lease: '1', token: '4' }),
  ];
  assert.deepEqual(holders(changes, 2.5), [['ana', '1'], ['ben', '2']]);
  assert.deepEqual(holders(changes, 4), [['ana', '3']]);
  assert.deepEqual(holders(changes.slice(2), 4), [['ana', '3']], 'the grant is older than what was read');
  assert.deepEqual(holders(changes, 8), []);
  assert.equal(holds(changes).length, 2, 'one hold, whatever its tokens');
}

async function a_token_that_is_older_than_what_was_read_is_not_guessed() {
  const changes = [
    change(3, { cause: 'upgraded', client: 'ana', lease: '1', token: '3', mode: 'exclusive' }),
    change(5, { cause: 'downgraded', client: 'ana', lease: '1', token: '4', mode: 'shared' }),
  ];
  assert.deepEqual(holders(changes, 2), [['ana', undefined]]);
  assert.deepEqual(holders(changes, 4), [['ana', '3']]);
  assert.deepEqual(holders(changes, 6), [['ana', '4']]);
}

async function a_hold_whose_end_is_missing_ends_at_the_next_grant_that_excludes_it() {
  const granted = (revision, client, lease, token, more) => change(revision, { cause: 'granted', client, lease, token, mode: 'exclusive', ...more });
  const changes = [granted(1, 'old', '1', '1'), granted(5, 'new', '2', '2'), change(9, { cause: 'downgraded', client: 'new', lease: '2', token: '3', mode: 'shared' })];
  assert.deepEqual(holders(changes, 4), [['old', '1']]);
  assert.deepEqual(holders(changes, 6), [['new', '2']]);
  assert.deepEqual(holders([...changes, granted(10, 'both', '3', '4', { mode: 'shared' })], 11), [['new', '3'], ['both', '4']]);
  const slots = [granted(1, 'a', '1', '1', { mode: 'slot', slot: 0 }), granted(2, 'b', '2', '2', { mode: 'slot', slot: 1 }), granted(3, 'c', '3', '3', { mode: 'slot', slot: 0 })];
  assert.deepEqual(holders(slots, 4), [['b', '2'], ['c', '3']]);
  // The same client took it again, and its first end is missing.
  const again = [granted(1, 'ana', '1', '1', { mode: 'shared' }), granted(3, 'ben', '2', '2'), granted(5, 'ana', '1', '3', { mode: 'shared' }), change(7, { cause: 'upgraded', client: 'ana', lease: '1', token: '4', mode: 'exclusive' })];
  assert.deepEqual(holders(again, 8), [['ana', '4']]);
  // An end in the same revision, after the grant, counts.
  const late = [granted(1, 'old', '1', '1'), change(5, { cause: 'granted', client: 'new', lease: '2', token: '2', mode: 'exclusive' }, { cause: 'released', client: 'old', lease: '1', token: '1' })];
  assert.deepEqual(holds(late).map((hold) => hold.end), ['released', undefined]);
}

async function a_hold_that_was_lost_without_time_to_stop_is_known_until_its_client_could_act() {
  const changes = (...more) => [
    change(1, { cause: 'granted', client: 'old', lease: '1', token: '1', mode: 'exclusive' }),
    change(5, { cause: 'forced', client: 'old', lease: '1', token: '1', ttl_ms: 60_000, renewed_clock_ms: 4000 }),
    ...more,
  ];
  const next = change(6, { cause: 'granted', client: 'new', lease: '2', token: '2', mode: 'exclusive' });
  const after = (list, tokens, at) => unsafe(holds(list), tokens, at * 1000).map((hold) => [hold.client, hold.until]);
  assert.deepEqual(after(changes(next), ['2'], 7), [['old', 64_000]], 'while it may work');
  assert.deepEqual(after(changes(next), ['2'], 90), [['old', 64_000]], 'the present hold was granted meanwhile');
  assert.deepEqual(after(changes(next), ['3'], 90), [], 'another client holds it now');
  assert.deepEqual(after(changes(), [], 7), [['old', 64_000]], 'nobody has it yet');
  assert.deepEqual(after(changes(), ['1'], 7), [], 'it is given time to stop');
  const stopped = change(6, { cause: 'cooled', client: 'old', lease: '1', token: '1', reason: 'stopped' });
  assert.deepEqual(after([...changes(), stopped, { ...next, revision: '7' }], ['2'], 7), [], 'it said that it has stopped');
}

async function those_who_wait_in_the_end_are_counted_once_and_a_bound_is_said() {
  const waits = (...clients) => ({ lock: { waiting: clients.length }, ahead: clients.map((client) => ({ client, lease: client })) });
  const answers = {
    '/v1/locks/a': waits('bob', 'ben'),
    '/v1/locks/b': waits('carol', 'bob'),
    '/v1/leases/bob': { holds: [{ lock: 'b' }] },
    '/v1/leases/ben': { holds: [{ lock: 'b' }] },
    '/v1/leases/carol': { holds: [{ lock: 'a' }] },
  };
  const read = async (path) => answers[path];
  const found = await waitersOf(['a'], 'alice', undefined, undefined, read);
  assert.deepEqual(found, { clients: ['bob', 'ben', 'carol'], whole: true });
  answers['/v1/locks/b'].lock.waiting = 9;
  assert.equal((await waitersOf(['a'], 'alice', undefined, undefined, read)).whole, false);
}

export const tests = [
  a_hold_that_was_lost_without_time_to_stop_is_known_until_its_client_could_act,
  those_who_wait_in_the_end_are_counted_once_and_a_bound_is_said,
  a_hold_that_was_handed_on_ends_then,
  an_upgraded_hold_goes_on_under_its_new_token,
  a_token_that_is_older_than_what_was_read_is_not_guessed,
  a_hold_whose_end_is_missing_ends_at_the_next_grant_that_excludes_it,
];
